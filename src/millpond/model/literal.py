"""The literal values a predicate may hold, their bounds, their JSON form, and times written as text.

A literal is a plain Python value whose class is its SQL type: `int` (integral), `Decimal` (`1.5`), `float` (`1.5e0`, a
DOUBLE), `str`, `bytes`, `bool`, `date`, aware `datetime`, or None (NULL). The classes matter: Spark compares a decimal
exactly and a double as a double.

Invariant: a literal that passed `check` is small enough for every later step. `Decimal("1e999999999")` is eleven
characters long and would take a machine down the moment somebody asks for its floor.

In JSON, what JSON has no word for is an object with one key: {"decimal": "1.50"}, {"date": "2024-02-29"},
{"timestamp": "2024-02-29T12:00:00+00:00"}, {"bytes": "3q2+7w=="}, {"float": "nan"}, {"int": "18446744073709551616"}.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | None

# Wider than any Arrow number (decimal128 has 38 digits, a double reaches 1e308), and still cheap to compute with.
DIGITS_MAX = 400
_WIRE_TEXT_MAX = 2 * DIGITS_MAX
_JSON_INTS = range(-(2**63), 2**63)

_TIMESTAMP = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{0,9}))?)?"
    r" ?(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::\d{2})?)?)?)?)?",
    re.ASCII,
)


def check(value: object) -> None:
    """Raise ValueError, with a sentence that can be shown to a user, unless `value` is a literal within bounds."""
    match value:
        case None | bool() | float() | bytes():
            return
        case int():
            if value.bit_length() > DIGITS_MAX * 3:
                raise ValueError(f"an integer of {value.bit_length()} bits is out of bounds")
        case Decimal():
            if not value.is_finite():
                raise ValueError(f"{value} is not a decimal number; write it as a double")
            if len(value.as_tuple().digits) > DIGITS_MAX or abs(value.adjusted()) > DIGITS_MAX:
                raise ValueError(f"a decimal beyond {DIGITS_MAX} digits is out of bounds")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("a string with half a surrogate pair is not text") from None
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"the timestamp {value} has no time zone; use an aware datetime, e.g. tzinfo=UTC")
            try:
                value.astimezone(UTC)
            except OverflowError:
                raise ValueError(f"{value} is outside the years 1 to 9999") from None
        case date():
            return
        case _:
            raise ValueError(f"{value!r} is a {type(value).__name__}, which no column can be compared with")


def as_double(value: int | float | Decimal) -> float:
    """The double nearest to a number, as a cast to DOUBLE gives it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def same(left: Value, right: Value) -> bool:
    """Are these the same literal of the same SQL type? (In Python, 1 == 1.0 == True, and NaN is never NaN.)"""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))  # type: ignore[arg-type]
    return left == right


def to_wire(value: Value) -> Any:
    """The JSON form of one literal."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if value in _JSON_INTS else {"int": str(value)}
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case datetime():
            return {"timestamp": value.astimezone(UTC).isoformat()}
        case date():
            return {"date": value.isoformat()}


def from_wire(value: Any) -> Value:
    """The literal of a JSON form. Raises ValueError for what is none; the result passed `check`."""
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError("a tagged literal has exactly one key")
        ((kind, text),) = value.items()
        if kind not in _READERS or not isinstance(text, str):
            raise ValueError(f"a tagged literal is one of {', '.join(sorted(_READERS))} with text, not {kind!r}")
        if kind != "bytes" and len(text) > _WIRE_TEXT_MAX:
            raise ValueError(f"a {kind} literal of {len(text)} characters is out of bounds")
        try:
            value = _READERS[kind](text)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"{text[:80]!r} is not a {kind}") from error
    check(value)
    result: Value = value
    return result


def parse_timestamp(text: str) -> datetime:
    """A timestamp as Spark writes them; without a zone it is UTC. Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp like '2024-02-29 12:00:00'")
    year, month, day = (int(match[name] or "1") for name in ("year", "month", "day"))
    hour, minute, second = (int(match[name] or "0") for name in ("hour", "minute", "second"))
    # Spark drops what is finer than a microsecond.
    micros = int((match["fraction"] or "").ljust(6, "0")[:6])
    moment = datetime(year, month, day, hour, minute, second, micros, _zone(match["zone"]))
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is outside the years 1 to 9999") from None


def parse_date(text: str) -> date:
    """A date as Spark reads one ('2024', '2024-2', '2024-02-29'; a time of day is dropped). Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a date like '2024-02-29'")
    return date(int(match["year"]), int(match["month"] or "1"), int(match["day"] or "1"))


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC", "GMT"):
        return UTC
    hours, _, minutes = text[1:].partition(":")
    offset = timedelta(hours=int(hours), minutes=int(minutes or "0"))
    if offset > timedelta(hours=18) or int(minutes or "0") > 59:
        raise ValueError(f"{text!r} is not a time zone; offsets reach from -18:00 to +18:00")
    return timezone(-offset if text[0] == "-" else offset)


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "decimal": Decimal,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
}
