"""Catalyst's functions of a column that keep its order: date and timestamp arithmetic, casts, cutting to a unit.

What is not listed here is None, and then its comparison is `Unknown`. Whatever depends on the session's time zone comes
with the least and the most that the zone was ever ahead of UTC, from the JVM's own rules (see `ExpressionText.java`).
Left out: what may wrap around (narrowing integers, casts of floats to less than an int), intervals of months and days
at once, and everything of text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from millpond.model.derived import Derived
from millpond.model.predicate import Column
from millpond.model.preimage import (
    DAY,
    Kind,
    Zone,
    date_cut,
    day_of,
    divided,
    midnight_of,
    open_ended,
    plus,
    plus_days,
    plus_months,
    plus_months_at,
    timestamp_cut,
    year_of,
)

Node: TypeAlias = dict[str, Any]

_KINDS: dict[str, Kind] = {"date": "date", "timestamp": "timestamp", "float": "floating", "double": "floating"}
_MONTHS = ("interval year to month", "interval year", "interval month")
_SECONDS = 1_000_000
_UNITS = {"UnixSeconds": _SECONDS, "UnixMillis": 1_000, "UnixMicros": 1}
# Spark adds days to a date without looking for an overflow. Far more than anyone adds, far less than can wrap around.
_DAYS_MAX = 10_000_000


def derived(node: Node, column: Callable[[Node], Column]) -> Derived | None:
    """`column` names what an AttributeReference stands for, or raises."""
    if node["is"] == "AttributeReference":
        kind = _KINDS.get(node["type"])
        return None if kind is None else Derived(column(node), kind, kind)
    terms = node.get("of", [])
    if not terms:
        return None
    # Spark's functions take the column first, but for one.
    at = 1 if node["is"] == "TruncTimestamp" else 0
    inner = derived(terms[at], column)
    return None if inner is None else _outer(node, inner, terms[1 - at] if len(terms) == 2 else None)


def _outer(node: Node, inner: Derived, literal: Node | None) -> Derived | None:
    number, zone = _integer(literal), _zone(node)
    match node["is"], inner.gives:
        case "Cast", _:
            return _cast(node["type"], inner, zone)
        case "Year", "date":
            return inner.then("integer", year_of)
        case ("UnixSeconds" | "UnixMillis" | "UnixMicros") as unit, "timestamp":
            return inner.then("integer", divided(_UNITS[unit]))
        case ("TruncTimestamp", "timestamp") if zone is not None and (unit := _text(literal)):
            steps = timestamp_cut(unit, zone)
            return None if steps is None else inner.then("timestamp", *steps)
        case ("TruncDate", "date") if unit := _text(literal):
            step = date_cut(unit)
            return None if step is None else inner.then("date", step)
    if number is None or literal is None:
        return None
    kind = literal["type"]
    match node["is"], inner.gives:
        case ("DateAdd" | "DateSub") as name, "date" if abs(number) <= _DAYS_MAX:
            return inner.then("date", plus(number if name == "DateAdd" else -number))
        case "DateDiff", "date" if kind == "date":
            return inner.then("integer", plus(-number))
        case "AddMonths", "date":
            return inner.then("date", plus_months(number))
        case "DateAddYMInterval", "date" if kind in _MONTHS:
            return inner.then("date", plus_months(number))
        case "TimestampAddYMInterval", "timestamp" if kind in _MONTHS and zone is not None:
            return inner.then("timestamp", *plus_months_at(number, zone))
        case "TimestampAddInterval", "timestamp" if kind.startswith("interval ") and kind not in _MONTHS and zone:
            days = abs(number) // DAY * (1 if number > 0 else -1)
            return inner.then("timestamp", plus_days(days, number - days * DAY, zone))
    return None


def _cast(target: str, inner: Derived, zone: Zone | None) -> Derived | None:
    match inner.gives, target:
        case "timestamp", "date" if zone is not None:
            return inner.then("date", day_of(zone))
        case "date", "timestamp" if zone is not None:
            return inner.then("timestamp", midnight_of(zone))
        case "timestamp", "bigint":
            return inner.then("integer", divided(_SECONDS))
        case "floating", ("int" | "bigint") as kind if not inner.steps:
            # What is too large for the type comes out as its greatest number, or fails, by the session's settings.
            top = 1 << (31 if kind == "int" else 63)
            return inner.then("integer", open_ended(-top, top - 1))._replace(nan=True)
        case ("floating", "double") | ("integer", "bigint"):
            return inner
    return None


def _integer(node: Node | None) -> int | None:
    """The number in a literal of any type that is one to Spark: integers, dates, intervals."""
    if node is None or node["is"] != "Literal" or node["value"] is None:
        return None
    kind: str = node["type"]
    if kind not in ("tinyint", "smallint", "int", "date") and not kind.startswith("interval "):
        return None
    return int(node["value"])


def _text(node: Node | None) -> str | None:
    if node is None or node["is"] != "Literal" or node["type"] != "string":
        return None
    text: str | None = node["value"]
    return text


def _zone(node: Node) -> Zone | None:
    seconds = node.get("zone")
    return None if seconds is None else Zone(seconds[0] * _SECONDS, seconds[1] * _SECONDS)
