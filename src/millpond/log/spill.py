"""Spilled segments: Arrow IPC files with the same structure as in memory, mapped back when they are read.

    spill/<stream>/g00001-s003-000000123456.arrow      generation, streamlet, first offset

The file holds one record batch: the columns of the stream's schema at the time, and `_ingest_time`. It is not synced
and not read at open: the journal still has every record of it. Its checksum is kept in memory and checked at each
read, so that a damaged file is never served.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from millpond.errors import Damaged, OffsetGone
from millpond.log.piece import Chunk, upgrade
from millpond.model.definition import StreamDefinition
from millpond.model.schema import INGEST_TIME, TIMESTAMP
from millpond.storage import Storage


def spill_name(generation: int, streamlet: int, base: int) -> str:
    """`g00001-s003-000000123456.arrow`"""
    return f"g{generation:05d}-s{streamlet:03d}-{base:012d}.arrow"


@dataclass(frozen=True, slots=True)
class SpillFile:
    """Where a spilled segment's rows are."""

    storage: Storage
    path: str
    base: int
    bytes: int
    crc: int

    @classmethod
    def write(cls, storage: Storage, directory: str, name: str, chunk: Chunk) -> SpillFile:
        """Write a segment's rows; the name is free or holds a leftover of an earlier process."""
        schema = chunk.batch.schema.append(pa.field(INGEST_TIME, TIMESTAMP))
        times = pa.array(chunk.ingest).view(TIMESTAMP)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([*chunk.batch.columns, times], schema=schema))
        data = memoryview(sink.getvalue())
        path = os.path.join(directory, name)
        if storage.exists(path):
            storage.remove(path)
        try:
            storage.put(path, data, sync=False)
        except OSError:
            with contextlib.suppress(OSError):  # half a file is of no use, and takes room on a disk that may be full
                storage.remove(path)
            raise
        return cls(storage, path, chunk.base, len(data), isal_zlib.crc32(data))

    def chunks(self, definition: StreamDefinition) -> Iterator[Chunk]:
        """The rows, mapped in place, in the stream's newest schema."""
        yield self._chunk(definition)

    def _chunk(self, definition: StreamDefinition) -> Chunk:
        try:
            data = memoryview(self.storage.map(self.path))
        except FileNotFoundError:
            raise OffsetGone(f"{self.path} was released while it was read", hint="read again") from None
        if isal_zlib.crc32(data) != self.crc:
            raise Damaged(
                f"{self.path} is damaged",
                hint="close and reopen the pond: the journal has these records, and the file is made anew",
            )
        batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
        times = np.asarray(batch.column(batch.num_columns - 1).cast(pa.int64()))
        plain = batch.select(batch.schema.names[:-1])
        return Chunk(self.base, upgrade(plain, definition.schema), times)

    def remove(self) -> None:
        """Let go of the file; readers that have it mapped go on."""
        self.storage.remove(self.path)
