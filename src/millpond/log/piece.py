"""A piece: rows of one streamlet as they came, of one append or of several small ones, and how they become Arrow.

A piece has its rows in memory (an Arrow batch, plain or as the journal has it, or encoded rows), or only a place in the
journal, from which they are read in place. Pieces never change, but for letting go of their memory once they have a
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import Damaged, OffsetGone
from millpond.model.definition import StreamDefinition
from millpond.model.rows import RowCodec
from millpond.model.schema import INGEST_TIME, TIMESTAMP

Micros = npt.NDArray[np.int64]

ARROW, ROWS, COPIED = "arrow", "rows", "copied"
# Pieces smaller than this are joined before they are looked at: a batch costs as much as some thousand rows.
ROWS_ALONE = 2_048
# Joined pieces stay small enough to be handed on as one batch.
ROWS_JOINED = 65_536


class PlaceFile(Protocol):
    """A file of the journal, as far as reading from it goes. Any thread."""

    @property
    def number(self) -> int: ...

    def view(self, start: int, length: int, crc: int) -> memoryview:
        """Bytes of the file, mapped and checked."""
        ...


class Place(NamedTuple):
    """Where the journal keeps a piece."""

    file: PlaceFile
    at: int
    length: int
    crc: int
    kind: str

    def view(self) -> memoryview:
        """The piece's bytes, mapped and checked. Any thread."""
        return self.file.view(self.at, self.length, self.crc)


class Codecs(Protocol):
    """The row codec of each schema version of a stream."""

    def __call__(self, version: int) -> RowCodec: ...


class Piece:
    """Rows `base` to `base + rows` of a streamlet. `encoded`: rows that are not Arrow yet, as one blob per append.
    `ingest` is one time for all, or one per row; of a copied piece that is read from its place, only the first and the
    last time."""

    __slots__ = ("base", "batch", "bytes", "encoded", "ingest", "payload", "place", "rows", "version")

    def __init__(
        self,
        base: int,
        rows: int,
        count_bytes: int,
        ingest: int | Micros,
        version: int,
        *,
        batch: pa.RecordBatch | None = None,
        payload: bytes | memoryview | None = None,
        encoded: Sequence[bytes] | None = None,
        place: Place | None = None,
    ) -> None:
        self.base, self.rows, self.bytes, self.ingest, self.version = base, rows, count_bytes, ingest, version
        self.batch, self.payload, self.encoded, self.place = batch, payload, encoded, place

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def in_memory(self) -> bool:
        return self.batch is not None or self.payload is not None or self.encoded is not None

    def without_memory(self) -> Piece:
        """The same piece, read from its place."""
        assert self.place is not None
        return Piece(self.base, self.rows, self.bytes, self.ingest, self.version, place=self.place)


class Chunk(NamedTuple):
    """Consecutive rows as Arrow, in the stream's newest schema, without system columns."""

    base: int
    batch: pa.RecordBatch
    ingest: Micros

    def slice(self, start: int, stop: int) -> Chunk:
        """The rows of this chunk that lie in offsets `start` to `stop`; none where they do not meet."""
        low = min(max(start - self.base, 0), self.batch.num_rows)
        high = max(min(stop - self.base, self.batch.num_rows), low)
        if low == 0 and high == self.batch.num_rows:
            return self
        return Chunk(self.base + low, self.batch.slice(low, high - low), self.ingest[low:high])


def upgrade(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with nulls for the columns that were added after it was written. It may also have more than `schema`:
    whoever reads while the stream is altered goes on with the columns that it began with."""
    if batch.num_columns == len(schema):
        return batch
    if batch.num_columns > len(schema):
        return batch.select(schema.names)
    added = [pa.nulls(batch.num_rows, field.type) for field in list(schema)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)


def _load(piece: Piece, definition: StreamDefinition) -> Chunk:
    """One piece that is not encoded rows, as Arrow."""
    ingest = piece.ingest
    if piece.batch is not None:
        batch = piece.batch
    elif piece.payload is None and piece.place is not None and piece.place.kind == COPIED:
        batch, ingest = _read_copied(piece, definition)
    else:
        data = piece.payload if piece.payload is not None else _view(piece)
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), definition.schemas[piece.version])
    if batch.num_rows != piece.rows:
        raise Damaged(f"a piece of {piece.rows} rows at offset {piece.base} has {batch.num_rows}", hint="")
    return Chunk(piece.base, upgrade(batch, definition.schema), times_of(ingest, piece.rows))


def _read_copied(piece: Piece, definition: StreamDefinition) -> tuple[pa.RecordBatch, Micros]:
    schema = definition.schemas[piece.version]
    stored = schema.append(pa.field(INGEST_TIME, TIMESTAMP))
    whole = pa.ipc.read_record_batch(pa.py_buffer(_view(piece)), stored)
    return whole.select(schema.names), np.asarray(whole.column(len(schema)).cast(pa.int64()))


def copied_times(piece: Piece, definition: StreamDefinition) -> Micros:
    """The first and the last ingest time of a copied piece: its frame names only one."""
    _, ingest = _read_copied(piece, definition)
    return np.array([ingest.min(), ingest.max()], np.int64)


def _view(piece: Piece) -> memoryview:
    assert piece.place is not None
    try:
        return piece.place.view()
    except FileNotFoundError:
        raise OffsetGone(
            f"offsets [{piece.base}, {piece.end}) were released while they were read", hint="read again"
        ) from None


def times_of(ingest: int | Micros, rows: int) -> Micros:
    """One ingest time per row."""
    return np.full(rows, ingest, np.int64) if isinstance(ingest, int) else ingest


def _is_rows(piece: Piece) -> bool:
    if piece.batch is not None or piece.payload is not None:
        return False
    return piece.encoded is not None or (piece.place is not None and piece.place.kind == ROWS)


def _decode_rows(run: Sequence[Piece], definition: StreamDefinition, codecs: Codecs) -> Chunk:
    """Consecutive pieces of encoded rows of one schema version, decoded at once."""
    blobs = [blob for p in run for blob in (p.encoded if p.encoded is not None else (bytes(_view(p)),))]
    batch = codecs(run[0].version).decode(blobs)
    rows = sum(p.rows for p in run)
    if batch.num_rows != rows:
        raise Damaged(f"{rows} encoded rows at offset {run[0].base} decode to {batch.num_rows}", hint="")
    ingest = np.concatenate([times_of(p.ingest, p.rows) for p in run])
    return Chunk(run[0].base, upgrade(batch, definition.schema), ingest)


def join(chunks: Sequence[Chunk]) -> Chunk:
    """Consecutive chunks made one."""
    if len(chunks) == 1:
        return chunks[0]
    batch = pa.concat_batches([c.batch for c in chunks])
    return Chunk(chunks[0].base, batch, np.concatenate([c.ingest for c in chunks]))


def load(pieces: Sequence[Piece], definition: StreamDefinition, codecs: Codecs) -> Iterator[Chunk]:
    """Consecutive pieces as Arrow: large ones as they are, small ones joined."""
    small: list[Chunk] = []
    small_rows = 0
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if _is_rows(piece):
            end, rows = at, 0
            while end < len(pieces) and rows < ROWS_JOINED and _is_rows(pieces[end]):
                if pieces[end].version != piece.version:
                    break
                rows += pieces[end].rows
                end += 1
            chunk = _decode_rows(pieces[at:end], definition, codecs)
            at = end
        else:
            chunk = _load(piece, definition)
            at += 1
        if chunk.batch.num_rows >= ROWS_ALONE or small_rows + chunk.batch.num_rows > ROWS_JOINED:
            if small:
                yield join(small)
            small, small_rows = [], 0
        if chunk.batch.num_rows >= ROWS_ALONE:
            yield chunk
        else:
            small.append(chunk)
            small_rows += chunk.batch.num_rows
    if small:
        yield join(small)
