"""Where a literal falls among the values a column can hold.

Comparing a column with a literal of another type is, in Spark, a cast of one of them to a common type. Casting a column
is slow, defeats statistics, and in Arrow is lossy or fails. So the literal moves instead: `cut` finds the two values
*of the column's own type* between which it lies, and every comparison becomes one with such a value: for an integer
column `n < 1.5` is `n < 2` and `n = 1.5` is never true.

With `floor` the greatest value that counts as <= the literal and `ceil` the least that counts as >= it,

    x <= v  is  x <= floor        x < v  is  x < ceil        x = v  is  ceil <= x <= floor
    x >= v  is  x >= ceil         x > v  is  x > floor       (None: there is no such value)

Invariant: the result is exactly Spark's answer. Decimals and integers compare as numbers. A double against a 64-bit
integer or a decimal compares as doubles in Spark, several integers being the same double beyond 2**53; the cut finds
the edges of that run of integers, so the column itself is still never cast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from millpond.model.literal import Value, as_double, parse_date, parse_timestamp

# Every integer up to here is a double of its own.
_DOUBLE_EXACT = 2**53


Time = TypeVar("Time", date, datetime)


class Mismatch(ValueError):
    """The literal cannot be compared with a column of this type. Carries what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Cut(NamedTuple):
    floor: Value
    ceil: Value


def cut(kind: pa.DataType, value: Value) -> Cut:
    """The neighbours of `value` (not None) among the values of type `kind`. Raises `Mismatch`."""
    if not comparable(kind):
        raise Mismatch(f"a {kind} column cannot be compared", "only IS NULL and IS NOT NULL are possible on it")
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if pa.types.is_integer(kind) and number:
        return _integer(kind, value)  # type: ignore[arg-type]
    if pa.types.is_floating(kind) and number:
        return _floating(kind, value)  # type: ignore[arg-type]
    if pa.types.is_decimal(kind) and number:
        return _decimal(kind, value)  # type: ignore[arg-type]
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return Cut(value, value)
    if _is_text(kind) and isinstance(value, str):
        return Cut(value, value)
    if _is_binary(kind) and isinstance(value, bytes | str):
        data = value.encode() if isinstance(value, str) else value
        return Cut(data, data)
    if pa.types.is_date32(kind) and isinstance(value, date | str):
        return _date(value)
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None and isinstance(value, date | str):
        moment = _moment(value)
        return Cut(moment, moment)
    raise Mismatch(f"a {kind} column cannot be compared with {_shown(value)}", _instead(kind, value))


def comparable(kind: pa.DataType) -> bool:
    """Has the type an order that predicates and statistics know?"""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or (pa.types.is_decimal128(kind) and kind.scale >= 0)
        or pa.types.is_boolean(kind)
        or _is_text(kind)
        or _is_binary(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None)
    )


def _integer(kind: pa.DataType, value: int | float | Decimal) -> Cut:
    bits = kind.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, 2**bits - 1)
    if isinstance(value, float) and (abs(value) >= _DOUBLE_EXACT or not math.isfinite(value)):
        return _search(low, high, value, float)
    return _clip(low, high, math.floor(value), math.ceil(value))


def _floating(kind: pa.DataType, value: int | float | Decimal) -> Cut:
    double = as_double(value)
    if not pa.types.is_float32(kind) or math.isnan(double):
        return Cut(double, double)
    with np.errstate(over="ignore"):
        single = np.float32(double)
    if float(single) < double:
        return Cut(float(single), float(np.nextafter(single, np.float32(np.inf))))
    if float(single) > double:
        return Cut(float(np.nextafter(single, np.float32(-np.inf))), float(single))
    return Cut(double, double)


def _decimal(kind: pa.DataType, value: int | float | Decimal) -> Cut:
    """Decimals are counted in units of their last digit."""
    high, unit = 10**kind.precision - 1, 10**kind.scale
    if isinstance(value, float):
        # Division of Python's integers is rounded once, to the nearest double, like Spark's cast.
        found = _search(-high, high, value, lambda n: n / unit)
    else:
        # Not Decimal arithmetic: that rounds to the context's 28 digits.
        scaled = Fraction(value) * unit
        found = _clip(-high, high, math.floor(scaled), math.ceil(scaled))
    floor, ceil = (None if n is None else _with_scale(n, kind.scale) for n in found)  # type: ignore[arg-type]
    return Cut(floor, ceil)


def _with_scale(units: int, scale: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _clip(low: int, high: int, floor: int, ceil: int) -> Cut:
    return Cut(None if floor < low else min(floor, high), None if ceil > high else max(ceil, low))


def _search(low: int, high: int, value: float, as_double: Callable[[int], float]) -> Cut:
    """The cut of a double among integers that Spark compares as `as_double` of them (which never decreases)."""
    if math.isnan(value) or value == math.inf:
        return Cut(high, None)
    below = _count_while(low, high, lambda n: as_double(n) < value)
    through = _count_while(low, high, lambda n: as_double(n) <= value)
    return Cut(None if through == 0 else low + through - 1, None if low + below > high else low + below)


def _count_while(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """How many of low..high hold, if they are the first ones."""
    start, stop = 0, high - low + 1
    while start < stop:
        middle = (start + stop) // 2
        if holds(low + middle):
            start = middle + 1
        else:
            stop = middle
    return start


def _date(value: date | str) -> Cut:
    if isinstance(value, datetime):
        # A date compares with a timestamp as its midnight, UTC.
        moment = _moment(value)
        day = moment.date()
        if moment.time() == time():
            return Cut(day, day)
        return Cut(day, None if day == date.max else day + timedelta(days=1))
    if isinstance(value, str):
        value = _parsed(parse_date, value, "'2024-02-29'")
    return Cut(value, value)


def _moment(value: date | str) -> datetime:
    if isinstance(value, str):
        return _parsed(parse_timestamp, value, "'2024-02-29 12:00:00'")
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.combine(value, time(), UTC)


def _parsed(parse: Callable[[str], Time], text: str, example: str) -> Time:
    try:
        return parse(text)
    except ValueError as error:
        raise Mismatch(str(error), f"write it like {example}") from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _shown(value: Value) -> str:
    text = repr(value) if not isinstance(value, Decimal | date) else f"{type(value).__name__.lower()} {value}"
    return text if len(text) <= 60 else text[:57] + "..."


def _instead(kind: pa.DataType, value: Value) -> str:
    if _is_text(kind):
        return "put the literal in quotes, or CAST it AS STRING: text compares with text"
    if isinstance(value, str):
        return f"write a {kind} literal without quotes, or CAST the text to the column's type"
    return f"write a literal of the column's type, {kind}"
