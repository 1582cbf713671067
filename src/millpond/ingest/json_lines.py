"""Record batches as newline-delimited JSON, in the form that `json_form` describes."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.schema import BASE64_SUFFIX, carries_bytes

_encoder = msgspec.json.Encoder()

# Makes of a value from `to_pylist` what the encoder writes.
Show = Callable[[Any], Any]


def batch_to_lines(batch: pa.RecordBatch) -> bytes:
    """One line per row, every column on it, null where there is nothing."""
    names = batch.schema.names
    columns = [json_values(column, field.type) for column, field in zip(batch.columns, batch.schema, strict=True)]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    for index, field in enumerate(batch.schema):
        if carries_bytes(field.type):
            rows = [_renamed(row, names[index]) for row in rows]
    return _encoder.encode_lines(rows)


class _Coded:
    """A value that had to be written in base64."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _renamed(row: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(row[name], _Coded):
        return row
    return {
        key + BASE64_SUFFIX if key == name else key: value.value if key == name else value for key, value in row.items()
    }


def json_values(column: pa.Array, kind: pa.DataType, *, coded: bool = False) -> list[Any]:
    """A column's values as the encoder writes them. `coded`: bytes that have no name of their own are all base64."""
    if pa.types.is_timestamp(kind) and len(column):
        return _moments(column)
    values: list[Any] = column.to_pylist()
    show = _show_plainly(kind, _base64) if coded else _show(kind)
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        show = None
    return values if show is None else [None if value is None else show(value) for value in values]


def _moments(column: pa.Array) -> list[Any]:
    """Timestamps as text, all at once: Python's datetimes would take ten times as long."""
    micros = np.asarray(pc.fill_null(column.view(pa.int64()), 0)).view("M8[us]")
    moments: list[Any] = [f"{text}Z" for text in np.datetime_as_string(micros)]
    for index in np.flatnonzero(np.asarray(column.is_null())):
        moments[index] = None
    return moments


def _show(kind: pa.DataType) -> Show | None:
    """What to do with values of a type; None: nothing, the encoder writes them as they are."""
    if pa.types.is_struct(kind):
        return _show_struct([kind.field(index) for index in range(kind.num_fields)])
    if carries_bytes(kind):
        return lambda value: _show_bytes(value, kind)
    return _show_plainly(kind, bytes.decode)


def _show_plainly(kind: pa.DataType, text: Callable[[bytes], str]) -> Show | None:
    """As `_show`, with bytes written by `text`, all of them in the same way."""
    if pa.types.is_floating(kind):
        return _show_float
    if pa.types.is_binary(kind):
        return text
    if pa.types.is_timestamp(kind):
        return lambda value: value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if pa.types.is_struct(kind):
        return _show(kind)
    if pa.types.is_list(kind):
        inner = _each(_show_plainly(kind.value_type, text))
        return lambda value: [inner(item) for item in value]
    if pa.types.is_map(kind):
        key = _each(_show_plainly(kind.key_type, text))
        item = _each(_show_plainly(kind.item_type, text))
        by_name = pa.types.is_string(kind.key_type)
        return lambda value: _show_map([(key(k), item(v)) for k, v in value], by_name)
    return None


def _each(show: Show | None) -> Show:
    if show is None:
        return lambda value: value
    return lambda value: None if value is None else show(value)


def _show_map(pairs: list[tuple[Any, Any]], by_name: bool) -> Any:
    if not by_name:
        return pairs
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def _show_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _show_bytes(value: Any, kind: pa.DataType) -> Any:
    try:
        return _each(_show_plainly(kind, bytes.decode))(value)
    except UnicodeDecodeError:
        return _Coded(_each(_show_plainly(kind, _base64))(value))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _show_struct(fields: list[pa.Field]) -> Show:
    shows = [(field.name, _each(_show(field.type)), carries_bytes(field.type)) for field in fields]

    def show(value: dict[str, Any]) -> dict[str, Any]:
        found = {name: each(value[name]) for name, each, _ in shows}
        for name, _, bytes_inside in shows:
            if bytes_inside:
                found = _renamed(found, name)
        return found

    return show
