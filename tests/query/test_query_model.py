"""Append, settle (in two steps), compact, alter and every kind of read, in any order, against a list of rows (I3, K6).

Reads that were begun earlier stay open while all of that happens, and must end up with what was there when they began.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.query import Snapshot, count, get, read, scan, scan_batches, segments
from tests.query.small_pond import SCHEMA, Row, SmallPond, at, define, sorted_rows

EVERYTHING = [*SCHEMA.names, "_streamlet", "_offset", "_ingest_time"]
STREAMLETS = 2
VIDS = ["a", "b", "c", None]
CITIES = ["Nice", "Lyon", None]

PREDICATES = {
    "n > 10": lambda row: row["n"] > 10,
    "city = 'Nice'": lambda row: row["city"] == "Nice",
    "NOT city = 'Nice'": lambda row: row["city"] not in ("Nice", None),
    "vid IS NULL OR n < 3": lambda row: row["vid"] is None or row["n"] < 3,
    "_offset >= 4 AND _streamlet = 1": lambda row: row["_offset"] >= 4 and row["_streamlet"] == 1,
    "FALSE": lambda row: False,
}


class QueryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.pond = SmallPond(Path(self.scratch.name), define(STREAMLETS), batch_rows=3)
        self.open: list[tuple[Iterator[pa.RecordBatch], list[Row], list[Row], bool]] = []
        self.views: list[tuple[Snapshot, list[Row]]] = []

    def teardown(self) -> None:
        while self.open:
            self.finish()
        self.scratch.cleanup()

    @property
    def rows(self) -> list[Row]:
        return self.pond.rows

    def heads(self) -> dict[int, int]:
        return {s: sum(row["_streamlet"] == s for row in self.rows) for s in range(STREAMLETS)}

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(VIDS), st.sampled_from(CITIES), st.none() | st.integers(0, 2)),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, rows: list[tuple[str | None, str | None, int | None]]) -> None:
        first = len(self.rows)
        self.pond.append(
            *[
                {"vid": vid, "city": city, "n": first + i, "date": None if day is None else at(day * 86_400_000_000)}
                for i, (vid, city, day) in enumerate(rows)
            ]
        )

    @rule(shares=st.tuples(*[st.floats(0, 1)] * STREAMLETS))
    def commit(self, shares: tuple[float, ...]) -> None:
        boundary = self.pond.archive.snapshot().boundary
        stop = {
            s: boundary.get(s, 0) + round((head - boundary.get(s, 0)) * shares[s]) for s, head in self.heads().items()
        }
        if stop != {s: boundary.get(s, 0) for s in stop}:
            self.pond.commit(stop)

    @rule()
    def release(self) -> None:
        self.pond.release()

    @rule()
    def compact(self) -> None:
        self.pond.archive.compact()

    @rule(where=st.sampled_from([None, *PREDICATES]), limit=st.none() | st.integers(0, 10))
    def scan(self, where: str | None, limit: int | None) -> None:
        expected = [row for row in self.rows if where is None or PREDICATES[where](row)]
        found = scan(self.pond.halves, where, EVERYTHING, limit).to_pylist()
        if limit is None:
            assert sorted_rows(found) == sorted_rows(expected)
        else:
            assert len(found) == min(limit, len(expected))
            assert all(row in expected for row in found)
        assert count(self.pond.halves, where) == len(expected)

    @rule(value=st.sampled_from([*VIDS[:-1], "nobody"]), limit=st.integers(1, 8))
    def get_by_primary(self, value: str, limit: int) -> None:
        matching = [row for row in self.rows if row["vid"] == value]
        newest = sorted(matching, key=lambda row: row["_offset"], reverse=True)[:limit]
        assert get(self.pond.halves, value, limit=limit).to_pylist() == newest

    @rule(value=st.sampled_from(CITIES[:-1]), limit=st.integers(1, 8))
    def get_by_secondary(self, value: str, limit: int) -> None:
        def age(row: Row) -> Any:
            return row["_ingest_time"], row["_offset"], -row["_streamlet"]

        matching = [row for row in self.rows if row["city"] == value]
        newest = sorted(matching, key=age, reverse=True)[:limit]
        assert get(self.pond.halves, secondary={"city": value}, limit=limit).to_pylist() == newest

    @rule(back=st.integers(0, 30))
    def read_from_a_time(self, back: int) -> None:
        moment = at(self.pond.clock.now_micros() - back)
        found = [row for batch in read(self.pond.halves, moment) for row in batch.to_pylist()]
        assert sorted_rows(found) == sorted_rows([row for row in self.rows if row["_ingest_time"] >= moment])

    @rule(shares=st.tuples(*[st.floats(0, 1)] * STREAMLETS), where=st.sampled_from([None, *PREDICATES]))
    def begin_read(self, shares: tuple[float, ...], where: str | None) -> None:
        start = {s: round(head * shares[s]) for s, head in self.heads().items()}
        expected = [
            row
            for row in self.rows
            if row["_offset"] >= start[row["_streamlet"]] and (where is None or PREDICATES[where](row))
        ]
        self.open.append((read(self.pond.halves, start, where=where, batch_rows=2), [], expected, True))

    @rule(where=st.sampled_from([None, *PREDICATES]))
    def begin_scan(self, where: str | None) -> None:
        expected = [row for row in self.rows if where is None or PREDICATES[where](row)]
        self.open.append((scan_batches(self.pond.halves, where, EVERYTHING), [], expected, False))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 100))
    def go_on(self, which: int) -> None:
        batches, found, _, _ = self.open[which % len(self.open)]
        batch = next(batches, None)
        if batch is not None:
            found += batch.to_pylist()

    @precondition(lambda self: self.open)
    @rule()
    def finish(self) -> None:
        batches, found, expected, ordered = self.open.pop(0)
        for batch in batches:
            found += batch.to_pylist()
        assert sorted_rows(found) == sorted_rows(expected)
        if ordered:
            offsets: dict[int, list[int]] = defaultdict(list)
            for row in found:
                offsets[row["_streamlet"]].append(row["_offset"])
            assert all(each == sorted(each) for each in offsets.values())

    @rule()
    def begin_view(self) -> None:
        """A Spark query: its snapshot is taken once, its live half read later, and more than once."""
        self.views.append((self.pond.halves.snapshot(), list(self.rows)))

    @precondition(lambda self: self.views)
    @rule(which=st.integers(0, 100))
    def read_view(self, which: int) -> None:
        snapshot, expected = self.views[which % len(self.views)]
        found = [row for batch in snapshot.settled.read() for row in batch.to_pylist()]
        for streamlet, offsets in snapshot.live.items():
            for batch in self.pond.halves.read_range(snapshot.generation, streamlet, offsets, EVERYTHING):
                found += batch.to_pylist()
        assert sorted_rows(found) == sorted_rows(expected)

    @invariant()
    def the_halves_are_a_partition(self) -> None:
        snapshot = self.pond.halves.snapshot()
        assert snapshot.heads == self.heads()
        assert sum(snapshot.settled.objects.rows) + sum(map(len, snapshot.live.values())) == len(self.rows)
        assert sum(listed.rows or 0 for listed in segments(self.pond.halves) if listed.state == "settled") == sum(
            snapshot.boundary.values()
        )


TestQueryModel = QueryModel.TestCase
