"""Fitting a predicate to a schema: the columns exist, and every literal is of its column's own type.

Invariant: a bound predicate is true, false and null for the same rows as Spark would say of the original. Afterwards
neither evaluation nor pruning ever meets two types in one comparison between a column and a literal, a NULL literal, a
`<=>`, or a LIKE that is really an equality or a prefix. Binding what is bound changes nothing.

With `loose`, what cannot be bound becomes `Unknown` instead of an error: good for pruning and for handing out a
superset, never for an exact answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pyarrow as pa

from millpond.errors import InvalidPredicate
from millpond.model.cut import Mismatch, comparable, cut
from millpond.model.like import BadPattern, parse_like
from millpond.model.literal import Value, as_double, parse_timestamp
from millpond.model.predicate import (
    FALSE,
    NULL,
    And,
    Column,
    Compare,
    CompareColumns,
    In,
    IsNull,
    Like,
    Near,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    check_bounds,
)

_COLUMNS_SHOWN = 30


def bind(predicate: Predicate, schema: pa.Schema, *, loose: bool = False) -> Predicate:
    """`predicate` with literals of the types in `schema`. What does not fit raises, or with `loose` is Unknown."""
    check_bounds(predicate)
    types: dict[Column, pa.DataType] = {}

    def type_of(column: Column) -> pa.DataType:
        if column not in types:
            types[column] = column_type(schema, column)
        return types[column]

    def fit(node: Predicate) -> Predicate:
        match node:
            case And(terms):
                return And(tuple(map(fit, terms)))
            case Or(terms):
                return Or(tuple(map(fit, terms)))
            case Not(term):
                return Not(fit(term))
        try:
            return _fit_leaf(node, type_of)
        except InvalidPredicate as error:
            if loose:
                return Unknown(error.message)
            raise

    return fit(predicate)


def column_type(schema: pa.Schema, column: Column) -> pa.DataType:
    """The type of a column or of a field inside a struct. Raises InvalidPredicate naming what there is."""
    if isinstance(column, str) and (at := schema.get_field_index(column)) >= 0:
        return schema.field(at).type
    path = (column,) if isinstance(column, str) else column
    fields = list(schema)
    for depth, name in enumerate(path):
        named = [field for field in fields if field.name == name]
        if len(named) != 1:
            shown = ".".join(path[: depth + 1])
            raise InvalidPredicate(
                f"there is no column {shown!r}" if not named else f"there are {len(named)} columns {shown!r}",
                hint=f"the columns are {_listed(fields)}",
            )
        kind = named[0].type
        fields = list(kind) if pa.types.is_struct(kind) else []
    return kind


def _listed(fields: list[pa.Field]) -> str:
    names = [field.name for field in fields]
    more = len(names) - _COLUMNS_SHOWN
    return (", ".join(names[:_COLUMNS_SHOWN]) or "(none)") + (f" and {more} more" if more > 0 else "")


def _fit_leaf(node: Predicate, type_of: Callable[[Column], pa.DataType]) -> Predicate:
    match node:
        case Compare(op, column, None):
            type_of(column)
            return IsNull(column) if op == "<=>" else NULL
        case Compare("<=>", column, value):
            return And((Not(IsNull(column)), _compare("=", column, type_of(column), value)))
        case Compare(op, column, value):
            return _compare(op, column, type_of(column), value)
        case In(column, values):
            return _in(column, type_of(column), values)
        case IsNull(column):
            type_of(column)
        case StartsWith(column, prefix):
            _require_text(column, type_of(column), "starts with")
            return node if prefix else _always(column)
        case Like(column, pattern):
            _require_text(column, type_of(column), "LIKE")
            return _like(column, pattern)
        case CompareColumns(_, left, right):
            check_pair(left, type_of(left), right, type_of(right))
        case Near(lat, lon):
            for column in (lat, lon):
                _require_floating(column, type_of(column))
    return node


def _never(column: Column) -> Predicate:
    """False, but null where the column is null."""
    return And((IsNull(column), NULL))


def _always(column: Column) -> Predicate:
    """True, but null where the column is null."""
    return Or((Not(IsNull(column)), NULL))


def _compare(op: str, column: Column, kind: pa.DataType, value: Value) -> Predicate:
    try:
        floor, ceil = cut(kind, value)
    except Mismatch as error:
        raise InvalidPredicate(f"column {_name(column)!r}: {error}", hint=error.hint) from error
    if floor != floor:  # NaN: nothing is greater
        op = {"<=": "always", ">": "never"}.get(op, op)
    match op:
        case "always":
            return _always(column)
        case "never":
            return _never(column)
        case "<=":
            return _never(column) if floor is None else Compare("<=", column, floor)
        case ">":
            return _always(column) if floor is None else Compare(">", column, floor)
        case ">=":
            return _never(column) if ceil is None else Compare(">=", column, ceil)
        case "<":
            return _always(column) if ceil is None else Compare("<", column, ceil)
        case "!=":
            return Not(_compare("=", column, kind, value)) if floor != ceil else Compare("!=", column, floor)
    if floor is None or ceil is None:
        return _never(column)
    if floor == ceil or floor != floor:
        return Compare("=", column, floor)
    if floor < ceil:  # type: ignore[operator]
        return _never(column)
    return And((Compare(">=", column, ceil), Compare("<=", column, floor)))


def _in(column: Column, kind: pa.DataType, values: tuple[Value, ...]) -> Predicate:
    if not values:
        return FALSE
    values = _alike(column, kind, values)
    single: dict[Value, None] = {}
    ranges: list[Predicate] = []
    for value in values:
        match NULL if value is None else _compare("=", column, kind, value):
            case Compare(_, _, equal):
                single[equal] = None
            case And((Compare(), Compare())) as run:
                ranges.append(run)
    terms = list(ranges)
    if single:
        terms.append(In(column, tuple(single)))
    if None in values:
        terms.append(NULL)
    if not terms:
        return _never(column)
    return terms[0] if len(terms) == 1 else Or(tuple(terms))


def _alike(column: Column, kind: pa.DataType, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Spark compares an IN list in one common type: a single double makes it double, a timestamp among dates rules."""
    if any(isinstance(value, float) for value in values):
        return tuple(as_double(v) if isinstance(v, int | Decimal) and not isinstance(v, bool) else v for v in values)
    if pa.types.is_date32(kind) and any(isinstance(value, datetime) for value in values):
        try:
            return tuple(parse_timestamp(value) if isinstance(value, str) else value for value in values)
        except ValueError as error:
            raise InvalidPredicate(f"column {_name(column)!r}: {error}", hint="write timestamps in full") from error
    return values


def _like(column: Column, pattern: str) -> Predicate:
    try:
        parts = parse_like(pattern)
    except BadPattern as error:
        raise InvalidPredicate(str(error), hint=r"write \% \_ or \\ for the characters themselves") from error
    if not parts.wild:
        return Compare("=", column, parts.prefix)
    if parts.is_prefix:
        return StartsWith(column, parts.prefix) if parts.prefix else _always(column)
    return Like(column, pattern)


def _require_text(column: Column, kind: pa.DataType, what: str) -> None:
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidPredicate(
            f"{what} needs a string column, {_name(column)!r} is {kind}", hint="compare with =, <, > or IN instead"
        )


def _require_floating(column: Column, kind: pa.DataType) -> None:
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        raise InvalidPredicate(
            f"a distance needs columns of floating-point degrees, {_name(column)!r} is {kind}",
            hint="name a latitude and a longitude of type float or double",
        )


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two columns compare as Spark compares them; None: not one that Arrow casts to exactly."""
    if left == right:
        return left if comparable(left) else None
    if not (comparable(left) and comparable(right)):
        return None
    integers = pa.types.is_integer(left), pa.types.is_integer(right)
    floats = pa.types.is_floating(left), pa.types.is_floating(right)
    decimals = pa.types.is_decimal(left), pa.types.is_decimal(right)
    if all(integers):
        return pa.int64() if pa.types.is_signed_integer(left) and pa.types.is_signed_integer(right) else None
    if any(floats):
        return pa.float64() if all(i or f for i, f in zip(integers, floats, strict=True)) else None
    if any(decimals):
        # 76 digits hold 38 before and 38 behind the point: no rescaling can overflow.
        known = all(i or d for i, d in zip(integers, decimals, strict=True))
        return pa.decimal256(76, max(k.scale for k in (left, right) if pa.types.is_decimal(k))) if known else None
    if {left.id, right.id} == {pa.lib.Type_DATE32, pa.lib.Type_TIMESTAMP}:
        return left if pa.types.is_timestamp(left) else right
    return None


def check_pair(left: Column, left_type: pa.DataType, right: Column, right_type: pa.DataType) -> None:
    if common_type(left_type, right_type) is None:
        raise InvalidPredicate(
            f"column {_name(left)!r} ({left_type}) cannot be compared with column {_name(right)!r} ({right_type})",
            hint="compare columns of like types, or do this comparison in Spark",
        )


def _name(column: Column) -> str:
    return column if isinstance(column, str) else ".".join(column)
