from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from millpond.errors import OffsetGone, Truncated
from millpond.log.engine import Standing
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET
from millpond.query.terms import ready
from tests.query.small_pond import SmallPond


def numbers(
    pond: SmallPond, offsets: OffsetRange, where: str | None = None, after_each: Callable[[], object] = int
) -> list[int]:
    """The `n` of what a range read gives, doing something after each batch."""
    found: list[int] = []
    predicate = ready(where, pond.definition.schema)
    for batch in pond.halves.read_range(1, 0, offsets, ["n"], predicate):
        found += batch.column("n").to_pylist()
        after_each()
    return found


def test_a_snapshot_is_boundary_first_and_heads_second(pond: SmallPond) -> None:
    """I3: live begins where settled ends."""
    pond.fill(5)
    assert (pond.halves.snapshot().version, pond.halves.snapshot().live) == (-1, {0: OffsetRange(0, 5)})
    pond.settle({0: 3})
    snapshot = pond.halves.snapshot()
    assert snapshot.version >= 0
    assert snapshot.boundary == {0: 3}
    assert snapshot.live == {0: OffsetRange(3, 5)}


def test_what_happens_while_a_snapshot_is_taken_is_not_in_it(
    wide_pond: SmallPond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads are of one moment for all streamlets, whatever settles right after it."""
    pond, heads = wide_pond, wide_pond.log.heads
    pond.fill(9)

    standing = pond.log.standing

    def heads_then_more(stream_id: int) -> Standing:
        monkeypatch.undo()
        taken = standing(stream_id)
        pond.fill(9)
        pond.settle()
        return taken

    expected = heads(7)
    monkeypatch.setattr(pond.log, "standing", heads_then_more)
    snapshot = pond.halves.snapshot()
    assert snapshot.heads == expected
    assert snapshot.live == {s: OffsetRange(0, head) for s, head in expected.items()}


def test_records_that_settle_before_a_range_is_read_come_from_the_archive(pond: SmallPond) -> None:
    pond.fill(10)
    pond.settle({0: 4})
    assert numbers(pond, OffsetRange(2, 10)) == list(range(2, 10))
    pond.settle()
    assert numbers(pond, OffsetRange(2, 10)) == list(range(2, 10))


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (None, range(20)),
        ("city = 'Nice'", range(0, 20, 3)),
        ("n >= 7", range(7, 20)),
        ("n < 3", range(3)),
        ("n = 19", [19]),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 7])
def test_settling_in_the_middle_of_a_range_loses_and_doubles_nothing(
    wide_pond: SmallPond, where: str | None, wanted: Sequence[int], step: int
) -> None:
    """I3, for every place where the release can fall."""
    pond = wide_pond
    for n in range(20):
        pond.append({"vid": "x", "city": "Nice" if n % 3 == 0 else "Lyon", "n": n}, streamlet=0)
    settled = 0

    def settle_more() -> None:
        nonlocal settled
        settled = min(settled + step, 20)
        pond.settle({0: settled})

    assert numbers(pond, OffsetRange(0, 20), where, settle_more) == list(wanted)


def test_a_range_that_is_nowhere_is_gone(pond: SmallPond) -> None:
    pond.fill(10)
    pond.log.release(7, {0: 6})  # without a settle: as a stream that is never archived lets go
    with pytest.raises(OffsetGone, match=r"\[2, 10\) of streamlet 0 of grid/meters are neither live nor settled"):
        numbers(pond, OffsetRange(2, 10))
    assert numbers(pond, OffsetRange(6, 10)) == list(range(6, 10))


def test_a_truncated_stream_is_not_read_under_old_offsets(pond: SmallPond) -> None:
    """I7"""
    pond.fill(10)
    reading = pond.halves.read_range(1, 0, OffsetRange(0, 10), ["n"])
    pond.truncate()
    pond.fill(20)
    with pytest.raises(Truncated, match="generation 1 is gone, this is 2"):
        next(reading)


def test_a_snapshot_is_of_one_generation_whatever_is_truncated_meanwhile(pond: SmallPond) -> None:
    """Once the log has gone over, nothing that has settled before is in it, whether the archive knows or not."""
    pond.fill(10)
    pond.settle({0: 6})
    pond.definition = replace(pond.definition, generation=2)
    pond.log.truncate_stream(pond.definition)
    snapshot = pond.halves.snapshot()
    assert (snapshot.generation, snapshot.boundary, snapshot.heads) == (2, {}, {0: 0})
    assert len(snapshot.settled.objects) == 0
    assert pond.archive.finish_truncation()
    assert pond.halves.snapshot().generation == 2


@pytest.mark.parametrize(("dense", "looked_at"), [(True, ["n"]), (False, ["n", OFFSET])])
def test_rows_are_counted_only_where_a_log_has_no_gaps(
    pond: SmallPond, monkeypatch: pytest.MonkeyPatch, dense: bool, looked_at: list[str]
) -> None:
    """A replicated log may leave gaps: where a read goes on is then told by the offsets themselves."""
    pond.fill(10)
    asked: list[list[str]] = []
    read = pond.log.read

    def reading(*args: Any, columns: Any, **options: Any) -> Any:
        asked.append(list(columns))
        return read(*args, columns=columns, **options)

    monkeypatch.setattr(pond.log, "read", reading)
    monkeypatch.setattr(type(pond.log), "dense", property(lambda log: dense))
    assert sum(batch.num_rows for batch in pond.halves.read_range(1, 0, OffsetRange(0, 10), ["n"])) == 10
    assert asked == [looked_at]
