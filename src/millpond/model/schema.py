"""Schemas: which Arrow types a stream may hold, the columns Millpond adds, and how a schema may change.

The types are those that survive the whole way unchanged: journal, memory, Parquet, Delta, Spark. A type that would be
altered on the way is refused at creation, with the type to use instead.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import pyarrow as pa

from millpond.errors import InvalidSchema

TIMESTAMP = pa.timestamp("us", tz="UTC")

STREAMLET = "_streamlet"
OFFSET = "_offset"
INGEST_TIME = "_ingest_time"
SYSTEM_FIELDS = (
    pa.field(STREAMLET, pa.int32(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(INGEST_TIME, TIMESTAMP, nullable=False),
)
SYSTEM_COLUMNS = tuple(field.name for field in SYSTEM_FIELDS)

# In JSON, bytes that are not UTF-8 text stand under their column's name with this behind it.
BASE64_SUFFIX = "_base64"

RAW_EVENTS = pa.schema(
    [pa.field("time", TIMESTAMP), pa.field("headers", pa.map_(pa.string(), pa.string())), pa.field("body", pa.binary())]
)

# More columns than any sane record has; bounds the work a single append can ask for.
COLUMNS_MAX = 1_000
# How deep lists, structs and maps may nest: Spark and Delta both recurse over the type.
DEPTH_MAX = 16

_SUPPORTED = (
    pa.types.is_int8,
    pa.types.is_int16,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
)
# What to use in place of a type that is not supported.
_INSTEAD: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_uint8, "int16"),
    (pa.types.is_uint16, "int32"),
    (pa.types.is_uint32, "int64"),
    (pa.types.is_uint64, "decimal128(20, 0)"),
    (pa.types.is_float16, "float32"),
    (pa.types.is_decimal, "decimal128 with 1 to 38 digits, 0 to all of them after the point"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date64, "date32"),
    (pa.types.is_timestamp, "timestamp('us', tz='UTC')"),
    (pa.types.is_time, "int64, or text"),
    (pa.types.is_duration, "int64"),
    (pa.types.is_large_list, "list"),
    (pa.types.is_fixed_size_list, "list"),
    (pa.types.is_dictionary, "the type of its values: settled objects use dictionaries by themselves"),
    (pa.types.is_null, "the type that its values will have"),
)


def check_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` without metadata if a stream may have it; `InvalidSchema` naming the column otherwise."""
    if not isinstance(schema, pa.Schema):
        raise InvalidSchema(
            f"a schema must be a pyarrow.Schema, got {type(schema).__name__}",
            hint='pa.schema([...]), or text: "vid string, temp double"',
        )
    if not 1 <= len(schema) <= COLUMNS_MAX:
        raise InvalidSchema(f"a schema has 1 to {COLUMNS_MAX} columns, this one {len(schema)}", hint="split the stream")
    fields = list(schema)
    _check_names(fields)
    checked = [pa.field(field.name, _checked_type(field.name, field.type, 1), field.nullable) for field in fields]
    count = count_columns(checked)
    if count > COLUMNS_MAX:
        raise InvalidSchema(
            f"a schema has at most {COLUMNS_MAX} columns, the fields of structs among them, this one {count}",
            hint="split the stream",
        )
    return pa.schema(checked)


_NAME_RULE = "1 to 200 characters, not starting with '_', without blanks, control characters or any of ,;{}()=.`\""


def _check_names(fields: list[pa.Field]) -> None:
    """The names of columns, or of a struct's fields."""
    seen: dict[str, str] = {}
    for name in (field.name for field in fields):
        if not name or name.startswith("_") or len(name) > 200 or any(_unfit(letter) for letter in name):
            raise InvalidSchema(f"column name {name[:200]!r} is not allowed", hint=_NAME_RULE)
        other = seen.get(name.lower())
        if other == name:
            raise InvalidSchema(f"two columns are called {name!r}", hint="rename one")
        if other is not None:
            raise InvalidSchema(
                f"columns {other!r} and {name!r} differ only in case", hint="Spark SQL ignores case: rename one"
            )
        seen[name.lower()] = name
    for field in fields:
        taken = seen.get(field.name.lower() + BASE64_SUFFIX)
        if taken is not None and carries_bytes(field.type):
            raise InvalidSchema(
                f"column name {taken!r} is taken: in JSON, bytes of {field.name!r} that are not text stand under it",
                hint="rename one of the two",
            )


def _unfit(letter: str) -> bool:
    """What breaks a column's name in SQL, in Parquet or on a screen."""
    return not letter.isprintable() or letter in ' ,;{}()=.`"'


def carries_bytes(kind: pa.DataType) -> bool:
    """Whether a value holds binary values that have no name of their own, as those in a struct would."""
    if pa.types.is_list(kind):
        return carries_bytes(kind.value_type)
    if pa.types.is_map(kind):
        return carries_bytes(kind.key_type) or carries_bytes(kind.item_type)
    return bool(pa.types.is_binary(kind))


def _checked_type(column: str, kind: pa.DataType, depth: int) -> pa.DataType:
    """`kind` as Millpond writes it (inner names and annotations are the producer's and would come and go)."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"column {column!r} nests deeper than {DEPTH_MAX}", hint="flatten it")
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _checked_type(column, kind.value_type, depth + 1), kind.value_field.nullable))
    if pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):
            raise InvalidSchema(
                f"column {column!r} has map keys of type {kind.key_type}", hint="a key is a plain value"
            )
        key = _checked_type(column, kind.key_type, depth + 1)
        item = _checked_type(column, kind.item_type, depth + 1)
        return pa.map_(key, pa.field("value", item, kind.item_field.nullable))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        if not fields:
            raise InvalidSchema(f"column {column!r} is a struct without fields", hint="give it a field or drop it")
        _check_names(fields)
        inner = [(field, _checked_type(f"{column}.{field.name}", field.type, depth + 1)) for field in fields]
        return pa.struct([pa.field(field.name, checked, field.nullable) for field, checked in inner])
    if any(test(kind) for test in _SUPPORTED) or kind == TIMESTAMP or _is_spark_decimal(kind):
        return kind
    instead = next(
        (f"use {name}" for test, name in _INSTEAD if test(kind)), "supported types are listed in docs/types.md"
    )
    raise InvalidSchema(f"column {column!r} has type {kind}, which streams do not support", hint=instead)


def _is_spark_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind)) and 0 <= kind.scale <= kind.precision


def count_columns(fields: Iterable[pa.Field]) -> int:
    """How many columns there are, the fields of structs among them."""
    return sum(_count_fields(field.type) for field in fields)


def _count_fields(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_count_fields(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _count_fields(kind.value_type)
    return _count_fields(kind.item_type) if pa.types.is_map(kind) else 1


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of settled objects and of what readers see: the user's, then the system's."""
    return pa.schema([*schema, *SYSTEM_FIELDS])


def check_alteration(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """`new` if it is `old` with nullable columns added at the end; `InvalidSchema` with the reason otherwise."""
    new = check_schema(new)
    for index, field in enumerate(old):
        if new.get_field_index(field.name) < 0:
            reason = f"column {field.name!r} is missing"
        elif new.field(field.name).type != field.type:
            reason = f"column {field.name!r} would change from {field.type} to {new.field(field.name).type}"
        elif new.field(field.name).nullable != field.nullable:
            reason = f"column {field.name!r} would change whether it may be null"
        elif new.get_field_index(field.name) != index:
            reason = f"column {field.name!r} would move"
        else:
            continue
        raise InvalidSchema(f"a schema can only grow: {reason}", hint="create a new stream for another shape")
    for field in list(new)[len(old) :]:
        if not field.nullable:
            raise InvalidSchema(
                f"added column {field.name!r} is not nullable, but the records that are there have no value for it",
                hint="make it nullable",
            )
    return new


def encode_schema(schema: pa.Schema) -> str:
    """A schema as text, for the catalog."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """The schema that `encode_schema` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
