"""pandas data frames as Arrow: the index is ignored, missing is null.

pandas says "missing" with NaN, so NaN in a cell becomes null, as `pyarrow.Table.from_pandas` has it; whoever means NaN
appends Arrow or dicts. Inside a list or a struct it stays. For the same reason whole floats stand for integers here: a
missing value made them floats. Values are copied, because a frame can change after it was acknowledged and Arrow would
share its memory.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.ingest.arrow import to_batch
from millpond.ingest.bounds import APPEND_BYTES_MAX, check_rows
from millpond.ingest.castable import why_not
from millpond.model import misfit
from millpond.model.rows import codec_of


def frame_to_batch(schema: pa.Schema, frame: pd.DataFrame, bytes_max: int = APPEND_BYTES_MAX) -> pa.RecordBatch:
    """The rows of a frame as one batch of `schema`; `InvalidRecord` or `TooLarge` if they are not."""
    check_rows(len(frame))
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str) or schema.get_field_index(name) < 0:
            raise misfit.unknown_column(misfit.row_place(0), name, schema.names)
    if len(set(names)) != len(names):
        raise InvalidRecord(f"columns {names} name one twice", hint="name each column once")
    if not names:
        # A table without columns has no rows; a frame can.
        names = [field.name for field in schema if field.nullable][:1]
        frame = pd.DataFrame(dict.fromkeys(names), index=range(len(frame)))
    table = pa.Table.from_arrays([_column(schema.field(name), frame[name]) for name in names], names=names)
    return to_batch(schema, table, whole_floats=True, bytes_max=bytes_max)


def _column(field: pa.Field, series: pd.Series[Any]) -> pa.Array | pa.ChunkedArray:
    if series.isna().all():
        # Without a value, the type of a column is a guess of pandas.
        return pa.nulls(len(series))
    if series.dtype == object and pa.types.is_nested(field.type):
        # What stands inside a value is not the frame's: a NaN there is one.
        return _from_objects(field, series, None)
    try:
        found = pa.array(series.copy(), from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Objects of several kinds, or of none that Arrow knows.
        return _from_objects(field, series, error)
    if series.dtype == object and why_not(found.type, field.type, whole_floats=True):
        return _from_objects(field, series, None)
    return found


def _from_objects(field: pa.Field, series: pd.Series[Any], error: Exception | None) -> pa.Array:
    """Objects are read one by one, by the same rules as the values of a dict."""
    if series.dtype != object:
        raise InvalidRecord(
            f"column {field.name!r}: {series.dtype} is not taken for {field.type}: {error}",
            hint=f"cast it to {field.type} before appending",
        )
    nullable = pa.field(field.name, field.type)
    codec = codec_of(pa.schema([nullable]))
    rows = codec.validate([{field.name: None if _missing(value) else value} for value in series])
    return codec.to_batch(rows).column(0)


def _missing(value: Any) -> bool:
    return value is pd.NaT or value is pd.NA or (isinstance(value, float) and value != value)
