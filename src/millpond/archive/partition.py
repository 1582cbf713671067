"""Time partitions: which directory a row's object goes to.

A partition is `partition_seconds` long and starts at a multiple of that, counted from the Unix epoch (before 1970, too:
division rounds down). Its time is the row's event time where the stream has one and the row's is not null, else the
time of ingestion. An object never crosses a partition, so whole objects fall out of a query by time.

Bounded: event times are data from outside, and rows scattered over a thousand years must not become a million objects.
After `PARTITIONS_MAX` partitions in one settle, rows of further ones go where their time of ingestion says. Nothing
depends on the directory: what an object holds is in its index entry and in its own metadata.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.schema import INGEST_TIME, TIMESTAMP

# A settle of a day's partitions spanning most of a year still gets one object each.
PARTITIONS_MAX = 256

Starts = npt.NDArray[np.int64]


def partition_name(start: int, seconds: int) -> str:
    """`1401408000.86400`: when it starts and how long it lasts, in seconds."""
    return f"{start}.{seconds}"


def row_times(batch: pa.RecordBatch | pa.Table, event_time: str | None) -> pa.Array | pa.ChunkedArray:
    """The time of each row that decides its partition, never null."""
    ingested = batch.column(INGEST_TIME)
    if event_time is None:
        return ingested
    return pc.coalesce(batch.column(event_time).cast(TIMESTAMP), ingested)


class Partitioner:
    """Splits batches by time partition, for one settle. Not thread-safe."""

    def __init__(self, event_time: str | None, seconds: int) -> None:
        self._event_time = event_time
        self._seconds = seconds
        self._seen: set[int] = set()

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by start of partition, each group in the order of the batch."""
        if batch.num_rows == 0:
            return
        starts = self._starts(row_times(batch, self._event_time))
        first = int(starts[0])
        if bool((starts == first).all()) and self._admit(first):
            yield first, batch
            return
        starts = self._bounded(starts, batch)
        order = np.argsort(starts, kind="stable")
        ordered, arranged = starts[order], batch.take(pa.array(order))
        edges = np.flatnonzero(np.diff(ordered)) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(ordered)], strict=True):
            yield int(ordered[low]), arranged.slice(low, high - low)

    def _starts(self, times: pa.Array) -> Starts:
        micros: Starts = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return micros // (self._seconds * 1_000_000) * self._seconds

    def _bounded(self, starts: Starts, batch: pa.RecordBatch) -> Starts:
        refused = [start for start in np.unique(starts).tolist() if not self._admit(start)]
        if not refused:
            return starts
        return np.where(np.isin(starts, refused), self._starts(batch.column(INGEST_TIME)), starts)

    def _admit(self, start: int) -> bool:
        if start not in self._seen:
            if len(self._seen) >= PARTITIONS_MAX:
                return False
            self._seen.add(start)
        return True
