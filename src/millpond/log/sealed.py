"""The sealed form of a segment's rows: one contiguous batch, ingest times as runs, and a key index per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.log.keyindex import KeyIndex, Rows
from millpond.log.piece import Chunk, Micros, upgrade
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import hash_column
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, SYSTEM_FIELDS, TIMESTAMP
from millpond.model.stats import ColumnRange, as_python

# Sealed rows live long and are freed by other threads than made them. Arrow's default pool is quicker at first but
# keeps such memory for itself; the system's allocator gives it back.
LONG_LIVED = pa.system_memory_pool()


@dataclass(frozen=True, slots=True)
class Sealed:
    """Rows from offset `base` on. `times[i]` is the ingest time from row `starts[i]` on."""

    base: int
    batch: pa.RecordBatch
    starts: Micros
    times: Micros
    keys: dict[str, KeyIndex]

    @classmethod
    def of(cls, chunks: Sequence[Chunk], keys: Sequence[str]) -> Sealed:
        """Consecutive chunks made one."""
        batch = pa.concat_batches([c.batch for c in chunks], memory_pool=LONG_LIVED)
        times = np.concatenate([c.ingest for c in chunks])
        starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
        index = {key: KeyIndex.build(hash_column(batch.column(key))) for key in keys}
        return cls(chunks[0].base, batch, starts, times[starts], index)

    def chunk(self, definition: StreamDefinition) -> Chunk:
        """All rows, in the stream's newest schema."""
        ingest = np.repeat(self.times, np.diff(np.append(self.starts, self.batch.num_rows)))
        return Chunk(self.base, upgrade(self.batch, definition.schema), ingest)

    def numbers(self) -> pa.RecordBatch:
        """The columns that are not text or bytes."""
        kinds = (pa.types.is_string, pa.types.is_binary)
        return self.batch.select([f.name for f in self.batch.schema if not any(kind(f.type) for kind in kinds)])

    def take(self, rows: Rows, definition: StreamDefinition, streamlet: int) -> pa.RecordBatch:
        """Some rows, in the order given, with system columns."""
        runs = np.searchsorted(self.starts, rows.astype(np.int64), "right") - 1
        batch = upgrade(self.batch, definition.schema).take(pa.array(rows))
        return add_system(batch, streamlet, rows.astype(np.int64) + self.base, self.times[runs])

    @property
    def nbytes(self) -> int:
        index = sum(key.nbytes for key in self.keys.values())
        return int(self.batch.nbytes) + self.starts.nbytes + self.times.nbytes + index


def with_system(chunk: Chunk, streamlet: int) -> pa.RecordBatch:
    """A chunk with its system columns, which are derived, not kept."""
    offsets = np.arange(chunk.base, chunk.base + chunk.batch.num_rows, dtype=np.int64)
    return add_system(chunk.batch, streamlet, offsets, chunk.ingest)


def system_ranges(streamlet: int, offsets: OffsetRange, times: Micros) -> dict[str, ColumnRange]:
    """What `collect_stats` would say of the system columns."""
    first, last = (pa.scalar(int(each), TIMESTAMP) for each in (times.min(), times.max()))
    return {
        STREAMLET: ColumnRange(streamlet, streamlet, 0),
        OFFSET: ColumnRange(offsets.start, offsets.stop - 1, 0),
        INGEST_TIME: ColumnRange(as_python(first), as_python(last), 0),
    }


def add_system(batch: pa.RecordBatch, streamlet: int, offsets: Micros, ingest: Micros) -> pa.RecordBatch:
    """`batch` with its rows' streamlet, offsets and ingest times."""
    columns = [
        pa.array(np.full(batch.num_rows, streamlet, np.int32)),
        pa.array(offsets),
        pa.array(ingest).view(TIMESTAMP),
    ]
    schema = pa.schema([*batch.schema, *SYSTEM_FIELDS])
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)
