"""Schemas as text, in the style of Spark's DDL: `vid string NOT NULL, temp double, tags map<string, array<int>>`.

The names of types are a table; what encloses other types (array, map, struct) is parsed by descent. Which of the types
a stream may hold is not decided here but where the stream is created.

    columns := column ("," column)*          column := name [":"] type ["NOT" "NULL"]
    type    := NAME | ("decimal" | "dec" | "numeric") ["(" precision ["," scale] ")"]
             | "array" "<" type ">" | "map" "<" type "," type ">" | "struct" "<" columns ">"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from millpond.errors import InvalidSchema
from millpond.model.schema import TIMESTAMP

# Spark's names, then Arrow's where they differ. The first name of a type is the one it is shown by.
TYPES: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "int8": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int16": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "text": pa.string(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "timestamp": TIMESTAMP,
}
DECIMALS = ("decimal", "dec", "numeric")
# Spark's: a decimal without precision.
DECIMAL_DEFAULT = (10, 0)
GivenSchema: TypeAlias = pa.Schema | str

# Text from a stranger must not exhaust the stack; streams allow less (see model.schema).
DEPTH_MAX = 64

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]*`)|(?P<word>[^\s`<>(),:]+)|(?P<mark>[<>(),:]))")
_HINT = 'write e.g. "vid string NOT NULL, temp double, price decimal(10,2), tags array<string>"'


def parse_schema(text: str) -> pa.Schema:
    """The schema that a text describes; `InvalidSchema` naming the place otherwise."""
    parser = _Parser(text)
    fields = parser.columns(end=None)
    return pa.schema(fields)


def given_schema(schema: GivenSchema | None) -> pa.Schema | None:
    """A schema as users give one: Arrow's, or as text."""
    return parse_schema(schema) if isinstance(schema, str) else schema


def parse_type(text: str) -> pa.DataType:
    """The type that a text describes."""
    return parse_schema(f"x {text}").field(0).type


def schema_text(schema: pa.Schema) -> str:
    """The text that `parse_schema` reads as this schema."""
    return ", ".join(_column_text(field, " ") for field in schema)


def type_text(kind: pa.DataType) -> str:
    """A type as `parse_schema` reads it."""
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_column_text(kind.field(at), ': ') for at in range(kind.num_fields))}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, known in TYPES.items() if known == kind), str(kind))


def _column_text(field: pa.Field, between: str) -> str:
    name = field.name if _TOKEN.fullmatch(field.name) and field.name[0] not in "`<>(),:" else f"`{field.name}`"
    return f"{name}{between}{type_text(field.type)}{'' if field.nullable else ' NOT NULL'}"


class _Parser:
    """One pass over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._token: str | None = None
        self._next()

    def _next(self) -> None:
        self._start = self._at
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise self._wrong("an unclosed `")
            self._token = None
            return
        self._token, self._at = match[0].strip(), match.end()

    def _wrong(self, what: str) -> InvalidSchema:
        place = self._text[self._start : self._start + 20].strip() or "the end"
        return InvalidSchema(f"schema text: {what} at {place!r}", hint=_HINT)

    def _take(self, *expected: str) -> str:
        if self._token is None or (expected and self._token.lower() not in expected):
            raise self._wrong(f"expected {' or '.join(expected) or 'a name'}")
        token = self._token
        self._next()
        return token

    def _is(self, *tokens: str) -> bool:
        return self._token is not None and self._token.lower() in tokens

    def columns(self, end: str | None, depth: int = 0) -> list[pa.Field]:
        fields = [self._column(depth)]
        while self._is(","):
            self._next()
            fields.append(self._column(depth))
        if end is not None:
            self._take(end)
        elif self._token is not None:
            raise self._wrong("expected a comma or the end")
        return fields

    def _column(self, depth: int) -> pa.Field:
        if self._is("<", ">", "(", ")", ",", ":"):
            raise self._wrong("expected the name of a column")
        name = self._take().strip("`")
        if self._is(":"):
            self._next()
        kind = self._type(depth)
        nullable = True
        if self._is("not"):
            self._next()
            self._take("null")
            nullable = False
        return pa.field(name, kind, nullable)

    def _type(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise self._wrong(f"types nested deeper than {DEPTH_MAX}")
        if self._is("array"):
            self._next()
            self._take("<")
            inner = self._type(depth + 1)
            self._take(">")
            return pa.list_(inner)
        if self._is("map"):
            self._next()
            self._take("<")
            key = self._type(depth + 1)
            self._take(",")
            value = self._type(depth + 1)
            self._take(">")
            return pa.map_(key, value)
        if self._is("struct"):
            self._next()
            self._take("<")
            return pa.struct(self.columns(">", depth + 1))
        if self._is(*DECIMALS):
            self._next()
            return self._decimal()
        if self._token is None or self._token.lower() not in TYPES:
            named = ", ".join([*TYPES, "decimal(p,s)", "array<…>", "map<…,…>", "struct<…: …>"])
            raise InvalidSchema(
                f"schema text: {'a column without a type' if self._token is None else f'no type {self._token!r}'}",
                hint=f"types: {named}",
            )
        return TYPES[self._take().lower()]

    def _decimal(self) -> pa.DataType:
        precision, scale = DECIMAL_DEFAULT
        if self._is("("):
            self._next()
            precision, scale = self._number(), 0
            if self._is(","):
                self._next()
                scale = self._number()
            self._take(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise InvalidSchema(f"decimal({precision},{scale})", hint="precision 1 to 38, scale 0 to the precision")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self._token is None or not self._token.isdecimal():
            raise self._wrong("expected a number")
        return int(self._take())


def parse_schema_file(content: str) -> pa.Schema:
    """A schema from a file: the text above, or JSON: `{"vid": "string", …}`, or Spark's `{"type": "struct", …}`."""
    if not content.lstrip().startswith(("{", "[")):
        return parse_schema(
            " ".join(line for line in content.splitlines() if not line.lstrip().startswith(("--", "#")))
        )
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise InvalidSchema(f"the schema file is not JSON: {error}", hint=_FILE_HINT) from None
    if isinstance(found, Mapping) and found.get("type") == "struct" and "fields" in found:
        found = found["fields"]
    if isinstance(found, Mapping):
        return pa.schema([pa.field(name, _json_type(kind)) for name, kind in found.items()])
    return pa.schema([_json_field(each) for each in found])


_FILE_HINT = 'write {"vid": "string", "temp": "double"}, or the JSON of a Spark schema, or the text that --schema takes'


def _json_field(found: Any) -> pa.Field:
    match found:
        case {"name": str(name), "type": kind}:
            return pa.field(name, _json_type(kind), bool(found.get("nullable", True)))
    raise InvalidSchema(f"a column without name and type: {str(found)[:80]}", hint=_FILE_HINT)


def _json_type(found: Any) -> pa.DataType:
    match found:
        case str():
            return parse_type(found)
        case {"type": "array", "elementType": inner}:
            return pa.list_(_json_type(inner))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(_json_type(key), _json_type(value))
        case {"type": "struct", "fields": [*fields]}:
            return pa.struct([_json_field(field) for field in fields])
    raise InvalidSchema(f"not a type: {str(found)[:80]}", hint=_FILE_HINT)
