"""Key values as callers give them, made exactly what the column holds.

A lookup compares hashes, so `17.0` against an int64 key would silently find nothing, and `0.1` against a float32 key
would miss the value that 0.1 became when it was stored. Hence a value goes through the same check as a row that is
appended: one of another kind is refused, one of the right kind is brought to the column's own precision. Text is
read as a value only by `parse_value`, for callers who have nothing but text (a command line, a URL).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidValue
from millpond.model.literal import parse_timestamp
from millpond.model.rows import codec_of


def key_value(value: Any, schema: pa.Schema, column: str) -> Any:
    """`value` as that column would give it back. `InvalidValue` naming the type if it cannot hold it, or for a null."""
    plain = codec_of(schema).plain(column, value)
    if plain is None:
        raise InvalidValue(f"no record is found by a null {column}", hint=f"scan(where='{column} IS NULL') lists them")
    return pa.scalar(plain, schema.field(column).type).as_py()


def _boolean(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError("neither true nor false")
    return words[text.lower()]


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: list[tuple[Callable[[pa.DataType], bool], Callable[[str], Any], str]] = [
    (pa.types.is_boolean, _boolean, "true or false"),
    (pa.types.is_integer, int, "a whole number"),
    (pa.types.is_floating, float, "a number"),
    (pa.types.is_decimal, Decimal, "a decimal number"),
    (pa.types.is_binary, _bytes, "base64"),
    (pa.types.is_timestamp, parse_timestamp, "a time like 2026-01-31T12:00:00Z"),
    (pa.types.is_date, date.fromisoformat, "a date like 2026-01-31"),
]


def parse_value(text: str, schema: pa.Schema, column: str) -> Any:
    """The value that a text stands for in a column, as `key_value` gives it. Text of a string column is itself."""
    kind = schema.field(column).type
    for test, read, words in _READERS:
        if test(kind):
            try:
                return key_value(read(text), schema, column)
            except (ValueError, InvalidOperation, binascii.Error) as error:
                raise InvalidValue(f"{text!r} is not a {kind}, which {column!r} is", hint=f"write {words}") from error
    return key_value(text, schema, column)
