"""`st_distance` in Catalyst's trees, compared with meters: the box in which a place so near must lie.

Spark puts the function's formula in the place of its call, folds what is constant, and moves the comparison, and what
the distance is multiplied with or divided by, into the CASE. What is left is known by its shape. The point's latitude
stands there as an angle, whose rounding the box's slack covers (`model.sphere`).

Invariant: a row for which the comparison is true lies in the box. Only the CASE makes that so: it says that the columns
hold a place at all, and a formula without it (somebody's own) is not taken for ours. Beyond the box nothing is said:
an `Unknown` stands beside it, so that below a NOT it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from millpond.model.predicate import And, Column, Predicate, Unknown, inside
from millpond.model.sphere import RADIUS_METERS, around
from millpond.spark.catalyst_functions import Node

# A node is its class and children, a number is the literal, a text is whatever stands there, the same each time.
Shape: TypeAlias = "tuple[Any, ...] | float | str"

RADIAN = math.pi / 180
# Far more than the rounding of a product; far less than a box is too large by.
_ROUNDING = 1e-9
# Units of length are within these; a distance stays far from all that a double rounds away.
_FACTORS = (1e-9, 1e9)
# Comparisons that say how much something is at most, and those that do with their sides changed.
_AT_MOST = ("LessThan", "LessThanOrEqual", "EqualTo", "In")
_MIRRORED = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual", "EqualTo": "EqualTo"}


def _square_of_half(angle: Shape) -> Shape:
    return ("Pow", ("Sin", ("Divide", angle, 2.0)), 2.0)


def _formula(latitudes: Shape, cosines: Shape, longitudes: Shape) -> Shape:
    along = ("Multiply", cosines, _square_of_half(("Multiply", longitudes, RADIAN)))
    square = ("Add", _square_of_half(latitudes), along)
    return ("Multiply", ("Asin", ("Sqrt", ("Least", 1.0, square))), 2 * RADIUS_METERS)


_LATITUDE: Shape = ("Multiply", "lat", RADIAN)
# The columns before the point, and after it.
_FORMULAS = (
    _formula(
        ("Subtract", _LATITUDE, "angle"), ("Multiply", ("Cos", _LATITUDE), "cosine"), ("Subtract", "lon", "to_lon")
    ),
    _formula(
        ("Subtract", "angle", _LATITUDE), ("Multiply", "cosine", ("Cos", _LATITUDE)), ("Subtract", "to_lon", "lon")
    ),
)


class _Case(NamedTuple):
    """`operand` is at most the greatest of `values`, and null where `condition` is not true."""

    condition: Node
    operand: Node
    values: list[Node]


class _Distance(NamedTuple):
    lat: Node
    lon: Node
    to_lat: float
    to_lon: float


def within_distance(node: Node, column: Callable[[Node], Column]) -> Predicate | None:
    """What a comparison of `st_distance` implies; None if it is none, or bounds no distance from above.

    `column` names what an AttributeReference stands for, or raises."""
    case = _case(node)
    if case is None:
        return None
    operand, factor = _measured(case.operand)
    found = next(filter(None, (_distance(shape, operand) for shape in _FORMULAS)), None)
    if found is None or not _FACTORS[0] <= factor <= _FACTORS[1] or not _is_place(case.condition, found):
        return None
    numbers = [_number(value) for value in case.values]
    if not all(math.isfinite(number) for number in numbers):
        return None
    meters = max(numbers) / factor
    box = around(found.to_lat, found.to_lon, meters + abs(meters) * _ROUNDING)
    return And((inside(column(found.lat), column(found.lon), box), Unknown("a distance")))


def _case(node: Node) -> _Case | None:
    """The comparison stands in the CASE, where Spark puts it, or around it."""
    condition = None
    if _is_case(node):
        condition, node = node["of"]
    kind, terms = node["is"], node.get("of", [])
    if kind in _MIRRORED and terms[0]["is"] == "Literal":
        kind, terms = _MIRRORED[kind], terms[::-1]
    if kind not in _AT_MOST:
        return None
    operand, *values = terms
    if condition is None and _is_case(operand):
        condition, operand = operand["of"]
    return None if condition is None or not values else _Case(condition, operand, values)


def _is_case(node: Node) -> bool:
    """One WHEN without an ELSE."""
    return node["is"] == "CaseWhen" and len(node["of"]) == 2


def _measured(node: Node) -> tuple[Node, float]:
    """What is left without multiplications and divisions by literals, and what they come to."""
    factor = 1.0
    while node["is"] in ("Multiply", "Divide") and not any(_matches(shape, node, {}) for shape in _FORMULAS):
        one, other = node["of"]
        if node["is"] == "Multiply" and one["is"] == "Literal":
            one, other = other, one
        number = _number(other)
        if not math.isfinite(number) or number == 0:
            break
        node, factor = one, factor * number if node["is"] == "Multiply" else factor / number
    return node, factor


def _distance(shape: Shape, node: Node) -> _Distance | None:
    found: dict[str, Node] = {}
    if not _matches(shape, node, found):
        return None
    angle, cosine, to_lon = (_number(found[name]) for name in ("angle", "cosine", "to_lon"))
    # Comparisons with NaN are false, so what is no number is no place.
    if not (abs(angle) <= math.pi / 2 and abs(to_lon) <= 180 and abs(math.cos(angle) - cosine) < _ROUNDING):
        return None
    return _Distance(found["lat"], found["lon"], max(-90.0, min(90.0, math.degrees(angle))), to_lon)


def _is_place(condition: Node, found: _Distance) -> bool:
    """Whether the condition, if it is true, says that the columns hold degrees."""
    terms = condition["of"] if condition["is"] == "And" else [condition]
    wanted: tuple[tuple[Node, float], ...] = ((found.lat, 90.0), (found.lon, 180.0))
    shapes = [("LessThanOrEqual", ("Abs", "degrees"), most) for _, most in wanted]
    return all(
        any(_matches(shape, term, {"degrees": column}) for term in terms)
        for shape, (column, _) in zip(shapes, wanted, strict=True)
    )


def _matches(shape: Shape, node: Node, found: dict[str, Node]) -> bool:
    """`found` is given what stands in the place of each name."""
    match shape:
        case str(name):
            return found.setdefault(name, node) == node
        case tuple((kind, *terms)):
            of = node.get("of", [])
            same = node["is"] == kind and len(of) == len(terms)
            return same and all(_matches(term, each, found) for term, each in zip(terms, of, strict=True))
    return _number(node) == shape


def _number(node: Node) -> float:
    """The double in a literal; NaN for anything else."""
    if node["is"] != "Literal" or node["type"] != "double" or node["value"] is None:
        return math.nan
    return float(node["value"])
