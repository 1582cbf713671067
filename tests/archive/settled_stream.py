"""A stream's archive with a model beside it: the rows that were settled, and what a reader must therefore see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.archive.stream_archive import SettledSnapshot, StreamArchive
from millpond.archive.table import DeltaLog
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import ranges_between
from millpond.model.schema import OFFSET, STREAMLET, TIMESTAMP, stored_schema
from millpond.storage import LocalStorage, Storage
from millpond.testing.manual_clock import ManualClock

SCHEMA = pa.schema([("vid", pa.string()), ("n", pa.int64()), ("temp", pa.float64()), ("at", TIMESTAMP)])
DAY_MICROS = 86_400_000_000
# 2023-11-14T00:00:00Z, the start of a day.
MIDNIGHT = 1_699_920_000_000_000


def define(streamlets: int = 2, schema: pa.Schema = SCHEMA, **more: Any) -> StreamDefinition:
    return StreamDefinition(7, "grid/meters", (schema,), streamlets=streamlets, **more)


def records(streamlet: int, start: int, stop: int, *, at: int = MIDNIGHT) -> pa.RecordBatch:
    """The records [start, stop) of a streamlet; every value follows from streamlet and offset."""
    offsets = np.arange(start, stop)
    micros = pa.array(at + offsets, TIMESTAMP)
    columns = [
        pa.array([f"vid-{streamlet}-{offset % 97:03d}" for offset in offsets.tolist()], pa.string()),
        pa.array(offsets * 10 + streamlet),
        pa.array(offsets / 2),
        micros,
        pa.array(np.full(stop - start, streamlet, np.int32)),
        pa.array(offsets),
        micros,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stored_schema(SCHEMA))


class SettledStream:
    """An archive in a directory, opened as often as wanted."""

    def __init__(
        self,
        root: Path,
        definition: StreamDefinition | None = None,
        storage: Storage | None = None,
        delta: DeltaLog | None = None,
    ) -> None:
        self.definition = definition or define()
        self.root = str(root / self.definition.directory)
        self.storage = storage or LocalStorage()
        self.clock = ManualClock()
        self.archive = self.open(delta)

    def open(self, delta: DeltaLog | None = None, storage: Storage | None = None) -> StreamArchive:
        """Another archive on the same directory, as another process would have it."""
        return StreamArchive.open(
            storage or self.storage, self.root, self.definition, "pond-1", self.clock, delta=delta
        )

    def reopen(self) -> SettledSnapshot:
        self.archive = self.open()
        return self.archive.snapshot()

    @property
    def boundary(self) -> dict[int, int]:
        return dict(self.archive.snapshot().boundary)

    def settle_to(self, stop: Mapping[int, int], *, at: int = MIDNIGHT, **more: Any) -> None:
        """Settle from the boundary up to `stop`."""
        start = self.boundary
        batches = [records(s, r.start, r.stop, at=at) for s, r in ranges_between(start, stop).items()]
        self.archive.settle(start, stop, batches, **more)


def expected(boundary: Mapping[int, int], *, at: int = MIDNIGHT) -> pa.Table:
    """All records under a boundary, in the order of streamlet and offset."""
    batches = [records(streamlet, 0, stop, at=at) for streamlet, stop in sorted(boundary.items())]
    return pa.Table.from_batches(batches, stored_schema(SCHEMA)).combine_chunks()


def read_all(snapshot: SettledSnapshot, **more: Any) -> pa.Table:
    """All rows of a snapshot, in the order of streamlet and offset."""
    table = pa.Table.from_batches(snapshot.read(**more), snapshot.schema)
    return table.sort_by([(STREAMLET, "ascending"), (OFFSET, "ascending")]).combine_chunks()
