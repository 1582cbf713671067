"""Arrow data from outside as one batch of a stream's schema: columns by name, cast safely, every value checked.

Nothing is trusted: each column is validated in full before anything looks at its values (a bad offset would crash the
process otherwise), its decoded size is bounded before it is decoded, and the rules Arrow does not hold (nulls in
columns that may not have them, times that Python and Spark cannot represent) are checked afterwards. Only when
something does not fit is the first such row looked for, by bisection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidRecord
from millpond.ingest.bounds import APPEND_BYTES_MAX, check_bytes, check_rows, decoded_bytes, map_entries
from millpond.ingest.castable import unsafe, why_not
from millpond.model import misfit
from millpond.model.misfit import Place, row_place
from millpond.model.row_types import DAYS_MAX, DAYS_MIN, MICROS_MAX, MICROS_MIN

_FLOAT32_MAX = float(np.finfo(np.float32).max)

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class _Misfit(Exception):
    """A column does not fit its field. Which row it is comes later."""


def to_batch(
    schema: pa.Schema,
    data: pa.RecordBatch | pa.Table,
    *,
    whole_floats: bool = False,
    bytes_max: int = APPEND_BYTES_MAX,
    place: Place = row_place,
) -> pa.RecordBatch:
    """`data` as one batch of `schema`; `InvalidRecord` or `TooLarge` if it is not one."""
    check_rows(data.num_rows)
    fitting = _as_it_is(schema, data, bytes_max)
    if fitting is not None:
        return fitting
    _check_names(schema, data.schema.names, place)
    _check_safe(data.schema)
    arrays, size = [], 0
    for field in schema:
        if data.schema.get_field_index(field.name) < 0:
            arrays.append(pa.nulls(data.num_rows, field.type))
            continue
        column = data.column(field.name)
        try:
            _check_type(column, field, whole_floats)
            size += decoded_bytes(column)
            check_bytes(size, bytes_max)
            arrays.append(_fit(column, field))
        except _Misfit as error:
            raise _first_misfit(column, field, whole_floats, str(error), place) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_it_is(schema: pa.Schema, data: pa.RecordBatch | pa.Table, bytes_max: int) -> pa.RecordBatch | None:
    """What has the stream's very schema, and fits it, found out in few steps: most appends are like that. None only
    means that a closer look is needed."""
    same = data.schema.equals(schema, check_metadata=True)
    if not same and not (data.schema.equals(schema) and all(map(_same_field, data.schema, schema))):
        return None
    leaves, checked = _shape(schema)
    # Columns may share buffers, which count once here and are written as often as they are used.
    if data.get_total_buffer_size() * leaves > bytes_max:
        return None
    try:
        data.validate(full=True)
        # Only what is valid is copied together.
        batches = data.combine_chunks().to_batches() if isinstance(data, pa.Table) else [data]
        if len(batches) != 1:
            return None
        for index in checked:
            field = schema.field(index)
            _check_values(batches[0].column(index), field.type, field.nullable)
    except (_Misfit, pa.ArrowException):
        return None
    if same:
        return batches[0]
    return pa.RecordBatch.from_arrays(batches[0].columns, schema=schema)


def _same_field(one: pa.Field, other: pa.Field) -> bool:
    # With metadata: it also tells apart the names and annotations of inner fields.
    return bool(one.type.equals(other.type, check_metadata=True))


@lru_cache(maxsize=1024)
def _shape(schema: pa.Schema) -> tuple[int, tuple[int, ...]]:
    """How many columns there are, inner ones included, and which have rules that Arrow does not know."""
    checked = [
        index
        for index, field in enumerate(schema)
        if not field.nullable
        or pa.types.is_nested(field.type)
        or pa.types.is_timestamp(field.type)
        or pa.types.is_date(field.type)
    ]
    return sum(_leaves(field.type) for field in schema), tuple(checked)


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_nested(kind):
        return 1 + sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _check_names(schema: pa.Schema, names: list[str], place: Place) -> None:
    for name, times in Counter(names).items():
        if schema.get_field_index(name) < 0:
            raise misfit.unknown_column(place(0), name, schema.names)
        if times > 1:
            raise InvalidRecord(f"column {name!r} is there {times} times", hint="name each column once")
    for field in schema:
        if not field.nullable and field.name not in names:
            raise misfit.missing_column(place(0), field.name)


def _check_safe(schema: pa.Schema) -> None:
    for field in schema:
        reason = unsafe(field.type)
        if reason:
            raise InvalidRecord(f"column {field.name!r}: {reason}", hint="cast it before appending")


def _check_type(column: Column, field: pa.Field, whole_floats: bool) -> None:
    reason = why_not(column.type, field.type, whole_floats=whole_floats)
    if reason:
        raise _Misfit(reason)
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowTypeError) as error:
        raise _Misfit(f"not valid Arrow data: {error}") from error


def _fit(column: Column, field: pa.Field) -> pa.Array:
    """A column that has been validated, cast to its field's type and checked against its rules."""
    # With metadata: it also tells apart the names and annotations of inner fields, which are not the stream's.
    if not column.type.equals(field.type, check_metadata=True):
        column = _cast(column, field.type)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    _check_values(column, field.type, field.nullable)
    return column


def _cast(column: Column, target: pa.DataType) -> Column:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _loses_floats(column.type, target):
        _check_float32(column, target)
    try:
        if pa.types.is_decimal(target) and pa.types.is_integer(column.type):
            column = column.cast(pa.decimal128(20, 0))
        return column.cast(target)
    except pa.ArrowException as error:
        raise _Misfit(str(error)) from error


def _loses_floats(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether somewhere inside a float64 becomes a float32: too large a one would become infinite without a word."""
    if pa.types.is_float32(target):
        return bool(pa.types.is_float64(source))
    if not pa.types.is_nested(target) or not pa.types.is_nested(source):
        return False
    names = {source.field(index).name: source.field(index) for index in range(source.num_fields)}
    if pa.types.is_struct(target):
        inner = [target.field(index) for index in range(target.num_fields)]
        return any(_loses_floats(names[field.name].type, field.type) for field in inner if field.name in names)
    if pa.types.is_map(target):
        pairs = [(source.key_type, target.key_type), (source.item_type, target.item_type)]
        return any(_loses_floats(theirs, ours) for theirs, ours in pairs)
    return _loses_floats(source.value_type, target.value_type)


def _check_float32(column: Column, target: pa.DataType) -> None:
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_float32(target):
            if pa.types.is_float64(chunk.type) and pc.any(_finite_beyond(chunk)).as_py():
                raise _Misfit("too large for a float32")
        elif pa.types.is_struct(target):
            for index, inner in enumerate(chunk.flatten()):
                _check_float32(inner, target.field(chunk.type.field(index).name).type)
        elif pa.types.is_map(target):
            keys, items = map_entries(chunk).flatten()
            _check_float32(keys, target.key_type)
            _check_float32(items, target.item_type)
        elif pa.types.is_list(target):
            _check_float32(chunk.flatten(), target.value_type)


def _finite_beyond(column: pa.Array) -> pa.Array:
    return pc.and_(pc.is_finite(column), pc.greater(pc.abs(column), _FLOAT32_MAX))


def _check_values(column: pa.Array, kind: pa.DataType, nullable: bool, null_parents: int = 0) -> None:
    """The rules that Arrow's own validation leaves out. `null_parents`: nulls that only say that the parent is null."""
    if not nullable and column.null_count > null_parents:
        raise _Misfit("a null where none may be")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        numbers = column.view(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
        values = np.asarray(numbers.drop_null() if numbers.null_count else numbers)
        low, high = (MICROS_MIN, MICROS_MAX) if pa.types.is_timestamp(kind) else (DAYS_MIN, DAYS_MAX)
        if len(values) and not low <= int(values.min()) <= int(values.max()) <= high:
            raise _Misfit("outside the years 1 to 9999")
    elif pa.types.is_list(kind):
        _check_values(column.flatten(), kind.value_type, kind.value_field.nullable)
    elif pa.types.is_map(kind):
        keys, items = map_entries(column).flatten()
        _check_values(keys, kind.key_type, False)
        _check_values(items, kind.item_type, kind.item_field.nullable)
    elif pa.types.is_struct(kind):
        for index, inner in enumerate(column.flatten()):
            field = kind.field(index)
            _check_values(inner, field.type, field.nullable, column.null_count)


def _first_misfit(column: Column, field: pa.Field, whole_floats: bool, reason: str, place: Place) -> InvalidRecord:
    """The error for the first row of a column that does not fit."""

    def problem(piece: Column) -> str:
        try:
            _check_type(piece, field, whole_floats)
            _fit(piece, field)
        except _Misfit as error:
            return str(error)
        return ""

    if not len(column) or why_not(column.type, field.type, whole_floats=whole_floats):
        row = _first_valid(column)
        if row is None:
            return InvalidRecord(f"column {field.name!r}: {reason}", hint=f"cast it to {field.type} before appending")
        return misfit.bad_value(place(row), field, _value(column, row), reason)
    row, found = first_failing(column, problem)
    value = _value(column, row)
    if value is None and not field.nullable:
        return misfit.null_value(place(row), field.name)
    return misfit.bad_value(place(row), field, value, found or reason)


def first_failing(column: Column, problem: Callable[[Column], str]) -> tuple[int, str]:
    """The first row with a problem, by bisection, and the problem: some piece of the column is known to have one."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if problem(column.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return low, problem(column.slice(low, 1))


def _first_valid(column: Column) -> int | None:
    for index in range(min(len(column), 1000)):
        if _value(column, index) is not None:
            return index
    return None


def _value(column: Column, index: int) -> Any:
    """The value of a row, to show it: text that is not valid as bytes, and what is damaged beyond that not at all."""
    piece = column.slice(index, 1)
    for kind in (None, pa.binary()):
        try:
            piece.validate(full=kind is None)
            return (piece if kind is None else piece.cast(kind, safe=False))[0].as_py()
        except Exception as error:
            # Every way to fail is open here: the data is known to be wrong.
            failure = type(error).__name__
    return f"<cannot be shown: {failure}>"
