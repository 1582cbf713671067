"""Arithmetic of number literals in a WHERE clause, computed once: `5 * 1000`, `(48.5 + 0.1)`, `1e3 / 2`.

Invariant: exactly the value that Spark computes, or refused. So what would overflow there, or be rounded (a division of
decimals, a product of too many digits), is refused, and so is what has no number literals at its leaves: the width of
`CAST(5 AS TINYINT)` is not known any more. Doubles (`5D`) are.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from decimal import localcontext as decimal_context
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlglot import exp

from millpond.model.literal import DIGITS_MAX, as_double
from millpond.query.sql.literals import number
from millpond.query.sql.tree import only, refused

OPERATIONS = (exp.Add, exp.Sub, exp.Mul, exp.Div)

Kind: TypeAlias = Literal["int", "bigint", "decimal", "double"]

_BITS = {"int": 32, "bigint": 64}
# As many digits as Spark gives to a decimal that any number of the type fits into.
_DIGITS = {"int": 10, "bigint": 20}
# What Spark's decimals hold without rounding.
_PRECISION_MAX = 38
_EXACT: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: lambda one, other: one + other,
    exp.Sub: lambda one, other: one - other,
    exp.Mul: lambda one, other: one * other,
}


class Number(NamedTuple):
    """`digits`: as many as it has as one of Spark's decimals, or more."""

    value: int | float | Decimal
    kind: Kind
    digits: int


def constant(node: exp.Expr) -> Number | None:
    """The number that literals and operations come to; None if there is anything else in it."""
    match node:
        case exp.Paren():
            only(node, "this")
            return constant(node.this)
        case exp.Literal() if not node.is_string:
            return _literal(node)
        case exp.Cast() if node.args["to"].this.name == "DOUBLE":
            only(node, "this", "to")
            inner = constant(node.this)
            return None if inner is None else Number(as_double(inner.value), "double", 0)
        case exp.Neg():
            only(node, "this")
            inner = constant(node.this)
            return None if inner is None else inner._replace(value=_negated(inner.value))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            only(node, "this", "expression", "typed", "safe")
            one, other = constant(node.this), constant(node.expression)
            return None if one is None or other is None else _operate(node, one, other)
    return None


def _literal(node: exp.Literal) -> Number:
    try:
        value: Any = number(node.this)
    except ValueError as error:
        raise refused(node, f"is no literal: {error}") from error
    if isinstance(value, float):
        return Number(value, "double", 0)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        return Number(value, "decimal", max(len(digits), -int(exponent)))
    kind: Kind = "int" if value < 2**31 else "bigint" if value < 2**63 else "decimal"
    return Number(value if kind != "decimal" else Decimal(value), kind, len(str(value)))


def _operate(node: exp.Expr, one: Number, other: Number) -> Number:
    kinds = {one.kind, other.kind}
    if "double" in kinds or (isinstance(node, exp.Div) and "decimal" not in kinds):
        return Number(_doubled(node, as_double(one.value), as_double(other.value)), "double", 0)
    if isinstance(node, exp.Div):
        raise refused(node, "is not computed here: Spark rounds a division of decimals; write a double (2.5D)")
    compute = _EXACT[type(node)]
    if "decimal" in kinds:
        digits = one.digits + other.digits + 1
        if digits > _PRECISION_MAX:
            raise refused(node, f"has more than the {_PRECISION_MAX} digits of a decimal")
        with decimal_context() as context:
            context.prec = 3 * DIGITS_MAX
            return Number(compute(Decimal(one.value), Decimal(other.value)), "decimal", digits)
    kind: Kind = "bigint" if "bigint" in kinds else "int"
    value = compute(one.value, other.value)
    if not -(2 ** (_BITS[kind] - 1)) <= value < 2 ** (_BITS[kind] - 1):
        raise refused(node, f"overflows: both sides are {kind.upper()}; write a double (5D)")
    return Number(value, kind, _DIGITS[kind])


def _doubled(node: exp.Expr, one: float, other: float) -> float:
    if not isinstance(node, exp.Div):
        result: float = _EXACT[type(node)](one, other)
        return result
    if other == 0:
        raise refused(node, "divides by zero")
    return one / other


def _negated(value: int | float | Decimal) -> int | float | Decimal:
    return value.copy_negate() if isinstance(value, Decimal) else -value
