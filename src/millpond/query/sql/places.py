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

# Units of length are within the first; what they make of any distance but 0 within the second, far from all rounding.
_FACTORS = (1e-9, 1e9)
_SCALED = (1e-100, 1e100)


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
    if not is_number(value) or not math.isfinite(limit := as_double(value)):  # type: ignore[arg-type]
        raise refused(node, "is not supported: a distance is compared with a number of meters")
    if op not in ("<", "<=", ">", ">="):
        raise refused(node, "is not supported: a distance is compared by < <= > >= or BETWEEN")
    if away.scale and limit > 0 and not _SCALED[0] <= limit <= _SCALED[1]:
        raise refused(node, "is not supported: that is no length on the Earth")
    # Farther away is the opposite of near, and null where that is.
    near = Near(*away[:4], _greatest(away, limit, below=op in ("<", ">=")))
    return near if op in ("<", "<=") else Not(near)


def scaled_distance(op: str, node: exp.Expr, away: Distance, factor: Value) -> Distance:
    """A distance in other units: `st_distance(...) / 1000`."""
    if not is_number(factor) or not _FACTORS[0] <= (by := as_double(factor)) <= _FACTORS[1]:  # type: ignore[arg-type]
        raise refused(node, "is not supported: a distance is multiplied with or divided by a number above 0")
    return away._replace(scale=(*away.scale, (op, by)))


def _greatest(away: Distance, limit: float, *, below: bool) -> float:
    """The greatest distance that comes out as at most `limit`, or as less. What it is multiplied with keeps the order,
    but rounds, so the greatest one is looked for around the quotient: a few doubles away."""
    if not away.scale or limit <= 0:
        return math.nextafter(limit, -math.inf) if below else limit
    meters = limit
    for op, factor in reversed(away.scale):
        meters = meters / factor if op == "*" else meters * factor

    def holds(candidate: float) -> bool:
        return away.scaled(candidate) < limit if below else away.scaled(candidate) <= limit

    while not holds(meters):
        meters = math.nextafter(meters, -math.inf)
    while holds(more := math.nextafter(meters, math.inf)):
        meters = more
    return meters


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
