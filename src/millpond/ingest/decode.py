"""Every form an append may have, as checked rows or as one Arrow batch: all of it fits the schema, or none is kept.

A few Python rows stay rows (they are encoded and become Arrow later, many at a time); more of them, and everything
that comes in columns, becomes a batch of the stream's schema at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.ingest.arrow import to_batch
from millpond.ingest.bounds import APPEND_BYTES_MAX, check_bytes, check_rows, plain_bytes
from millpond.model import misfit
from millpond.model.misfit import Place, row_place
from millpond.model.rows import Row, RowCodec

# Up to here encoding rows is quicker than an Arrow batch, which costs about as much as this many rows before its first.
ROWS_ENCODED_MAX = 32
# Rows become columns in steps, so that the bound on bytes is met before all of the memory is taken.
_STEP_ROWS = 10_000

FORMS = "a dict, a list of dicts, a pyarrow RecordBatch or Table, or a pandas DataFrame"


def decode(codec: RowCodec, rows: Any, bytes_max: int = APPEND_BYTES_MAX) -> list[Row] | pa.RecordBatch:
    """Checked rows or a batch of the codec's schema; `InvalidRecord` or `TooLarge` if it is neither."""
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return to_batch(codec.schema, rows, bytes_max=bytes_max)
    if isinstance(rows, list | tuple):
        return decode_rows(codec, rows, bytes_max)
    if isinstance(rows, Mapping):
        return [codec.validate_one(rows)]
    # A frame exists only if someone has imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        from millpond.ingest.frames import frame_to_batch

        return frame_to_batch(codec.schema, rows, bytes_max)
    raise InvalidRecord(f"cannot append a {type(rows).__name__}: {misfit.shown(rows)}", hint=f"append {FORMS}")


def decode_rows(
    codec: RowCodec, rows: list[Any] | tuple[Any, ...], bytes_max: int = APPEND_BYTES_MAX, place: Place = row_place
) -> list[Row] | pa.RecordBatch:
    """As `decode`, for a list of dicts."""
    check_rows(len(rows))
    if len(rows) <= ROWS_ENCODED_MAX:
        return codec.validate(rows, place)
    return checked_to_batch(codec, codec.validate(rows, place), bytes_max, place)


def checked_to_batch(
    codec: RowCodec, rows: list[Row], bytes_max: int = APPEND_BYTES_MAX, place: Place = row_place
) -> pa.RecordBatch:
    """Checked rows as one batch, within the bound on bytes."""
    columns = enumerate(codec.schema)
    check_bytes(sum(plain_bytes((row[at] for row in rows), field.type) for at, field in columns), bytes_max)
    batches, size = [], 0
    for start in range(0, max(len(rows), 1), _STEP_ROWS):
        batch = codec.to_batch(rows[start : start + _STEP_ROWS], place=_from(start, place))
        size += batch.nbytes
        check_bytes(size, bytes_max)
        batches.append(batch)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _from(start: int, place: Place) -> Place:
    return lambda index: place(start + index)
