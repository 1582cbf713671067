"""A function of a column that keeps its order, compared with a literal: as a predicate on the column itself.

Invariant: where the range is exact, the predicate is true, false and null for the rows of Spark's comparison. Where
it is not, or where a bound is beyond the years of Python, an `Unknown` stands beside the range: true for no fewer rows.
See `model.preimage`.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any, NamedTuple

from millpond.model.predicate import NULL, And, Column, Compare, IsNull, Not, Or, Predicate, Unknown
from millpond.model.preimage import Kind, Range, Step, date_at, range_of, timestamp_at, undone, whole


class Derived(NamedTuple):
    """What a function makes of a column. `holds`: what the column holds; `gives`: what comes out.

    `nan`: the column's NaN may come out as anything. `limits`: what can come out at all; rows beyond match nothing."""

    column: Column
    holds: Kind
    gives: Kind
    steps: tuple[Step, ...] = ()
    nan: bool = False
    limits: Range = Range(None, None)

    def then(self, gives: Kind, *steps: Step) -> Derived:
        """A further function, outside of this one."""
        return self._replace(gives=gives, steps=(*steps, *self.steps))

    def compare(self, op: str, value: date | datetime | int) -> Predicate:
        """The comparison with a literal of the kind that comes out, which the caller has seen to."""
        if op == "!=":
            return Not(self.compare("=", value))
        if op == "<=>":
            return And((Not(IsNull(self.column)), self.compare("=", value)))
        found = range_of(op, whole(value))
        low = max((low for low in (found.low, self.limits.low) if low is not None), default=None)
        high = min((high for high in (found.high, self.limits.high) if high is not None), default=None)
        if low is not None and high is not None and low > high:
            return And((IsNull(self.column), NULL))  # never true, and null where the column is
        return self._within(undone(Range(low, high), self.steps))

    def among(self, values: tuple[date | datetime | int | None, ...]) -> Predicate:
        return Or(tuple(NULL if value is None else self.compare("=", value) for value in values))

    def _within(self, found: Range) -> Predicate:
        terms: list[Predicate] = []
        exact = found.exact
        bounds = [(">=", found.low), ("<=", found.high)]
        if found.low == found.high and self.holds != "floating":
            bounds = [("=", found.low)]  # which value lists and Bloom filters can be asked for
        for op, bound in bounds:
            if bound is None:
                continue
            term = self._bound(op, bound)
            if term is None:
                exact = False
            else:
                terms.append(term)
        if self.nan:
            terms = [Or((And(tuple(terms)), Compare("<=>", self.column, math.nan)))] if terms else []
            exact = False
        if not terms:
            exact = False
        return And((*terms, *(() if exact else (Unknown("a function of a column, in doubt"),))))

    def _bound(self, op: str, bound: int) -> Predicate | None:
        literal: Any = bound
        match self.holds:
            case "date":
                literal = date_at(bound)
            case "timestamp":
                literal = timestamp_at(bound)
            case "floating":
                return _cut_off(op, self.column, bound)
        return None if literal is None else Compare(op, self.column, literal)


def _cut_off(op: str, column: Column, bound: int) -> Predicate:
    """What a floating-point number must be for its whole part to compare so."""
    if op == ">=":
        return Compare(">=", column, _double(bound, up=True)) if bound > 0 else Compare(">", column, _double(bound - 1))
    return Compare("<=", column, _double(bound)) if bound < 0 else Compare("<", column, _double(bound + 1, up=True))


def _double(bound: int, *, up: bool = False) -> float:
    """The double nearest to an integer that is not above it; with `up`, not below."""
    near = float(bound)
    if up:
        return near if int(near) >= bound else math.nextafter(near, math.inf)
    return near if int(near) <= bound else math.nextafter(near, -math.inf)
