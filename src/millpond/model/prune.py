"""Which objects may hold a row that satisfies a predicate, decided from column statistics, for all objects at once.

Each leaf is asked the other way round: of which objects is it *proven* that no row satisfies it? Everything unknown
(no statistics, a null bound, NaN, a column of another type, an Unknown term) proves nothing, so the object is kept.

Invariant (I4): an object with a matching row is never ruled out. Bounds may be wider than the data, never narrower; a
known bound also says that there is no NaN (see `model.stats`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.bind import bind
from millpond.model.like import parse_like
from millpond.model.predicate import (
    FALSE,
    TRUE,
    And,
    Compare,
    CompareColumns,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    truth,
)
from millpond.model.stats import Bounds, ColumnRange, ColumnStats, Stats, after_prefix, collect_stats
from millpond.model.text_bounds import KERNELS, TextBounds, as_mask

__all__ = ["ColumnRange", "ColumnStats", "Pruning", "Stats", "collect_stats", "may_match"]

Mask: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.int64]

# An IN list over text is compared as so many ranges: with more values than this, neighbours share one.
_TEXT_RANGES_MAX = 16
# Up to here one comparison per value beats a search in the sorted values.
_LOOP_MAX = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# With one object left of so many, the others are not looked at any more.
_FEW = 8
# The key under which objects are counted that a predicate without a column ruled out.
NEVER_TRUE = "(never true)"


class Pruning(NamedTuple):
    """`keep[i]`: must object i be read? `skipped_by`: how many objects each column or index ruled out, each counted
    once. `failures`: which indexes failed, and how; they ruled out nothing."""

    keep: Mask
    skipped_by: dict[str, int]
    failures: Mapping[str, str] = MappingProxyType({})


def may_match(predicate: Predicate, stats: Stats) -> Pruning:
    """Never raises for what it does not understand: it keeps. (A predicate beyond its bounds is InvalidPredicate.)"""
    return may_satisfy(truth(bind(predicate, stats.schema, loose=True), loose=True), stats)


def may_satisfy(wanted: Predicate, stats: Stats) -> Pruning:
    """As `may_match`, for a predicate that is bound to the columns of `stats` and reduced by `truth`."""
    left, skipped_by = left_by_ranges(wanted, stats)
    return Pruning(mask_of(left, len(stats)), skipped_by)


def left_by_ranges(wanted: Predicate, stats: Stats) -> tuple[Places, dict[str, int]]:
    """The same: the places of the objects that must be read, and how many others each column ruled out."""
    terms = wanted.terms if isinstance(wanted, And) else (wanted,)
    groups: dict[frozenset[str], list[Predicate]] = {}
    for term in terms:
        if term != TRUE:
            groups.setdefault(columns_of(term), []).append(term)
    total = left = len(stats)
    keep: Mask | None = None
    places: Places | None = None  # once few are left, only those are looked at
    skipped_by: dict[str, int] = {}
    # Numbers first: they cost least, and the others are then asked about what they left.
    for names, group in sorted(groups.items(), key=lambda one: _is_slow(one[0], stats)):
        if left == 0:
            break
        before = left
        term = group[0] if len(group) == 1 else And(tuple(group))
        if places is not None:
            places = places[_keep(term, stats.some(places, names))]
            left = len(places)
        else:
            answer = _keep(term, stats)
            keep = answer if keep is None else keep & answer
            left = int(np.count_nonzero(keep))
            if left * _FEW <= total:
                places = np.flatnonzero(keep)
        if left < before:
            label = " or ".join(sorted(names)) or NEVER_TRUE
            skipped_by[label] = skipped_by.get(label, 0) + before - left
    if places is None:
        places = np.arange(total) if keep is None else np.flatnonzero(keep)
    return places, skipped_by


def mask_of(places: Places, total: int) -> Mask:
    """True at these places."""
    mask = np.zeros(total, dtype=np.bool_)
    mask[places] = True
    return mask


def _is_slow(names: Iterable[str], stats: Stats) -> bool:
    """Whether any of these columns is more than numbers."""
    return not all(isinstance(stats.columns[name].lows, np.ndarray) for name in names)


def keep_by_ranges(term: Predicate, stats: Stats) -> Mask:
    """Which objects may hold a row that satisfies a bound term (see `truth`). Columns without statistics: all."""
    if not columns_of(term) <= stats.columns.keys():
        return np.ones(len(stats), dtype=np.bool_)
    return _keep(term, stats)


def _keep(node: Predicate, stats: Stats) -> Mask:
    match node:
        case Compare() | In():  # most of what is asked
            return _keep_values(node, stats)
        case And(terms):
            keep = _keep(terms[0], stats)
            for term in terms[1:]:
                if not keep.any():
                    break
                keep = keep & _keep(term, stats)
            return keep
        case Or(terms):
            keep = _keep(terms[0], stats)
            for term in terms[1:]:
                if keep.all():
                    break
                keep = keep | _keep(term, stats)
            return keep
        case _ if node == FALSE:
            return np.zeros(len(stats), dtype=np.bool_)
        case IsNull(str(name)):
            some: Mask = stats.columns[name].null_counts != 0
            return some
        case IsNull(tuple()) | Not(IsNull(tuple())):
            return np.ones(len(stats), dtype=np.bool_)  # of a field inside a struct nothing is known
        case Not(IsNull(str(name))):
            return ~stats.all_null(name)
        case CompareColumns("<=>") | Not(CompareColumns()):
            return np.ones(len(stats), dtype=np.bool_)
    return _keep_values(node, stats)


def _keep_values(node: Predicate, stats: Stats) -> Mask:
    """Of a leaf that compares values: a null satisfies none of it."""
    dropped = _dropped(node, stats)
    for name in columns_of(node):
        if stats.has_all_null(name):
            nothing = stats.all_null(name)
            dropped = nothing if dropped is None else dropped | nothing
    return np.ones(len(stats), dtype=np.bool_) if dropped is None else ~dropped


def _dropped(node: Predicate, stats: Stats) -> Mask | None:
    """The objects of which the bounds prove that no row satisfies this leaf. None: of no object."""
    match node:
        case Compare(op, str(name), value):
            column = stats.columns[name]
            if value != value and op in ("=", ">="):
                return _without_nan(column)
            return _outside(op, column.lows, column.highs, _bound(column, value))
        case In(str(name), values):
            return _outside_all(stats.columns[name], values)
        case Not(In(str(name), values)):
            return _only_among(stats.columns[name], values)
        case StartsWith(str(name), prefix):
            return _outside_prefix(stats.columns[name], prefix)
        case Not(StartsWith(str(name), prefix)):
            column = stats.columns[name]
            return _starts(column.lows, prefix) & _starts(column.highs, prefix)
        case Like(str(name), pattern):
            return _outside_prefix(stats.columns[name], parse_like(pattern).prefix)
        case CompareColumns(op, str(left), str(right)):
            return _apart(op, stats.columns[left], stats.columns[right])
    return None


def _without_nan(column: ColumnStats) -> Mask:
    """A bound is known only of a column without NaN."""
    known: Mask = ~(np.isnan(column.lows) & np.isnan(column.highs))
    return known


def _outside(op: str, lows: Bounds, highs: Bounds, value: Any) -> Mask:
    match op:
        case "=":
            return _is(">", lows, value) | _is("<", highs, value)
        case "!=":
            return _is("=", lows, value) & _is("=", highs, value)
        case "<":
            return _is(">=", lows, value)
        case "<=":
            return _is(">", lows, value)
        case ">":
            return _is("<=", highs, value)
        case _:
            return _is("<", highs, value)


def _apart(op: str, left: ColumnStats, right: ColumnStats) -> Mask | None:
    if left.type != right.type:
        return None
    match op:
        case "=":
            return _is(">", left.lows, right.highs) | _is("<", left.highs, right.lows)
        case "!=":
            one = _is("=", left.lows, left.highs) & _is("=", right.lows, right.highs)
            return one & _is("=", left.lows, right.lows)
        case "<":
            return _is(">=", left.lows, right.highs)
        case "<=":
            return _is(">", left.lows, right.highs)
        case ">":
            return _is("<=", left.highs, right.lows)
        case _:
            return _is("<", left.highs, right.lows)


def _outside_all(column: ColumnStats, values: tuple[Any, ...]) -> Mask | None:
    ordered = sorted({value for value in values if value == value})
    if not ordered:
        return _without_nan(column)
    wanted = [_bound(column, value) for value in ordered]
    outside = _outside_range(column.lows, column.highs, wanted[0], wanted[-1])
    near = np.flatnonzero(~outside)
    if len(wanted) > 1 and len(near):
        # Only objects between the least and the greatest value need to be looked at closer.
        outside[near] = _outside_each(column.lows.take(near), column.highs.take(near), wanted)
    return outside


def _outside_each(lows: Bounds, highs: Bounds, wanted: list[Any]) -> Mask:
    if isinstance(lows, np.ndarray) and len(wanted) > _LOOP_MAX:
        sorted_values = np.array(wanted, dtype=lows.dtype)
        first = np.searchsorted(sorted_values, lows)  # the first value that is not below the object
        beyond = first == len(wanted)
        outside: Mask = beyond | (sorted_values[np.where(beyond, 0, first)] > highs)
        if lows.dtype.kind == "f":
            outside &= ~np.isnan(lows)  # an unknown low is NaN, which sorts last and would look beyond everything
        return outside
    step = -(-len(wanted) // _TEXT_RANGES_MAX)
    outside = np.ones(len(lows), dtype=np.bool_)
    for start in range(0, len(wanted), step):
        run = wanted[start : start + step]
        outside &= _outside_range(lows, highs, run[0], run[-1])
    return outside


def _outside_range(lows: Bounds, highs: Bounds, least: Any, most: Any) -> Mask:
    return _is(">", lows, most) | _is("<", highs, least)


def _only_among(column: ColumnStats, values: tuple[Any, ...]) -> Mask:
    """All rows hold one and the same value, and it is one of these."""
    lows, highs = column.lows, column.highs
    wanted = [_bound(column, value) for value in values]
    if isinstance(lows, np.ndarray):
        single: Mask = (lows == highs) & np.isin(lows, np.array(wanted, dtype=lows.dtype))
        return single
    same, known = _is("=", lows, highs), _in_arrow(lows)
    return same & as_mask(pc.is_in(known, value_set=pa.array(wanted, known.type)))


def _outside_prefix(column: ColumnStats, prefix: str) -> Mask | None:
    if not prefix:
        return None
    start, stop = prefix.encode(), after_prefix(prefix.encode())
    below = _is("<", column.highs, start)
    return below if stop is None else below | _is(">=", column.lows, stop)


def _starts(bounds: Bounds, prefix: str) -> Mask:
    return as_mask(pc.starts_with(_in_arrow(bounds), pattern=prefix))


def _bound(column: ColumnStats, value: Any) -> Any:
    """A literal (of the column's type, thanks to binding) in the form of the column's bounds."""
    lows = column.lows
    if isinstance(lows, TextBounds):
        return value.encode() if isinstance(value, str) else value
    if isinstance(lows, pa.Array):
        return pa.scalar(value, lows.type)
    if isinstance(value, datetime):
        value = (value - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = value.toordinal() - _EPOCH.toordinal()
    # Of the array's own type: numpy would otherwise compare in a wider one, through a copy or a lossy cast.
    return lows.dtype.type(value)


_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _is(op: str, bounds: Bounds, other: Any) -> Mask:
    """Where the comparison certainly holds: an unknown bound (NaN, null) never makes it."""
    if isinstance(bounds, np.ndarray):
        result: Mask = _ARRAYS[op](bounds, other)
        return result
    if isinstance(bounds, TextBounds) and isinstance(other, bytes):
        return bounds.certainly(op, other)
    return as_mask(KERNELS[op](_in_arrow(bounds), _in_arrow(other)))


def _in_arrow(bounds: Any) -> Any:
    return bounds.texts if isinstance(bounds, TextBounds) else bounds
