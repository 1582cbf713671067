"""A pond of one stream for tests of the query room: a log in lists, a real archive, and a model beside them.

The model is a list of the rows that were acknowledged, as dicts with their system columns. Settling happens when a
test says so, in the steps that matter: the commit, then (perhaps later) the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.archive.stream_archive import StreamArchive
from millpond.log.engine import Part
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import hash_column, streamlets_of
from millpond.model.offsets import ranges_between
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, TIMESTAMP
from millpond.query import Halves
from millpond.storage import LocalStorage
from millpond.testing.manual_clock import ManualClock
from millpond.testing.simple_log import SimpleLog

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Event times are of several days, so that one settle writes several objects and their offsets overlap.
SCHEMA = pa.schema(
    [
        ("vid", pa.string()),
        ("city", pa.string()),
        ("temp", pa.float64()),
        ("n", pa.int64()),
        ("date", TIMESTAMP),
    ]
)

Row = dict[str, Any]


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def define(streamlets: int = 1, keys: Sequence[str] = ("vid", "city"), **more: Any) -> StreamDefinition:
    schema = more.pop("schema", SCHEMA)
    more.setdefault("event_time", "date" if schema is SCHEMA else None)
    return StreamDefinition(7, "grid/meters", (schema,), keys=tuple(keys), streamlets=streamlets, **more)


class SmallPond:
    """Not thread-safe as a whole; its halves are."""

    def __init__(self, root: Path, definition: StreamDefinition | None = None, *, batch_rows: int = 1_000) -> None:
        self.definition = definition or define()
        self.clock = ManualClock()
        self.log = SimpleLog(batch_rows=batch_rows, segment_rows=10)
        self.log.add_stream(self.definition)
        self.archive = StreamArchive.open(
            LocalStorage(), str(root / self.definition.directory), self.definition, "pond", self.clock
        )
        self.halves = Halves(lambda: self.definition, self.log, self.archive, self.clock)
        self.rows: list[Row] = []

    def append(self, *rows: Row, streamlet: int | None = None) -> None:
        """Acknowledge rows, a microsecond after the last ones, routed by their key (or where the test says)."""
        self.clock.advance("1us")
        now = self.clock.now_micros()
        schema = self.definition.schema
        batch = pa.RecordBatch.from_pylist(list(rows), schema=schema)
        if streamlet is not None or not self.definition.keys:
            routes = [streamlet or 0] * len(rows)
        else:
            hashes = hash_column(batch.column(self.definition.keys[0]))
            routes = [int(number) for number in streamlets_of(hashes, self.definition.streamlets)]
        parts = []
        for number in sorted(set(routes)):
            mine = [index for index, route in enumerate(routes) if route == number]
            parts.append(Part(number, len(mine), batch.take(pa.array(mine, pa.int64()))))
        appended = self.log.append(7, parts, ingest_micros=now, durability="disk")
        following = {number: offsets.start for number, offsets in appended.ranges.items()}
        for row, number in zip(batch.to_pylist(), routes, strict=True):
            place = {STREAMLET: number, OFFSET: following[number], INGEST_TIME: at(now)}
            self.rows.append(row | place)
            following[number] += 1

    def fill(self, count: int, *, batch: int = 1) -> None:
        """Append `count` rows with n from 0 (or where the last ones ended)."""
        first = len(self.rows)
        numbered = [reading(n) for n in range(first, first + count)]
        for start in range(0, count, batch):
            self.append(*numbered[start : start + batch])

    def commit(self, stop: dict[int, int] | None = None) -> dict[int, int]:
        """The first step of a settle: the objects and the boundary, up to `stop` (default: the heads)."""
        start = dict.fromkeys(range(self.definition.streamlets), 0) | dict(self.archive.snapshot().boundary)
        end = self.log.heads(7) | (stop or {})
        batches = (
            batch
            for number, offsets in ranges_between(start, end).items()
            for batch in self.log.read(7, number, offsets)
        )
        self.archive.settle(start, end, batches)
        return end

    def truncate(self) -> None:
        """As a pond does it: the log at one moment, then the archive."""
        self.definition = replace(self.definition, generation=self.definition.generation + 1)
        self.log.truncate_stream(self.definition)
        self.archive.begin_generation(self.definition.generation)
        assert self.archive.finish_truncation()
        self.rows.clear()

    def release(self) -> None:
        """The last step: the log lets go."""
        self.log.release(7, self.archive.snapshot().boundary)

    def settle(self, stop: dict[int, int] | None = None) -> None:
        self.commit(stop)
        self.release()

    def alter(self, schema: pa.Schema) -> None:
        self.definition = self.definition.altered(schema)
        self.log.alter_stream(self.definition)
        self.archive.alter(self.definition)


def reading(n: int) -> Row:
    """The n-th record: of one of five meters, three cities and two days."""
    return {
        "vid": f"vid-{n % 5}",
        "city": ("Nice", "Paris", "Lyon")[n % 3],
        "temp": n / 2,
        "n": n,
        "date": EPOCH + timedelta(days=19_000 + n // 2 % 2, seconds=n),
    }


def sorted_rows(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[STREAMLET], row[OFFSET]))
