"""Durations and sizes as people write them: "60s", "128MB". Never bare numbers, never negative, never endless."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal

from millpond.errors import InvalidValue

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*\Z", re.ASCII)
_SECONDS = {
    "us": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(604800),
}
# Decimal units as on a disk's label, binary ones where the i says so.
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class Seconds(float):
    """A duration in seconds, typed. Takes what a duration may be: `Seconds("1.5m")`."""

    def __new__(cls, value: str | float) -> Seconds:
        number = parse_seconds(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise InvalidValue(f"{value!r} is not a number of seconds", hint="a number from 0 on, e.g. Seconds(60)")
        return float.__new__(cls, number)


class Bytes(int):
    """A size in bytes, typed. Takes what a size may be: `Bytes("64MB")`."""

    def __new__(cls, value: str | int) -> Bytes:
        number = parse_bytes(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidValue(
                f"{value!r} is not a number of bytes", hint="a whole number from 0 on, e.g. Bytes(64_000)"
            )
        return int.__new__(cls, number)


Duration = str | timedelta | Seconds
Size = str | Bytes


def _split(value: object, what: str, example: str, units: Iterable[str]) -> tuple[Decimal, str]:
    hint = f"write a number and a unit, e.g. {example!r}; units: {', '.join(units)}"
    if isinstance(value, bool) or not isinstance(value, str):
        raise InvalidValue(f"{value!r} is not a {what}: it has no unit", hint=hint)
    match = _QUANTITY.match(value)
    if match is None:
        raise InvalidValue(f"{value!r} is not a {what}", hint=hint)
    return Decimal(match[1]), match[2]


def parse_seconds(value: Duration) -> float:
    """Seconds of "1.5s", "10ms", "1d", a `timedelta` or `Seconds`."""
    if isinstance(value, Seconds):
        return float(value)
    if isinstance(value, timedelta):
        return float(Seconds(value.total_seconds()))
    number, unit = _split(value, "duration", "60s", _SECONDS)
    if unit not in _SECONDS:
        raise InvalidValue(f"{value!r}: no unit of time {unit!r}", hint=f"units: {', '.join(_SECONDS)}")
    return float(Seconds(float(number * _SECONDS[unit])))


def parse_bytes(value: Size) -> int:
    """Bytes of "128MB", "1GiB" or `Bytes`, rounded down."""
    if isinstance(value, Bytes):
        return int(value)
    number, unit = _split(value, "size", "128MB", _BYTES)
    if unit not in _BYTES:
        raise InvalidValue(f"{value!r}: no unit of size {unit!r}", hint=f"units: {', '.join(_BYTES)}")
    return int(number * _BYTES[unit])


def format_bytes(count: float) -> str:
    """A size for people: 1536 -> "1.5 KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        # What would be shown as 1000.0 belongs to the next unit.
        if abs(count) < 999.95:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
