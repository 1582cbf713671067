"""Schemas: which Arrow types a stream may hold, the columns Millpond adds, and how a schema may change.

The types are those that survive the whole way unchanged: journal, memory, Parquet, Delta, Spark. A type that would be
altered on the way is refused at creation, with the type to use instead.
"""

from __future__ import annotations

import base64

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
    pa.types.is_decimal128,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
)
_INSTEAD = {
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "decimal128(20, 0)",
    "halffloat": "float32",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "date64[ms]": "date32",
}


def check_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` without metadata if a stream may have it; `InvalidSchema` naming the column otherwise."""
    if not isinstance(schema, pa.Schema):
        raise InvalidSchema(f"a schema must be a pyarrow.Schema, got {type(schema).__name__}", hint="pa.schema([...])")
    if not 1 <= len(schema) <= COLUMNS_MAX:
        raise InvalidSchema(f"a schema has 1 to {COLUMNS_MAX} columns, this one {len(schema)}", hint="split the stream")
    seen: dict[str, str] = {}
    for field in schema:
        _check_column_name(field.name, seen)
        _check_type(field.name, field.type, 1)
    _check_base64_names(list(schema))
    return pa.schema([pa.field(f.name, f.type, f.nullable) for f in schema])


def _check_column_name(name: str, seen: dict[str, str]) -> None:
    if not name or name.startswith("_") or len(name) > 200 or any(ord(c) < 32 or c in ' ,;{}()\n\t=.`"' for c in name):
        raise InvalidSchema(
            f"column name {name!r} is not allowed",
            hint="1 to 200 characters, not starting with '_', without blanks, control characters or any of ,;{}()=.`\"",
        )
    if name.lower() in seen:
        raise InvalidSchema(
            f"columns {seen[name.lower()]!r} and {name!r} differ only in case",
            hint="Spark SQL ignores case: rename one",
        )
    seen[name.lower()] = name


def carries_bytes(kind: pa.DataType) -> bool:
    """Whether a value holds binary values that have no name of their own, as those in a struct would."""
    if pa.types.is_list(kind):
        return carries_bytes(kind.value_type)
    if pa.types.is_map(kind):
        return carries_bytes(kind.key_type) or carries_bytes(kind.item_type)
    return bool(pa.types.is_binary(kind))


def _check_base64_names(fields: list[pa.Field]) -> None:
    names = {field.name.lower(): field.name for field in fields}
    for field in fields:
        taken = names.get(field.name.lower() + BASE64_SUFFIX)
        if taken is not None and carries_bytes(field.type):
            raise InvalidSchema(
                f"column name {taken!r} is taken: in JSON, bytes of {field.name!r} that are not text stand under it",
                hint="rename one of the two",
            )


def _check_type(column: str, kind: pa.DataType, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"column {column!r} nests deeper than {DEPTH_MAX}", hint="flatten it")
    if any(test(kind) for test in _SUPPORTED) or kind == TIMESTAMP:
        return
    if pa.types.is_list(kind):
        _check_type(column, kind.value_type, depth + 1)
    elif pa.types.is_map(kind):
        _check_type(column, kind.key_type, depth + 1)
        _check_type(column, kind.item_type, depth + 1)
    elif pa.types.is_struct(kind):
        if kind.num_fields == 0:
            raise InvalidSchema(f"column {column!r} is a struct without fields", hint="give it a field or drop it")
        seen: dict[str, str] = {}
        for index in range(kind.num_fields):
            inner = kind.field(index)
            _check_column_name(inner.name, seen)
            _check_type(f"{column}.{inner.name}", inner.type, depth + 1)
        _check_base64_names([kind.field(index) for index in range(kind.num_fields)])
    else:
        instead = _INSTEAD.get(str(kind), "timestamp('us', tz='UTC')" if pa.types.is_timestamp(kind) else "")
        hint = f"use {instead}" if instead else "supported types are listed in docs/types.md"
        raise InvalidSchema(f"column {column!r} has type {kind}, which streams do not support", hint=hint)


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
