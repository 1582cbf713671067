r"""Literals as Spark writes them in SQL: what is between the quotes, numbers, and casts of one literal to another type.

Invariant: a literal means what it means to Spark 4 (ANSI), or is refused with ValueError. What the text of a string
literal stands for is decided here, not by the SQL parser's library, whose rules for `\%`, `''` and octal differ.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from decimal import localcontext as decimal_context

import numpy as np

from millpond.model.literal import DIGITS_MAX, Value, as_double, check, parse_date, parse_timestamp

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
# `\%` and `\_` keep their backslash: they are meant for LIKE.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DOUBLE_NAMES = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
TIMESTAMPS = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")


def unescape(text: str) -> str:
    """What a string literal stands for, given what is between its quotes."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            return chr(int(code[1:], 16) if code[0] in "uU" else int(code, 8))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(one, text)


def number(text: str) -> Value:
    """`12` is an integer, `1.5` a decimal, `1e3` a double."""
    if "e" in text or "E" in text:
        return float(text)
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number of {len(text)} digits is out of bounds")
    return Decimal(text) if "." in text else int(text)


def hex_bytes(text: str) -> bytes:
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def cast(value: Value, to: str, precision: int, scale: int) -> Value:
    """CAST(value AS to). `precision` and `scale` are for DECIMAL. Raises ValueError."""
    if value is None:
        return None
    result = _cast(value, to, precision, scale)
    if result is None:
        raise ValueError(f"a cast of {value!r} to {to} is not supported here")
    check(result)
    return result


def _cast(value: Value, to: str, precision: int, scale: int) -> Value:
    match value, to:
        case bool(), "BOOLEAN":
            return value
        case bool(), _:
            return None
        case ((int() | float() | Decimal() | str()), _) if to in INTEGER_BITS:
            return _integer(value, INTEGER_BITS[to])
        case ((int() | float() | Decimal() | str()), "DOUBLE"):
            return _double(value)
        case ((int() | float() | Decimal() | str()), "FLOAT"):
            with np.errstate(over="ignore"):
                return float(np.float32(_double(value)))
        case ((int() | float() | Decimal() | str()), "DECIMAL"):
            return _decimal(value, precision, scale)
        case str(), "TEXT":
            return value
        case ((int() | date()), "TEXT") if not isinstance(value, datetime):
            return str(value)
        case str(), "BINARY":
            return value.encode()
        case bytes(), "BINARY":
            return value
        case str(), "DATE":
            return parse_date(value)
        case datetime(), "DATE":
            return value.date()
        case date(), "DATE":
            return value
        case str(), _ if to in TIMESTAMPS:
            return parse_timestamp(value)
        case datetime(), _ if to in TIMESTAMPS:
            return value
        case date(), _ if to in TIMESTAMPS:
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def _parsed(text: str) -> Decimal:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    parsed = Decimal(match[0])
    check(parsed)
    return parsed


def _integer(value: int | float | Decimal | str, bits: int) -> int:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?\d+(\.\d*)?", value.strip(), re.ASCII):
        raise ValueError(f"{value!r} is not an integer")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not an integer")
    whole = math.trunc(_parsed(value) if isinstance(value, str) else value)
    if not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        raise ValueError(f"{value} does not fit into {bits} bits")
    return whole


def _double(value: int | float | Decimal | str) -> float:
    if isinstance(value, str):
        name = value.strip().lower()
        return float(name) if name in _DOUBLE_NAMES else float(_parsed(value))
    return as_double(value)


def _decimal(value: int | float | Decimal | str, precision: int, scale: int) -> Decimal:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not a decimal number")
        value = repr(value)  # as Spark does: the shortest digits that mean this double
    exact = _parsed(value) if isinstance(value, str) else Decimal(value)
    with decimal_context() as context:
        context.prec = 3 * DIGITS_MAX
        rounded = exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
        if abs(rounded) >= Decimal(10) ** (precision - scale):
            raise ValueError(f"{value} does not fit into DECIMAL({precision},{scale})")
    return rounded
