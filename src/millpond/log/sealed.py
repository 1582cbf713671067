"""The sealed form of a segment's rows: its batches as they came, ingest times as runs, and a key index per key.

Batches are not joined at once: copying them would cost as much as the append did, and a scan takes them as they are
(small appends have been joined before). Once appends pause, they are packed into one, for the sake of memory: what came
with appends lies between what has been freed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.log.keyindex import KeyIndex, Rows
from millpond.log.piece import Chunk, Micros, upgrade
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import hash_column
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, SYSTEM_FIELDS, TIMESTAMP
from millpond.model.stats import ColumnRange, as_python

# Packed rows are freed by other threads than packed them. Arrow's default pool is quicker but keeps such memory for
# itself; the system's allocator gives it back.
LONG_LIVED = pa.system_memory_pool()


@dataclass(frozen=True, slots=True)
class Sealed:
    """Rows from offset `base` on. `times[i]` is the ingest time from row `starts[i]` on."""

    base: int
    batches: tuple[pa.RecordBatch, ...]
    starts: Micros
    times: Micros
    keys: dict[str, KeyIndex]

    @classmethod
    def of(cls, chunks: Sequence[Chunk], keys: Sequence[str]) -> Sealed:
        """Consecutive chunks, kept as they are."""
        batches = tuple(c.batch for c in chunks)
        times = np.concatenate([c.ingest for c in chunks])
        starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
        index = {key: KeyIndex.build(hash_column(pa.chunked_array([b.column(key) for b in batches]))) for key in keys}
        return cls(chunks[0].base, batches, starts, times[starts], index)

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def chunks(self, definition: StreamDefinition) -> Iterator[Chunk]:
        """All rows, in the stream's newest schema."""
        ingest = np.repeat(self.times, np.diff(np.append(self.starts, self.rows)))
        row = 0
        for batch in self.batches:
            following = row + batch.num_rows
            yield Chunk(self.base + row, upgrade(batch, definition.schema), ingest[row:following])
            row = following

    def packed(self) -> Sealed:
        """The same rows in one batch that is easily given back."""
        return replace(self, batches=(pa.concat_batches(self.batches, memory_pool=LONG_LIVED),))

    def table(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, in the schema that they were sealed in."""
        return pa.Table.from_batches(self.batches).select(columns)

    def numbers(self) -> pa.Table:
        """The columns that are not text or bytes."""
        schema, kinds = self.batches[0].schema, (pa.types.is_string, pa.types.is_binary)
        return self.table([f.name for f in schema if not any(kind(f.type) for kind in kinds)])

    def take(self, rows: Rows, definition: StreamDefinition, streamlet: int) -> pa.RecordBatch:
        """Some rows, in the order given, with system columns."""
        runs = np.searchsorted(self.starts, rows.astype(np.int64), "right") - 1
        batch = upgrade(self._take(rows), definition.schema)
        return add_system(batch, streamlet, rows.astype(np.int64) + self.base, self.times[runs])

    def _take(self, rows: Rows) -> pa.RecordBatch:
        ends = np.cumsum([batch.num_rows for batch in self.batches])
        which = np.searchsorted(ends, rows, "right")
        # Batch by batch, in runs of rows that lie in one: Arrow would join all batches before it takes a few rows.
        starts = np.flatnonzero(np.append(True, which[1:] != which[:-1]))
        found = []
        for run in np.split(np.arange(len(rows)), starts[1:]):
            batch = self.batches[which[run[0]]]
            within = rows[run].astype(np.int64) - (ends[which[run[0]]] - batch.num_rows)
            found.append(batch.take(pa.array(within)))
        return found[0] if len(found) == 1 else pa.concat_batches(found)

    @property
    def nbytes(self) -> int:
        index = sum(key.nbytes for key in self.keys.values())
        # Ten times as quick as `nbytes`; batches share no buffers with anybody.
        rows: int = sum(b.get_total_buffer_size() for b in self.batches)
        return rows + self.starts.nbytes + self.times.nbytes + index


def _column(kind: pa.DataType, numbers: npt.NDArray[np.int32] | Micros) -> pa.Array:
    """Numbers as a column, as they lie in memory. Few steps: whoever follows a stream pays them for every batch."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


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
    # One after the other: to take the user's columns into Python for a new batch takes twice as long.
    for field, numbers in zip(
        SYSTEM_FIELDS, (np.full(batch.num_rows, streamlet, np.int32), offsets, ingest), strict=True
    ):
        batch = batch.append_column(field, _column(field.type, numbers))
    return batch
