"""Functions of a column that keep its order, undone: from a range of the function's values to a range of the column's.

Dates are days and timestamps microseconds since 1970, both whole numbers; so is what `year` or a cast to an integer
gives. A step undoes one function: given a closed range of what came out, it says in which closed range lies what went
in. Steps are applied from the outermost function to the column.

Invariant: the range is never too narrow. It is exactly right (`exact`) unless a step cannot know: where a time zone's
distance from UTC changes, all distances that it ever had are allowed for, so ranges grow by an hour or two.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

DAY = 86_400_000_000
MONTHS_PER_YEAR = 12
# Years that numpy's days and microseconds hold with room to spare; nobody's data lies beyond.
_YEARS = range(-200_000, 200_000)
_UNIT_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
# The names of units as Spark has them; months in a unit, 0 for a week.
_UNIT_MONTHS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 12),
    "QUARTER": 3,
    **dict.fromkeys(("MONTH", "MON", "MM"), 1),
    "WEEK": 0,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY, _LAST_DAY = ((day - _EPOCH.date()).days for day in (date.min, date.max))

# What a function gives, and what a column holds.
Kind: TypeAlias = Literal["date", "timestamp", "integer", "floating"]


class Zone(NamedTuple):
    """The least and the most microseconds that a time zone was ever ahead of UTC."""

    least: int
    most: int


UTC_ZONE = Zone(0, 0)


class Range(NamedTuple):
    """From `low` to `high`, both included; None: without end. Not `exact`: the truth may be narrower."""

    low: int | None
    high: int | None
    exact: bool = True


Step: TypeAlias = Callable[[Range], Range]


def range_of(op: str, value: int) -> Range:
    """What compares so with a whole number."""
    match op:
        case "=":
            return Range(value, value)
        case "<":
            return Range(None, value - 1)
        case "<=":
            return Range(None, value)
        case ">":
            return Range(value + 1, None)
        case ">=":
            return Range(value, None)
    raise AssertionError(op)


def undone(found: Range, steps: tuple[Step, ...]) -> Range:
    for step in steps:
        found = step(found)
    return found


def plus(amount: int) -> Step:
    """Days to a date, or microseconds to a timestamp."""
    return lambda out: _each(out, lambda low: low - amount, lambda high: high - amount)


def plus_days(days: int, micros: int, zone: Zone) -> Step:
    """Calendar days to a timestamp, whatever the clocks did meanwhile, and then microseconds."""
    doubt = zone.most - zone.least if days else 0
    amount = days * DAY + micros
    return lambda out: _each(
        out, lambda low: low - amount - doubt, lambda high: high - amount + doubt, exact=doubt == 0
    )


def plus_months(months: int) -> Step:
    """Months to a date; a day that the month does not have becomes its last."""

    def low(bound: int) -> int:
        into = _month(bound)
        first, after = _first(into - months), _first(into - months + 1)
        return min(first + bound - _first(into), after)

    def high(bound: int) -> int:
        into = _month(bound)
        first, last = _first(into - months), _first(into - months + 1) - 1
        return last if bound == _first(into + 1) - 1 else min(first + bound - _first(into), last)

    return lambda out: _each(out, low, high)


def plus_months_at(months: int, zone: Zone) -> tuple[Step, ...]:
    """Months to a timestamp. Not quite in order: the 30th at noon and the 31st at dawn may become the same day."""

    def local_days(out: Range) -> Range:
        return _each(out, lambda low: (low + zone.least) // DAY, lambda high: (high + zone.most) // DAY, exact=False)

    return (local_days, plus_months(months), day_of(zone))


def day_of(zone: Zone) -> Step:
    """The date of a timestamp."""
    return lambda out: _each(
        out,
        lambda low: low * DAY - zone.most,
        lambda high: (high + 1) * DAY - 1 - zone.least,
        exact=zone.least == zone.most,
    )


def open_ended(least: int, most: int) -> Step:
    """A cast that makes of what is beyond the ends of its type the end itself, or fails: nobody knows which."""
    return lambda out: Range(
        None if out.low is None or out.low <= least else out.low,
        None if out.high is None or out.high >= most else out.high,
        exact=False,
    )


def midnight_of(zone: Zone) -> Step:
    """The timestamp of a date."""
    return lambda out: _each(
        out,
        lambda low: -(-(low + zone.least) // DAY),
        lambda high: (high + zone.most) // DAY,
        exact=zone.least == zone.most,
    )


def year_of(out: Range) -> Range:
    """The year of a date."""
    if any(bound is not None and bound not in _YEARS for bound in (out.low, out.high)):
        return Range(None, None, exact=False)
    return _each(
        out,
        lambda low: _first((low - 1970) * MONTHS_PER_YEAR),
        lambda high: _first((high + 1 - 1970) * MONTHS_PER_YEAR) - 1,
    )


def date_cut(unit: str) -> Step | None:
    """A date cut to the first day of its unit; None if it is no unit."""
    months = _UNIT_MONTHS.get(unit.upper())
    if months is None:
        return None

    def begin(day: int) -> int:
        return day - (day + 3) % 7 if months == 0 else _first(_month(day) // months * months)

    def end(day: int) -> int:
        """The first day of the unit after."""
        return begin(day) + 7 if months == 0 else _first((_month(day) // months + 1) * months)

    return lambda out: _each(out, lambda low: low if begin(low) == low else end(low), lambda high: end(high) - 1)


def timestamp_cut(unit: str, zone: Zone) -> tuple[Step, ...] | None:
    """A timestamp cut to the beginning of its unit, by the zone's clock; None if it is no unit."""
    unit = unit.upper()
    if unit in ("DAY", "DD"):
        return (midnight_of(zone), day_of(zone))
    days = date_cut(unit)
    if days is not None:
        return (midnight_of(zone), days, day_of(zone))
    if unit not in _UNIT_MICROS:
        return None
    size = _UNIT_MICROS[unit]
    # Zones are whole seconds apart, not always whole minutes.
    least, most = zone if size > _UNIT_MICROS["SECOND"] else UTC_ZONE
    return (
        lambda out: _each(
            out,
            lambda low: -(-(low + least) // size) * size - most,
            lambda high: (high + most) // size * size + size - 1 - least,
            exact=least == most,
        ),
    )


def divided(size: int) -> Step:
    """How many whole units, rounded down: the seconds since 1970 of a timestamp."""
    return lambda out: _each(out, lambda low: low * size, lambda high: (high + 1) * size - 1)


def topped(top: int) -> Step:
    """A cast to a type of whole numbers that gives its greatest for the number after it, too."""
    return lambda out: _each(out, lambda low: low, lambda high: high + 1 if high == top else high)


def whole(value: date | datetime | int) -> int:
    """A literal as the number that stands for it here."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


def date_at(days: int) -> date | None:
    """None: Python has no date for it."""
    return _EPOCH.date() + timedelta(days=days) if _FIRST_DAY <= days <= _LAST_DAY else None


def timestamp_at(micros: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=micros) if date_at(micros // DAY) is not None else None


def months_after(day: int, months: int) -> int:
    """The same day of the month so many months later, or the last that there is."""
    into = _month(day) + months
    return min(_first(into) + day - _first(into - months), _first(into + 1) - 1)


def _each(out: Range, low: Callable[[int], int], high: Callable[[int], int], *, exact: bool = True) -> Range:
    return Range(
        None if out.low is None else low(out.low),
        None if out.high is None else high(out.high),
        out.exact and exact,
    )


def _month(day: int) -> int:
    """Months since 1970."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def _first(month: int) -> int:
    """The first day of a month."""
    return int(np.datetime64(month, "M").astype("datetime64[D]").astype(np.int64))
