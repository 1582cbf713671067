"""What a past query asked for, as a layout can learn from it: per column the range that its predicate allows.

A range is in plain numbers, so that a tree can be cut at its ends: dates and timestamps are microseconds since 1970,
decimals their nearest doubles; an end that is None is open. Terms that are joined by AND narrow each other, of those
joined by OR only what all of them restrict is a range, the widest.

Invariant: a row that satisfies the predicate lies inside every range, unless its value there is NaN. Nothing is read or
skipped by these ranges, they only advise. Left out: text, bytes, booleans, fields of structs, negated terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

from millpond.model.bind import bind
from millpond.model.literal import Value, as_double
from millpond.model.predicate import FALSE, And, Column, Compare, In, Near, Or, Predicate, truth
from millpond.model.sphere import around

Range: TypeAlias = tuple[float | None, float | None]
Ranges: TypeAlias = dict[str, Range]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True)
class PastQuery:
    """`ranges`: of the columns that the query restricts, at least one. `weight`: how often it was asked."""

    ranges: Mapping[str, Range]
    at_micros: int
    weight: float = 1.0


def past_query(predicate: Predicate, schema: pa.Schema, at_micros: int) -> PastQuery | None:
    """What can be learnt of a query that was asked then; None if it is nothing. `schema`: the stored one."""
    wanted = truth(bind(predicate, schema, loose=True), loose=True)
    ranges = None if wanted == FALSE else _ranges(wanted)
    return PastQuery(ranges, at_micros) if ranges else None


def as_number(value: Value) -> float | None:
    """A literal on the line that layouts cut; None if it has no place there."""
    match value:
        case bool() | None | str() | bytes():
            return None
        case float():
            return value if math.isfinite(value) else None
        case int() | Decimal():
            number = as_double(value)
            return number if math.isfinite(number) else None
        case datetime():
            return float((value - _EPOCH) // _MICRO)
        case date():
            return float((value - _EPOCH.date()).days * 86_400_000_000)


def _ranges(node: Predicate) -> Ranges | None:
    """By column; None if no row can satisfy the node, empty if nothing is known of it."""
    match node:
        case And(terms):
            return _all_of([_ranges(term) for term in terms])
        case Or(terms):
            return _any_of([_ranges(term) for term in terms])
        case Compare(op, column, value):
            return _named(column, _compared(op, as_number(value)))
        case In(column, values):
            numbers = [number for number in map(as_number, values) if number is not None]
            whole = numbers and len(numbers) == len(values)
            return _named(column, (min(numbers), max(numbers)) if whole else None)
        case Near(lat, lon):
            near = around(node.to_lat, node.to_lon, node.meters)
            across = near.west is not None and near.east is not None and near.west > near.east
            return {
                **_named(lat, (near.south, near.north)),
                **_named(lon, None if across or near.west is None else (near.west, near.east)),
            }
        case _:
            return {}


def _compared(op: str, number: float | None) -> Range | None:
    if number is None:
        return None
    match op:
        case "=":
            return number, number
        case "<" | "<=":
            return None, number
        case ">" | ">=":
            return number, None
        case _:
            return None


def _named(column: Column, found: Range | None) -> Ranges:
    return {column: found} if isinstance(column, str) and found is not None else {}


def _all_of(parts: list[Ranges | None]) -> Ranges | None:
    joined: Ranges = {}
    for part in parts:
        if part is None:
            return None
        for column, (low, high) in part.items():
            known_low, known_high = joined.get(column, (None, None))
            low = known_low if low is None else low if known_low is None else max(low, known_low)
            high = known_high if high is None else high if known_high is None else min(high, known_high)
            if low is not None and high is not None and low > high:
                return None
            joined[column] = (low, high)
    return joined


def _any_of(parts: list[Ranges | None]) -> Ranges | None:
    possible = [part for part in parts if part is not None]
    if not possible:
        return None
    joined: Ranges = {}
    for column in set.intersection(*(set(part) for part in possible)):
        lows, highs = zip(*(part[column] for part in possible), strict=True)
        low = None if None in lows else min(lows)
        high = None if None in highs else max(highs)
        if low is not None or high is not None:
            joined[column] = (low, high)
    return joined
