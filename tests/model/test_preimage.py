"""Functions that keep order, undone: never a range too narrow, and exactly the right one where zones do not matter."""

from __future__ import annotations

import calendar
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.derived import Derived
from millpond.model.evaluate import mask
from millpond.model.preimage import (
    DAY,
    UTC_ZONE,
    Kind,
    Range,
    Step,
    Zone,
    date_cut,
    day_of,
    divided,
    midnight_of,
    plus,
    plus_days,
    plus_months,
    plus_months_at,
    range_of,
    timestamp_at,
    timestamp_cut,
    undone,
    whole,
    year_of,
)

EPOCH = date(1970, 1, 1)
HOUR = 3_600_000_000
OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
ops = st.sampled_from(sorted(OPS))
# Around ends of months, leap days, 1970 and the first years.
days = st.integers(-3_000, 3_000) | st.integers(-700_000, 2_900_000) | st.integers(19_750, 19_800)


def day(number: int) -> date:
    return EPOCH + timedelta(days=number)


def months_later(number: int, months: int) -> int:
    at = day(number)
    total = at.year * 12 + at.month - 1 + months
    year, month = divmod(total, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return (date(year, month + 1, min(at.day, last)) - EPOCH).days


def first_of(number: int, unit: str) -> int:
    at = day(number)
    match unit:
        case "YEAR":
            at = at.replace(month=1, day=1)
        case "QUARTER":
            at = at.replace(month=(at.month - 1) // 3 * 3 + 1, day=1)
        case "MM":
            at = at.replace(day=1)
        case "WEEK":
            at -= timedelta(days=at.weekday())
    return (at - EPOCH).days


DATES: dict[str, tuple[Callable[[int], int], Step]] = {
    "plus 3": (lambda d: d + 3, plus(3)),
    "a month later": (lambda d: months_later(d, 1), plus_months(1)),
    "a month earlier": (lambda d: months_later(d, -1), plus_months(-1)),
    "a year later": (lambda d: months_later(d, 12), plus_months(12)),
    "31 months earlier": (lambda d: months_later(d, -31), plus_months(-31)),
    "year": (lambda d: day(d).year, year_of),
    "midnight": (lambda d: d * DAY, midnight_of(UTC_ZONE)),
    **{
        f"first of {unit}": (lambda d, unit=unit: first_of(d, unit), step)  # type: ignore[misc]
        for unit in ("YEAR", "QUARTER", "MM", "WEEK")
        if (step := date_cut(unit))
    },
}


@settings(max_examples=max(300, settings.default.max_examples))
@given(st.sampled_from(sorted(DATES)), days, st.integers(-70, 70), ops, st.integers(-1, 1))
def test_functions_of_dates_are_undone_exactly(name: str, at: int, apart: int, op: str, odd: int) -> None:
    function, step = DATES[name]
    value = function(at + apart) + odd
    found = undone(range_of(op, value), (step,))
    assert found.exact
    for number in range(at - 3, at + 4):
        assert holds(found, number) == OPS[op](function(number), value)


def holds(found: Range, number: int) -> bool:
    return (found.low is None or found.low <= number) and (found.high is None or number <= found.high)


ZONES = [
    "UTC",
    "Europe/Paris",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Africa/Cairo",
]
# More than each of them was ever ahead of UTC, or behind.
REACH = {
    "UTC": UTC_ZONE,
    "Europe/Paris": Zone(0, 2 * HOUR),
    "America/Sao_Paulo": Zone(-4 * HOUR, -2 * HOUR),
    "Pacific/Apia": Zone(-12 * HOUR, 14 * HOUR),
    "Asia/Kathmandu": Zone(5 * HOUR, 6 * HOUR),
    "America/St_Johns": Zone(-4 * HOUR, -HOUR),
    "Africa/Cairo": Zone(2 * HOUR, 3 * HOUR),
}
# Around changes of the clock: at midnight, by a day, by half an hour.
CHANGES = [
    datetime(2018, 11, 4, 3, tzinfo=UTC),
    datetime(2019, 2, 17, 2, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2024, 3, 31, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 1, tzinfo=UTC),
    datetime(1987, 10, 25, 4, tzinfo=UTC),
    datetime(2024, 4, 25, 22, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2024, 1, 31, 12, tzinfo=UTC),
]


def local(micros: int, zone: ZoneInfo) -> datetime:
    moment = timestamp_at(micros)
    assert moment is not None
    return moment.astimezone(zone)


def instant(at: datetime) -> int:
    """By the rules of Java: in a gap, the clock's time after it."""
    return whole(at.replace(tzinfo=None).replace(tzinfo=at.tzinfo).astimezone(UTC))


def at_midnight(number: int, zone: ZoneInfo) -> int:
    at = day(number)
    return instant(datetime(at.year, at.month, at.day, tzinfo=zone))


def cut(micros: int, zone: ZoneInfo, unit: str) -> int:
    here = local(micros, zone)
    if unit == "HOUR":
        return instant(here.replace(minute=0, second=0, microsecond=0))
    if unit == "SECOND":
        return micros // 1_000_000 * 1_000_000
    number = (here.date() - EPOCH).days
    return at_midnight(number if unit == "DAY" else first_of(number, unit), zone)


def moved(micros: int, zone: ZoneInfo, days: int, more: int) -> int:
    here = local(micros, zone)
    return instant((here.replace(tzinfo=None) + timedelta(days=days)).replace(tzinfo=zone, fold=here.fold)) + more


def months_on(micros: int, zone: ZoneInfo, months: int) -> int:
    here = local(micros, zone)
    to = day(months_later((here.date() - EPOCH).days, months))
    return instant(here.replace(year=to.year, month=to.month, day=to.day))


TIMES: dict[str, tuple[Callable[[int, ZoneInfo], int], Callable[[Zone], tuple[Step, ...]]]] = {
    "date": (lambda t, z: (local(t, z).date() - EPOCH).days, lambda zone: (day_of(zone),)),
    "year": (lambda t, z: local(t, z).year, lambda zone: (year_of, day_of(zone))),
    "a day later": (lambda t, z: moved(t, z, 1, 0), lambda zone: (plus_days(1, 0, zone),)),
    "a day and a half earlier": (
        lambda t, z: moved(t, z, -1, -12 * HOUR),
        lambda zone: (plus_days(-1, -12 * HOUR, zone),),
    ),
    "an hour later": (lambda t, z: t + HOUR, lambda zone: (plus_days(0, HOUR, zone),)),
    "a month later": (lambda t, z: months_on(t, z, 1), lambda zone: plus_months_at(1, zone)),
    "seconds": (lambda t, z: t // 1_000_000, lambda zone: (divided(1_000_000),)),
    **{
        f"cut to {unit}": (
            lambda t, z, unit=unit: cut(t, z, unit),  # type: ignore[misc]
            lambda zone, unit=unit: timestamp_cut(unit, zone) or (),  # type: ignore[misc]
        )
        for unit in ("DAY", "HOUR", "SECOND", "WEEK", "MM", "YEAR")
    },
}


@settings(max_examples=max(600, settings.default.max_examples))
@given(
    st.sampled_from(sorted(TIMES)),
    st.sampled_from(ZONES),
    st.sampled_from(CHANGES),
    st.integers(-3 * DAY, 3 * DAY) | st.sampled_from([0, 1, -1, HOUR, -HOUR, DAY, HOUR // 2]),
    st.integers(-2 * DAY, 2 * DAY) | st.sampled_from([0, 1, -1, HOUR, -HOUR]),
    ops,
    st.integers(-1, 1),
)
def test_functions_of_timestamps_are_undone_in_every_zone(
    name: str, zone: str, change: datetime, shift: int, apart: int, op: str, odd: int
) -> None:
    function, steps = TIMES[name]
    there = ZoneInfo(zone)
    at = whole(change) + shift
    value = function(at + apart, there) + odd
    found = undone(range_of(op, value), steps(REACH[zone]))
    answer = OPS[op](function(at, there), value)
    assert holds(found, at) or not answer, "a row was lost"
    if found.exact:
        assert holds(found, at) == answer
    assert found.exact == (name not in ("a month later",)) or zone != "UTC"


@pytest.mark.parametrize("unit", ["CENTURY", "", "DAYS", "minute "])
def test_a_unit_that_is_none(unit: str) -> None:
    assert date_cut(unit) is None
    assert timestamp_cut(unit, UTC_ZONE) is None


def test_a_year_beyond_all_years_bounds_nothing() -> None:
    assert year_of(Range(10**9, None)) == Range(None, None, exact=False)


@given(st.floats() | st.sampled_from([-0.5, 0.5, -1.0, 1.0, 2.0**53, -(2.0**62)]), st.integers(-3, 3), ops)
def test_the_whole_part_of_a_float(value: float, apart: int, op: str) -> None:
    """Whoever reads exactly leaves out what Spark would fail for; whoever skips must not."""
    fits = math.isfinite(value) and abs(value) < 2**62
    literal = (math.trunc(value) if fits else 7) + apart
    row = pa.RecordBatch.from_arrays([pa.array([value])], ["f"])
    limits = Range(-(2**63), 2**63 - 1)
    exact = Derived("f", "floating", "integer", limits=limits).compare(op, literal)
    loose = Derived("f", "floating", "integer", nan=True).compare(op, literal)
    if fits:
        expected = OPS[op](math.trunc(value), literal)
        assert mask(row, exact).to_pylist() == [expected]
        assert mask(row, loose, loose=True).to_pylist() == [expected]
    elif math.isnan(value):
        assert mask(row, exact).to_pylist() == [False]
        assert mask(row, loose, loose=True).to_pylist() == [True]


@pytest.mark.parametrize(
    ("holds", "value", "rows"),
    [
        ("date", date(2024, 2, 29), [date(2024, 2, 28), date(2024, 2, 29), None]),
        ("timestamp", datetime(2024, 2, 29, tzinfo=UTC), [datetime(2024, 2, 28, tzinfo=UTC), None]),
    ],
)
def test_null_stays_null(holds: Kind, value: Any, rows: list[Any]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(rows)], ["c"])
    later = Derived("c", holds, holds).then(holds, plus(1))
    assert mask(batch, later.compare("<=>", value)).to_pylist()[-1] is False
    assert mask(batch, ~later.compare("<=>", value)).to_pylist()[-1] is True
    for op in ("=", "!=", "<", ">"):
        assert mask(batch, later.compare(op, value)).to_pylist()[-1] is False
        assert mask(batch, ~later.compare(op, value)).to_pylist()[-1] is False
    assert mask(batch, later.among((None, value))).to_pylist()[-1] is False
