"""Dates and timestamps in a WHERE clause: intervals added to columns and literals, casts, years, cutting to a unit.

What is made of a column keeps its order and is undone (`model.preimage`), so that a comparison with a literal becomes
one of the column itself; what is made of a literal is computed.

Invariant: exactly Spark's answer in a session whose time zone is UTC, or refused. So months cannot be added to a column
of timestamps, which does not keep order at the ends of months. Where Spark would fail for a value (a cast of NaN to
INT), the row does not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from millpond.model.derived import Derived
from millpond.model.literal import Value, check, parse_date, parse_timestamp
from millpond.model.predicate import NULL, IsNull, Predicate, Unknown, walk
from millpond.model.preimage import (
    DAY,
    UTC_ZONE,
    Range,
    date_cut,
    day_of,
    divided,
    midnight_of,
    months_after,
    plus,
    plus_days,
    plus_months,
    timestamp_cut,
    topped,
    whole,
    year_of,
)
from millpond.query.sql.literals import INTEGER_BITS, TIMESTAMPS
from millpond.query.sql.operands import Lit, Operand
from millpond.query.sql.tree import only, refused

_MONTHS = {"YEAR": 12, "MONTH": 1}
_DAYS = {"WEEK": 7, "DAY": 1}
_MICROS = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1}
_DAY_TO_SECOND = re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?", re.ASCII)
# Far more than anyone adds, and no date of Spark's wraps around.
_AMOUNT_MAX = 10_000_000
_SECONDS = 1_000_000

FUNCTIONS = (
    exp.Add,
    exp.Sub,
    exp.TsOrDsAdd,
    exp.AddMonths,
    exp.Year,
    exp.TsOrDsToDate,
    exp.UnixSeconds,
)


class _Interval(NamedTuple):
    months: int
    days: int
    micros: int
    timely: bool
    """Whether it has a time of day: then a date that it is added to becomes a timestamp."""

    def plus(self, other: _Interval) -> _Interval:
        sums = (self.months + other.months, self.days + other.days, self.micros + other.micros)
        return _Interval(*sums, self.timely or other.timely)

    def negated(self) -> _Interval:
        return _Interval(-self.months, -self.days, -self.micros, self.timely)


def derived_of(column: Operand, kind: pa.DataType) -> Derived | None:
    """A column as a function of itself; None if its type has none."""
    name = getattr(column, "column", None)
    if name is None:
        return None
    if pa.types.is_date32(kind):
        return Derived(name, "date", "date")
    if pa.types.is_timestamp(kind):
        return Derived(name, "timestamp", "timestamp")
    return Derived(name, "floating", "floating") if pa.types.is_float32(kind) or pa.types.is_float64(kind) else None


def function(node: exp.Expr, operand: Callable[[exp.Expr], Derived | Lit | None]) -> Derived | Lit:
    """What one of `FUNCTIONS` makes of its argument. `operand` reads an argument: a literal, a date, a timestamp."""
    match node:
        case exp.Add() | exp.Sub():
            only(node, "this", "expression")
            return _shifted(node, operand)
        case exp.TsOrDsAdd():
            only(node, "this", "expression", "unit")
            days = _Interval(0, _integer(node, node.expression), 0, False)
            return _plus(node, _as_date(node, _argument(node, operand)), days)
        case exp.AddMonths():
            only(node, "this", "expression")
            months = _Interval(_integer(node, node.expression), 0, 0, False)
            return _plus(node, _as_date(node, _argument(node, operand)), months)
    only(node, "this", "safe")
    inner = _of_column(node, _argument(node, operand))
    match node:
        case exp.TsOrDsToDate():
            return _as_date(node, inner)
        case exp.Year():
            return _as_date(node, inner).then("integer", year_of)
        case exp.UnixSeconds() if inner.gives == "timestamp":
            return inner.then("integer", divided(_SECONDS))
    raise refused(node)


def cut(node: exp.Anonymous, operand: Callable[[exp.Expr], Derived | Lit | None]) -> Derived:
    """trunc(what, 'unit'), which gives a date, or date_trunc('unit', what), which gives a timestamp."""
    only(node, "this", "expressions")
    dated = str(node.this).upper() == "TRUNC"
    match node.expressions if dated else node.expressions[::-1]:
        case [what, exp.Literal() as unit] if unit.is_string:
            inner = _of_column(node, _argument(node, operand, what))
        case _:
            raise refused(node, "is not supported: it needs a column and a unit in quotes")
    if dated and (step := date_cut(unit.name)) is not None:
        return _as_date(node, inner).then("date", step)
    if not dated and (steps := timestamp_cut(unit.name, UTC_ZONE)) is not None:
        return _as_timestamp(node, inner).then("timestamp", *steps)
    raise refused(node, f"is null for every row: Spark has no such unit as {unit.name!r} for it")


def _of_column(node: exp.Expr, inner: Derived | Lit) -> Derived:
    if isinstance(inner, Lit):
        raise refused(node, "is not supported for a literal: write its value")
    return inner


def cast_derived(node: exp.Expr, inner: Derived, name: str, kind: pa.DataType | None = None) -> Derived:
    """CAST(a function of a column AS name). `kind`: the column's type, if it is the column itself."""
    if name == "DATE" and inner.gives in ("date", "timestamp"):
        return _as_date(node, inner)
    if name in TIMESTAMPS and inner.gives in ("date", "timestamp"):
        return _as_timestamp(node, inner)
    if name in ("INT", "BIGINT") and inner.gives == "floating" and not inner.steps:
        top = 1 << (INTEGER_BITS[name] - 1)
        cut_off = inner._replace(gives="integer", limits=Range(-top, top - 1))
        # Spark's bound is the greatest number as a floating-point one. Where that is rounded up, it is let in.
        return cut_off.then("integer", topped(top - 1)) if name == "BIGINT" or kind == pa.float32() else cut_off
    raise refused(node, "is not supported: only a wider type, a date, a timestamp or the whole part of a float")


def compare_derived(op: str, node: exp.Expr, found: Derived, value: Value) -> Predicate:
    if value is None:
        return IsNull(found.column) if op == "<=>" else NULL
    found, (fitted,) = _fitted(node, found, (value,))
    return _exact(node, found.compare(op, fitted))


def derived_among(node: exp.Expr, found: Derived, values: tuple[Value, ...]) -> Predicate:
    some = tuple(value for value in values if value is not None)
    found, fitted = _fitted(node, found, some)
    return _exact(node, found.among((*fitted, *(None for value in values if value is None))))


def _exact(node: exp.Expr, predicate: Predicate) -> Predicate:
    if any(isinstance(each, Unknown) for each in walk(predicate)):
        raise refused(node, "is not supported: it cannot be decided exactly from the column; move it to the literal")
    return predicate


def _fitted(
    node: exp.Expr, found: Derived, values: tuple[Value, ...]
) -> tuple[Derived, tuple[date | datetime | int, ...]]:
    """Both sides in the type that Spark compares them in."""
    if found.gives == "date" and any(isinstance(value, datetime) for value in values):
        found = _as_timestamp(node, found)
    fitted: list[date | datetime | int] = []
    for value in values:
        try:
            fitted.append(_fit(found, value))
        except ValueError as error:
            raise refused(node, f"cannot be compared: {error}") from error
    return found, tuple(fitted)


def _fit(found: Derived, value: Value) -> date | datetime | int:
    match found.gives, value:
        case "date", str():
            return parse_date(value)
        case "timestamp", str():
            return parse_timestamp(value)
        case "timestamp", datetime():
            return value
        case "date", date():
            return value
        case "timestamp", date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case "integer", int() if not isinstance(value, bool):
            return value
    raise ValueError(f"{value!r} is not {found.gives}")


def _argument(
    node: exp.Expr, operand: Callable[[exp.Expr], Derived | Lit | None], what: exp.Expr | None = None
) -> Derived | Lit:
    found = operand(node.this if what is None else what)
    if found is None:
        raise refused(node, "is not supported: it needs a column or a literal of dates or timestamps")
    return found


def _as_date(node: exp.Expr, inner: Derived | Lit) -> Derived:
    if isinstance(inner, Derived) and inner.gives == "date":
        return inner
    if isinstance(inner, Derived) and inner.gives == "timestamp":
        return inner.then("date", day_of(UTC_ZONE))
    raise refused(node, "is not supported: it needs a column of dates or timestamps")


def _as_timestamp(node: exp.Expr, inner: Derived) -> Derived:
    if inner.gives == "timestamp":
        return inner
    if inner.gives == "date":
        return inner.then("timestamp", midnight_of(UTC_ZONE))
    raise refused(node, "is not supported: it needs a column of dates or timestamps")


def _shifted(node: exp.Expr, operand: Callable[[exp.Expr], Derived | Lit | None]) -> Derived | Lit:
    sign = -1 if isinstance(node, exp.Sub) else 1
    by = node.expression.unnest()
    interval = _interval(by) if isinstance(by, exp.Interval | exp.Add) else None
    inner = _argument(node, operand)
    if interval is None:
        days = _integer(node, by)
        dated = inner.gives == "date" if isinstance(inner, Derived) else _is_date(inner.value)
        if not dated:
            raise refused(node, "is not supported: whole numbers are added to dates only")
        interval = _Interval(0, days, 0, False)
    return _plus(node, inner, interval if sign > 0 else interval.negated())


def _plus(node: exp.Expr, inner: Derived | Lit, interval: _Interval) -> Derived | Lit:
    months, days, micros, timely = interval
    if max(abs(months), abs(days), abs(micros) // DAY) > _AMOUNT_MAX:
        raise refused(node, "is out of bounds")
    if months and (days or micros):
        raise refused(node, "is not supported: an interval has either years and months, or days and times")
    if isinstance(inner, Lit):
        return Lit(_literal_plus(node, inner.value, interval))
    if inner.gives == "date" and not timely:
        return inner.then("date", plus_months(months) if months else plus(days))
    if months:
        raise refused(node, "is not supported: months are not added to timestamps; take them from the literal instead")
    return _as_timestamp(node, inner).then("timestamp", plus_days(days, micros, UTC_ZONE))


def _literal_plus(node: exp.Expr, value: Value, interval: _Interval) -> Value:
    if not isinstance(value, date):
        raise refused(node, "is not supported: write the literal as DATE '...' or TIMESTAMP '...'")
    months, days, micros, timely = interval
    try:
        if timely and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if months:
            day = value.date() if isinstance(value, datetime) else value
            value += timedelta(days=months_after(whole(day), months) - whole(day))
        moved = value + timedelta(days=days, microseconds=micros)
        check(moved)
    except (OverflowError, ValueError) as error:
        raise refused(node, "is outside the years 1 to 9999") from error
    return moved


def _interval(node: exp.Expr) -> _Interval:
    if isinstance(node, exp.Add):  # INTERVAL 1 DAY 2 HOURS
        only(node, "this", "expression")
        parts = (node.this, node.expression)
        if not all(isinstance(part, exp.Interval | exp.Add) for part in parts):
            raise refused(node)
        return _interval(parts[0]).plus(_interval(parts[1]))
    only(node, "this", "unit")
    unit, amount = node.args.get("unit"), node.this
    negative = isinstance(amount, exp.Neg)
    text = str((amount.this if negative else amount).name).strip() if amount is not None else ""
    if isinstance(unit, exp.IntervalSpan):
        found = _span(node, unit, text)
    else:
        found = _single(node, str(unit.name).upper() if unit is not None else "", text)
    return found.negated() if negative else found


def _span(node: exp.Expr, unit: exp.IntervalSpan, text: str) -> _Interval:
    match = _DAY_TO_SECOND.fullmatch(text)
    if (str(unit.this.name).upper(), str(unit.expression.name).upper()) != ("DAY", "SECOND") or match is None:
        raise refused(node, "is not supported: write it as INTERVAL '1 02:30:00' DAY TO SECOND, or unit by unit")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    micros = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    found = _Interval(0, int(days), micros * _SECONDS + int((fraction or "").ljust(6, "0")), True)
    return found.negated() if sign == "-" else found


def _single(node: exp.Expr, unit: str, text: str) -> _Interval:
    unit = unit if unit in (*_MONTHS, *_DAYS, *_MICROS) else unit.removesuffix("S")
    whole_number = re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) is not None
    if unit == "SECOND" and re.fullmatch(r"[+-]?\d{1,12}\.\d{1,6}", text, re.ASCII):
        return _Interval(0, 0, int(Decimal(text) * _SECONDS), True)
    if not whole_number or unit not in (*_MONTHS, *_DAYS, *_MICROS):
        raise refused(node, "is not an interval: a whole number and a unit, e.g. INTERVAL 3 DAYS")
    amount = int(text)
    return _Interval(
        amount * _MONTHS.get(unit, 0), amount * _DAYS.get(unit, 0), amount * _MICROS.get(unit, 0), unit in _MICROS
    )


def _integer(node: exp.Expr, number: exp.Expr) -> int:
    match number:
        case exp.Paren():
            return _integer(node, number.this)
        case exp.Neg():
            return -_integer(node, number.this)
        case exp.Mul():  # sqlglot's form of date_sub
            return _integer(node, number.this) * _integer(node, number.expression)
        case exp.Literal() if not number.is_string and re.fullmatch(r"\d{1,10}", str(number.this), re.ASCII):
            return int(number.this)
    raise refused(node, "is not supported: it needs a whole number or an interval")


def _is_date(value: Value) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)
