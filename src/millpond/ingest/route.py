"""Rows to streamlets: by the hash of the primary key, or, without keys, whole appends in turn.

Streamlets are equal ranges of the key's hash (K2), so the streamlet of a key follows from the key alone and `get` goes
to one place. Rows keep their order within a streamlet. Columns are moved once: one stable sort of the streamlet
numbers, one `take`, and each streamlet's rows are then a slice of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.log.engine import EncodedRows, Part
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import hash_column, streamlet_of, streamlets_of
from millpond.model.rows import Row, RowCodec, join_rows

# Single rows that are appended at the same moment share a part up to this size.
PART_BYTES = 1_000_000


def route_batch(definition: StreamDefinition, batch: pa.RecordBatch, turn: Iterator[int]) -> list[Part]:
    """The parts of a batch, by streamlet. `turn` counts the appends of a stream without keys."""
    rows, streamlets = batch.num_rows, definition.streamlets
    if rows == 0:
        return []
    if streamlets == 1:
        return [Part(0, rows, batch=batch)]
    if not definition.keys:
        return [Part(next(turn) % streamlets, rows, batch=batch)]
    # 16 bits hold every streamlet and make numpy sort by radix.
    numbers = streamlets_of(hash_column(batch.column(definition.keys[0])), streamlets).astype(np.uint16)
    counts = np.bincount(numbers, minlength=streamlets)
    if int(counts[numbers[0]]) == rows:
        return [Part(int(numbers[0]), rows, batch=batch)]
    batch = batch.take(pa.array(np.argsort(numbers, kind="stable")))
    stops = np.cumsum(counts)
    parts = []
    for streamlet in np.flatnonzero(counts).tolist():
        stop, count = int(stops[streamlet]), int(counts[streamlet])
        start = stop - count
        parts.append(Part(streamlet, count, batch=batch.slice(start, count)))
    return parts


def route_rows(definition: StreamDefinition, codec: RowCodec, rows: Sequence[Row], turn: Iterator[int]) -> list[Part]:
    """The parts of a few checked rows, encoded."""
    streamlets = definition.streamlets
    if streamlets == 1 or not definition.keys:
        if not rows:
            return []
        streamlet = next(turn) % streamlets if streamlets > 1 else 0
        return [Part(streamlet, len(rows), encoded=codec.encode(rows))]
    key = codec.column(definition.keys[0])
    found: dict[int, list[Row]] = {}
    try:
        if len(rows) == 1:
            return [Part(streamlet_of(rows[0][key], streamlets), 1, encoded=codec.encode(rows))]
        for row in rows:
            found.setdefault(streamlet_of(row[key], streamlets), []).append(row)
        return [Part(number, len(some), encoded=codec.encode(some)) for number, some in sorted(found.items())]
    except (UnicodeEncodeError, InvalidRecord):
        # All together, so that the error counts rows as the caller does.
        codec.encode(rows)
        raise


def route_each(definition: StreamDefinition, codec: RowCodec, rows: Sequence[Row], turn: Iterator[int]) -> EncodedRows:
    """Some checked rows that were appended one by one, together: a part for each streamlet, or more of large rows."""
    streamlets, encode = definition.streamlets, codec.encode_one
    key = codec.column(definition.keys[0]) if streamlets > 1 and definition.keys else None
    blobs: list[list[bytes]] = []
    numbers: list[int] = []
    filling: dict[int, tuple[int, int]] = {}  # of each streamlet the part that is being filled, and its bytes
    places: list[tuple[int, int] | Exception | None] = []
    for row in rows:
        number = streamlet_of(row[key], streamlets) if key is not None else next(turn) % streamlets
        blob = encode(row)
        part, size = filling.get(number, (0, PART_BYTES))
        if size >= PART_BYTES:
            part, size = len(blobs), 0
            blobs.append([])
            numbers.append(number)
        filling[number] = (part, size + len(blob))
        places.append((part, len(blobs[part])))
        blobs[part].append(blob)
    parts = [Part(number, len(some), None, join_rows(some)) for number, some in zip(numbers, blobs, strict=True)]
    return EncodedRows(parts, places)
