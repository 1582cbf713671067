"""Rows as JSON: how each Arrow type is written down, and how it is read back into plain values.

| type | in JSON |
|---|---|
| integers, booleans, strings, lists, structs | as JSON has them |
| floats | numbers; "NaN", "Infinity" and "-Infinity" as text |
| decimals | text, because a number would be rounded by most readers; whole and short numbers are taken, too |
| timestamps | ISO 8601, taken as UTC without a zone; never finer than microseconds |
| dates | "2024-02-29" |
| binary | text if it is valid UTF-8, else base64 under `<column>_base64` |
| maps | objects if their keys are strings and each is there once, else lists of pairs |

`_base64` goes with the nearest name around a value: in a list or a map of binary values, all of them are base64 as soon
as one has to be.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from millpond.model.row_types import (
    Reader,
    decimal_reader,
    define_struct,
    int_type,
    marker,
    read_date,
    read_float32,
    read_struct,
    read_timestamp,
    value_type,
)
from millpond.model.schema import BASE64_SUFFIX, TIMESTAMP, carries_bytes

NOT_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\Z", re.ASCII)
_TOO_FINE = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)
# A decimal of so many digits survives the way through a float64.
_FLOAT_DIGITS = 15

# Builds the rows of a decoded object: the columns in schema order.
Finish = Callable[[Any], tuple[Any, ...]]


def read_float(value: Any) -> float:
    """A number, or the name of what is none."""
    if type(value) is float or type(value) is int:
        return float(value)
    if type(value) is str and value in NOT_NUMBERS:
        return NOT_NUMBERS[value]
    raise ValueError(f"expected a number or one of {', '.join(NOT_NUMBERS)}, got {type(value).__name__}")


def read_iso_timestamp(value: Any) -> int:
    """Microseconds since 1970 of ISO 8601 text."""
    text = _text(value, "an ISO 8601 time")
    if _TOO_FINE.search(text):
        raise ValueError("not a whole number of microseconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"not an ISO 8601 time: {error}") from error
    return read_timestamp(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def read_iso_date(value: Any) -> int:
    """Days since 1970 of an ISO 8601 date."""
    return read_date(date.fromisoformat(_text(value, "an ISO 8601 date")))


def read_text_as_bytes(value: Any) -> bytes:
    """The UTF-8 of a text."""
    return _text(value, "text").encode()


def read_base64(value: Any) -> bytes:
    """The bytes of base64 text."""
    text = _text(value, "base64")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"not base64: {error}") from error


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise ValueError(f"expected {what}, got {type(value).__name__}")
    return value


def json_decimal_reader(kind: pa.DataType) -> Reader:
    """Reads decimals written as text, and as numbers where those are exact."""
    check = decimal_reader(kind)

    def read(value: Any) -> Any:
        if type(value) is str:
            if not _DECIMAL.match(value):
                raise ValueError("not a decimal number")
            return check(Decimal(value))
        if type(value) is float:
            exact = Decimal(repr(value))
            if len(exact.as_tuple().digits) > _FLOAT_DIGITS:
                raise ValueError("too many digits for a JSON number: write it as text")
            return check(exact)
        return check(value)

    return read


class JsonForm:
    """Values as `msgspec.json` decodes them. `numbers_only`: floats are numbers (quicker, and nearly always so);
    `base64`: binary values are base64."""

    def __init__(self, *, numbers_only: bool = False, base64: bool = False) -> None:
        self._numbers_only = numbers_only
        self._base64 = base64

    def leaf(self, kind: pa.DataType) -> Any:
        if pa.types.is_integer(kind):
            return int_type(kind)
        if pa.types.is_decimal(kind):
            return marker(json_decimal_reader(kind))
        if pa.types.is_binary(kind):
            return marker(read_base64 if self._base64 else read_text_as_bytes)
        if pa.types.is_float64(kind) and self._numbers_only:
            return float
        return _LEAVES[kind]

    def struct(self, fields: list[pa.Field]) -> Reader:
        kind, finish = self.row(fields)
        return lambda value: finish(read_struct(value, kind))

    def names(self, fields: list[pa.Field]) -> dict[str, tuple[pa.Field, Any]]:
        """The names an object of these fields may use, with the field and the type that each stands for."""
        plain, coded = self._in_scope(base64=False), self._in_scope(base64=True)
        found = {}
        for field in fields:
            found[field.name] = (field, value_type(field.type, field.nullable, plain))
            if carries_bytes(field.type):
                found[field.name + BASE64_SUFFIX] = (field, value_type(field.type, field.nullable, coded))
        return found

    def row(self, fields: list[pa.Field]) -> tuple[type[msgspec.Struct], Finish]:
        """What an object of these fields is decoded as, and what makes a plain row of that."""
        members: list[Any] = []
        rename: dict[str, str] = {}
        twice = any(carries_bytes(field.type) for field in fields)
        for index, (name, (field, kind)) in enumerate(self.names(fields).items()):
            rename[f"c{index}"] = name
            if twice:
                members.append((f"c{index}", kind | UnsetType, UNSET))
            else:
                members.append((f"c{index}", kind, None) if field.nullable else (f"c{index}", kind))
        return define_struct(members, rename), _merger(fields) if twice else msgspec.structs.astuple

    def _in_scope(self, *, base64: bool) -> JsonForm:
        return JsonForm(numbers_only=self._numbers_only, base64=base64)


def _merger(fields: list[pa.Field]) -> Finish:
    """Brings `column` and `column_base64` together."""

    def merge(row: msgspec.Struct) -> tuple[Any, ...]:
        given = iter(msgspec.structs.astuple(row))
        found = []
        for field in fields:
            value = next(given)
            if carries_bytes(field.type):
                coded = next(given)
                if value is not UNSET and coded is not UNSET:
                    raise ValueError(f"{field.name!r} and {field.name + BASE64_SUFFIX!r} are one column: give one")
                value = coded if value is UNSET else value
            if value is UNSET:
                if not field.nullable:
                    raise ValueError(f"missing required field {field.name}")
                value = None
            found.append(value)
        return tuple(found)

    return merge


_LEAVES: dict[pa.DataType, Any] = {
    pa.float64(): marker(read_float),
    pa.float32(): marker(lambda value: read_float32(read_float(value))),
    pa.bool_(): bool,
    pa.string(): str,
    pa.date32(): marker(read_iso_date),
    TIMESTAMP: marker(read_iso_timestamp),
}
