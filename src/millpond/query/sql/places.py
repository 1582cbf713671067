"""The functions of places in a WHERE clause: `st_box`, `st_near`, and `st_distance` compared with meters.

Invariant: each is the tree that Spark makes of the function of the same name (`spark.functions`), with the same nulls:
a box is comparisons, `st_near` is the comparisons of its box and the distance. Where Spark would find no row because an
argument makes no sense (a latitude of 91), the text is refused with the reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from millpond.errors import InvalidPredicate
from millpond.model.literal import Value, as_double
from millpond.model.predicate import And, Column, Near, Not, Predicate, inside
from millpond.model.sphere import FUNCTIONS, around, checked_box, checked_number, usage
from millpond.query.sql.operands import Distance, Lit, Operand, Ref, is_number
from millpond.query.sql.tree import refused


def name_of(node: exp.Anonymous) -> str:
    """The function's name if it is one of ours, else nothing."""
    name = str(node.this).lower()
    return name if name in FUNCTIONS else ""


def box(node: exp.Anonymous, operands: Sequence[Operand]) -> Predicate:
    """st_box(lat, lon, south, west, north, east): across the antimeridian if west > east."""
    lat, lon, (south, west, north, east) = _arguments(node, "st_box", operands)
    return inside(lat, lon, checked_box(south, west, north, east))


def near(node: exp.Anonymous, operands: Sequence[Operand]) -> Predicate:
    """st_near(lat, lon, to_lat, to_lon, meters): at most so many meters away."""
    lat, lon, (to_lat, to_lon, meters) = _arguments(node, "st_near", operands)
    return And((inside(lat, lon, around(to_lat, to_lon, meters)), Near(lat, lon, to_lat, to_lon, meters)))


def distance(node: exp.Anonymous, operands: Sequence[Operand]) -> Distance:
    """st_distance(lat, lon, to_lat, to_lon); the point may come first."""
    if len(operands) == 4 and isinstance(operands[0], Lit):
        operands = (*operands[2:], *operands[:2])
    lat, lon, (to_lat, to_lon) = _arguments(node, "st_distance", operands)
    return Distance(lat, lon, to_lat, to_lon)


def compare_distance(op: str, node: exp.Expr, away: Distance, value: Value) -> Predicate:
    """`away` op `value`, for the comparisons that an order has."""
    if not is_number(value) or not math.isfinite(meters := as_double(value)):  # type: ignore[arg-type]
        raise refused(node, "is not supported: a distance is compared with a number of meters")
    match op:
        case "<=":
            return Near(*away, meters)
        case "<":
            return Near(*away, _just_below(meters))
        case ">":
            return Not(Near(*away, meters))
        case ">=":
            return Not(Near(*away, _just_below(meters)))
    raise refused(node, "is not supported: a distance is compared by < <= > >= or BETWEEN")


def _just_below(meters: float) -> float:
    return math.nextafter(meters, -math.inf)


def _arguments(node: exp.Expr, name: str, operands: Sequence[Operand]) -> tuple[Column, Column, list[float]]:
    names = FUNCTIONS[name]
    if len(operands) != len(names):
        raise _wrong(f"{name} takes {len(names)} arguments, not {len(operands)}", name)
    columns = [operand.column for operand in operands[:2] if isinstance(operand, Ref)]
    if len(columns) != 2:
        raise _wrong(f"the first two arguments of {name} are columns, a latitude and a longitude", name)
    numbers = [_number(name, label, operand) for label, operand in zip(names[2:], operands[2:], strict=True)]
    return columns[0], columns[1], numbers


def _number(name: str, label: str, operand: Operand) -> float:
    value = operand.value if isinstance(operand, Lit) else None
    if not isinstance(operand, Lit) or not is_number(value):
        shown = repr(value) if isinstance(operand, Lit) else "not a literal"
        raise _wrong(f"{label} of {name} must be a number, it is {shown}", name)
    return checked_number(name, label, as_double(value))  # type: ignore[arg-type]


def _wrong(message: str, name: str) -> InvalidPredicate:
    return InvalidPredicate(message, hint=usage(name))
