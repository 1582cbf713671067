from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from millpond.errors import InvalidValue, OffsetGone
from millpond.model.predicate import And, Compare, Unknown
from millpond.query import FixedHeads, read_live
from millpond.testing.manual_clock import ManualClock
from tests.query.small_pond import Row, SmallPond, sorted_rows


def live_rows(pond: SmallPond, fixed: FixedHeads, query: str, **how: Any) -> list[Row]:
    boundary = how.pop("boundary", {})
    _, batches = read_live(pond.halves, fixed, query=query, boundary=boundary, generation=1, **how)
    return sorted_rows([row for batch in batches for row in batch.to_pylist()])


@pytest.fixture
def fixed(wide_pond: SmallPond) -> FixedHeads:
    return FixedHeads(wide_pond.clock)


def test_all_reads_of_a_query_see_the_heads_of_its_first(wide_pond: SmallPond, fixed: FixedHeads) -> None:
    """B2: both sides of a self-join, and a task that is tried again, see one snapshot."""
    pond = wide_pond
    pond.fill(20)
    first = live_rows(pond, fixed, "q1")
    pond.fill(10)
    assert live_rows(pond, fixed, "q1") == first == sorted_rows(pond.rows[:20])
    assert live_rows(pond, fixed, "q2") == sorted_rows(pond.rows)
    assert live_rows(pond, fixed, "") == sorted_rows(pond.rows)
    pond.settle()
    pond.fill(5)
    assert live_rows(pond, fixed, "q1") == first, "what has settled since is served from newer objects"
    assert live_rows(pond, fixed, "") == sorted_rows(pond.rows)


def test_a_read_begins_at_the_boundary_it_is_given(wide_pond: SmallPond, fixed: FixedHeads) -> None:
    """I3"""
    pond = wide_pond
    pond.fill(30)
    pond.settle({0: 2, 1: 4, 2: 1})
    boundary = dict(pond.archive.snapshot().boundary)
    pond.settle()
    pond.fill(6)
    expected = [row for row in pond.rows if row["_offset"] >= boundary[row["_streamlet"]]]
    assert live_rows(pond, fixed, "q", boundary=boundary) == sorted_rows(expected)
    shares = [live_rows(pond, fixed, "q", boundary=boundary, streamlets=[s]) for s in range(3)]
    assert sorted_rows([row for share in shares for row in share]) == sorted_rows(expected)


def test_columns_are_cut_and_predicates_taken_loosely(wide_pond: SmallPond, fixed: FixedHeads) -> None:
    """K13: what is not understood, or names no column, filters nothing."""
    wide_pond.fill(20)
    predicate = And((Compare(">=", "n", 15), Unknown("rlike"), Compare("=", "nowhere", 1)))
    schema, batches = read_live(
        wide_pond.halves, fixed, query="q", boundary={}, generation=1, columns=["n", "_offset"], where=predicate
    )
    assert schema.names == ["n", "_offset"]
    found = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(row["n"] for row in found) == list(range(15, 20))
    wide_pond.settle()
    assert {r["n"] for r in live_rows(wide_pond, fixed, "q", where=predicate)} == set(range(15, 20))
    assert live_rows(wide_pond, fixed, "q", where="FALSE") == []


def test_what_cannot_be_read_is_refused(wide_pond: SmallPond, fixed: FixedHeads) -> None:
    pond = wide_pond
    with pytest.raises(InvalidValue, match="no streamlet 3"):
        live_rows(pond, fixed, "q", streamlets=[3])
    pond.definition = replace(pond.definition, generation=2)
    with pytest.raises(OffsetGone, match="truncated"):
        live_rows(pond, fixed, "q")


def test_queries_are_forgotten_by_number_and_by_time() -> None:
    """I8"""
    clock = ManualClock()
    fixed = FixedHeads(clock, queries_max=3, idle_seconds=60)
    taken = iter(range(1_000))

    def heads(query: str, stream: int = 1, generation: int = 1) -> int:
        return fixed.of(query, stream, generation, lambda: {0: next(taken)})[0]

    assert [heads("a"), heads("b"), heads("a"), heads("c")] == [0, 1, 0, 2]
    assert heads("a", stream=2) == 3
    assert len(fixed) == 3
    assert heads("a") == 0
    assert heads("b") == 4, "the least recently used made room"
    assert heads("a", generation=2) == 5
    clock.advance("59s")
    assert heads("a") == 0
    clock.advance("59s")
    assert heads("a") == 0
    assert len(fixed) == 1
    clock.advance("61s")
    assert heads("a") == 6


def test_first_requests_at_one_moment_get_one_answer() -> None:
    fixed = FixedHeads(ManualClock())
    taken = iter(range(1_000))
    start = threading.Barrier(8)
    found: list[int] = []

    def ask() -> None:
        start.wait(30)
        found.append(fixed.of("q", 1, 1, lambda: {0: next(taken)})[0])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [0] * 8
