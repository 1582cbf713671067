"""The text of a WHERE clause, in Spark's SQL, as a predicate.

sqlglot reads the text (`query.sql.tree`); its tree is then translated node by node. Nothing of it is used elsewhere.

Invariant: no part of the text is dropped. A node is translated only if everything it carries is understood (a NOT LIKE
differs from a LIKE by one flag on the node), anything else is `InvalidPredicate` naming the piece. So what comes out
means what Spark would make of the same text in a session whose time zone is UTC.

Left out: arithmetic but that of literals (`query.sql.arithmetic`) and of distances, functions but those of places
(`query.sql.places`) and times (`query.sql.times`), subqueries, casts of columns that do not keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import InvalidPredicate
from millpond.model.bind import bind, column_type
from millpond.model.derived import Derived
from millpond.model.like import BadPattern, parse_like
from millpond.model.literal import Value
from millpond.model.predicate import (
    NULL,
    And,
    Column,
    Compare,
    CompareColumns,
    Const,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from millpond.query.sql import arithmetic, times
from millpond.query.sql.literals import INTEGER_BITS, cast, hex_bytes, number
from millpond.query.sql.operands import Distance, Lit, Operand, Ref
from millpond.query.sql.places import box, compare_distance, distance, name_of, near, scaled_distance
from millpond.query.sql.times import cast_derived, compare_derived, derived_among, derived_of
from millpond.query.sql.tree import CUTS, only, parse, refused, too_deep

SQL_BYTES_MAX = 64 * 1024
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_where(sql: str, schema: pa.Schema) -> Predicate:
    """The predicate that `sql` says, checked against `schema`. Raises `InvalidPredicate`."""
    size = len(sql.encode(errors="replace"))
    if size > SQL_BYTES_MAX:
        raise InvalidPredicate(
            f"a predicate of {size} bytes is over the bound of {SQL_BYTES_MAX}",
            hint="shorten its IN lists, or select by a join in Spark SQL",
        )
    try:
        predicate = _Translator(schema).predicate(parse(sql))
    except RecursionError:
        raise too_deep() from None
    bind(predicate, schema)
    return predicate


class _Translator:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def predicate(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren():
                only(node, "this")
                return self.predicate(node.this)
            case exp.And() | exp.Or():
                terms = tuple(self.predicate(term) for term in node.flatten())
                return And(terms) if isinstance(node, exp.And) else Or(terms)
            case exp.Not():
                only(node, "this")
                return Not(self.predicate(node.this))
            case exp.NullSafeNEQ():
                only(node, "this", "expression")
                return Not(self._compare("<=>", node, node.this, node.expression))
            case exp.Between():
                only(node, "this", "low", "high")
                low = self._compare(">=", node, node.this, node.args["low"])
                return And((low, self._compare("<=", node, node.this, node.args["high"])))
            case exp.In():
                return self._in(node)
            case exp.Like():
                return self._like(node)
            case exp.StartsWith():
                only(node, "this", "expression")
                return StartsWith(self._plain_column(node, node.this), self._text(node, node.expression))
            case exp.Is():
                return self._is(node)
            case exp.Boolean() | exp.Null():
                return NULL if isinstance(node, exp.Null) else Const(bool(node.this))
            case exp.Column() | exp.Dot():
                column = self._column(node)
                self._require_bool(node, column)
                return Compare("=", column, True)
            case exp.Anonymous() if name_of(node) in ("st_box", "st_near"):
                return (box if name_of(node) == "st_box" else near)(node, self._operands(node))
        if type(node) in _COMPARISONS:
            only(node, "this", "expression")
            return self._compare(_COMPARISONS[type(node)], node, node.this, node.expression)
        raise refused(node)

    def _compare(self, op: str, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Predicate:
        match self._operand(left), self._operand(right):
            case Ref() as ref, Lit(value):
                return Compare(op, ref.column, ref.beside(value))
            case Lit(value), Ref() as ref:
                return Compare(_FLIPPED.get(op, op), ref.column, ref.beside(value))
            case Ref(one, False), Ref(other, False):
                return CompareColumns(op, one, other)
            case Distance() as away, Lit(value):
                return compare_distance(op, node, away, value)
            case Lit(value), Distance() as away:
                return compare_distance(_FLIPPED.get(op, op), node, away, value)
            case Derived() as found, Lit(value):
                return compare_derived(op, node, found, value)
            case Lit(value), Derived() as found:
                return compare_derived(_FLIPPED.get(op, op), node, found, value)
            case Lit(one), Lit(other):
                return _constant(op, node, one, other)
        raise refused(node, "compares a cast or a function of a column with a column, which is not supported")

    def _in(self, node: exp.In) -> Predicate:
        only(node, "this", "expressions")
        operands = [self._operand(item) for item in node.expressions]
        values = [operand.value for operand in operands if isinstance(operand, Lit)]
        match self._operand(node.this):
            case Ref() as ref if values and len(values) == len(operands):
                return In(ref.column, tuple(ref.beside(value) for value in values))
            case Derived() as found if values and len(values) == len(operands):
                return derived_among(node, found, tuple(values))
        raise refused(node, "is not supported: IN takes a column on the left and literals on the right")

    def _like(self, node: exp.Like) -> Predicate:
        only(node, "this", "expression", "negate")
        column, pattern = self._plain_column(node, node.this), self._text(node, node.expression)
        try:
            parts = parse_like(pattern)
        except BadPattern as error:
            raise InvalidPredicate(str(error), hint=r"write \\% \\_ or \\\\ for the characters themselves") from error
        found = StartsWith(column, parts.prefix) if parts.is_prefix else Like(column, pattern)
        return Not(found) if node.args.get("negate") else found

    def _is(self, node: exp.Is) -> Predicate:
        only(node, "this", "expression")
        column = self._plain_column(node, node.this)
        match node.expression:
            case exp.Null():
                return IsNull(column)
            case exp.Boolean():
                self._require_bool(node, column)
                return Compare("<=>", column, bool(node.expression.this))
        raise refused(node)

    def _text(self, node: exp.Expr, operand: exp.Expr) -> str:
        match self._operand(operand):
            case Lit(str(text)):
                return text
        raise refused(node, "is not supported: the pattern must be a string literal")

    def _plain_column(self, node: exp.Expr, operand: exp.Expr) -> Column:
        match self._operand(operand):
            case Ref(column, False):
                return column
        raise refused(node, "is not supported: it needs a column on the left")

    def _require_bool(self, node: exp.Expr, column: Column) -> None:
        kind = column_type(self._schema, column)
        if not pa.types.is_boolean(kind):
            raise refused(node, f"is not a condition: the column is {kind}, not bool")

    def _operand(self, node: exp.Expr) -> Operand:
        match node:
            case exp.Paren():
                only(node, "this")
                return self._operand(node.this)
            case exp.Column() | exp.Dot():
                return Ref(self._column(node))
            case exp.Cast():
                return self._cast(node)
            case exp.Literal() | exp.RawString() | exp.HexString() | exp.Boolean() | exp.Null():
                return Lit(_literal(node))
            case exp.Neg():
                only(node, "this")
                match self._operand(node.this):
                    case Lit((int() | float() | Decimal()) as value) if not isinstance(value, bool):
                        return Lit(value.copy_negate() if isinstance(value, Decimal) else -value)
            case exp.Anonymous() if name_of(node) == "st_distance":
                return distance(node, self._operands(node))
            case exp.Anonymous() if str(node.this).upper() in CUTS:
                return times.cut(node, self._timely)
        computed = arithmetic.constant(node)
        if computed is not None:
            return Lit(computed.value)
        if isinstance(node, times.FUNCTIONS):
            return times.function(node, self._timely)
        if isinstance(node, exp.Mul | exp.Div):
            return self._scaled(node)
        raise refused(node)

    def _scaled(self, node: exp.Mul | exp.Div) -> Distance:
        only(node, "this", "expression", "typed", "safe")
        match self._operand(node.this), self._operand(node.expression):
            case Distance() as away, Lit(factor):
                return scaled_distance("*" if isinstance(node, exp.Mul) else "/", node, away, factor)
            case Lit(factor), Distance() as away if isinstance(node, exp.Mul):
                return scaled_distance("*", node, away, factor)
        raise refused(node, "is not supported: only literals and distances are computed with")

    def _timely(self, node: exp.Expr) -> Derived | Lit | None:
        """An argument of a function of dates and timestamps."""
        match self._operand(node):
            case (Derived() | Lit()) as found:
                return found
            case Ref(column, False) as ref:
                return derived_of(ref, column_type(self._schema, column))
        return None

    def _operands(self, node: exp.Anonymous) -> list[Operand]:
        only(node, "this", "expressions")
        return [self._operand(item) for item in node.expressions]

    def _cast(self, node: exp.Cast) -> Operand:
        only(node, "this", "to")
        to = node.args["to"]
        only(to, "this", "expressions", "nested")
        name = to.this.name
        sizes = [int(size.name) for size in to.expressions if size.name.isdecimal()]
        if len(sizes) != len(to.expressions) or (sizes and name != "DECIMAL") or len(sizes) > 2:
            raise refused(node)
        precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise refused(node, "is no DECIMAL: 1 to 38 digits, of which the scale is a part")
        match self._operand(node.this):
            case Lit(value):
                try:
                    return Lit(cast(value, name, precision, scale))
                except ValueError as error:
                    raise refused(node, f"cannot be computed: {error}") from error
            case Ref(column, False) as ref:
                kind = column_type(self._schema, column)
                if name == "DOUBLE" and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
                    return Ref(column, as_double=True)
                if _widens(kind, name, precision, scale):
                    return ref
                found = derived_of(ref, kind)
                if found is not None:
                    doubled = isinstance(node.this.unnest(), exp.Cast)
                    return cast_derived(node, found, name, pa.float64() if doubled else kind)
            case Derived() as found:
                return cast_derived(node, found, name)
        raise refused(node, "is not supported: only numeric columns can be cast, and only to a wider type")

    def _column(self, node: exp.Expr) -> Column:
        names = self._names(node)
        if not names:
            raise refused(node)
        fields = list(self._schema)
        path: list[str] = []
        for name in names:
            found = _resolve(name.name, [field.name for field in fields])
            path.append(found or name.name)
            kind = next((field.type for field in fields if field.name == found), None)
            fields = list(kind) if kind is not None and pa.types.is_struct(kind) else []
        column: Column = path[0] if len(path) == 1 else tuple(path)
        column_type(self._schema, column)  # says so if there is no such column
        return column

    def _names(self, node: exp.Expr) -> list[exp.Identifier]:
        match node:
            case exp.Column():
                only(node, "this", "table", "db", "catalog")
                names = [part for part in node.parts if isinstance(part, exp.Identifier)]
                return names if len(names) == len(node.parts) else []
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                only(node, "this", "expression")
                before = self._names(node.this)
                return [*before, node.expression] if before else []
        return []


def _resolve(name: str, names: list[str]) -> str | None:
    """As in Spark, case does not matter; unlike there, the exact spelling wins over others."""
    if name in names:
        return name
    alike = [each for each in names if each.lower() == name.lower()]
    if len(alike) > 1:
        raise InvalidPredicate(
            f"column {name!r} is ambiguous: it could be {' or '.join(alike)}", hint="spell it exactly as in the schema"
        )
    return alike[0] if alike else None


def _literal(node: exp.Expr) -> Value:
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal() if node.is_string:
            return str(node.this)
    try:
        match node:
            case exp.Literal():
                return number(node.this)
            case exp.HexString():
                return hex_bytes(node.this)
    except ValueError as error:
        raise refused(node, f"is no literal: {error}") from error
    return str(node.this)


def _widens(kind: pa.DataType, name: str, precision: int, scale: int) -> bool:
    """Does the cast keep every value of the column, and compare it as before?"""
    if pa.types.is_integer(kind):
        if name == "DECIMAL":
            return precision - scale >= len(str(2 ** (kind.bit_width - 1)))
        return bool(INTEGER_BITS.get(name, 0) >= kind.bit_width)
    if pa.types.is_decimal(kind):
        return name == "DECIMAL" and scale >= kind.scale and bool(precision - scale >= kind.precision - kind.scale)
    return bool(pa.types.is_floating(kind)) and name == "DOUBLE"


def _constant(op: str, node: exp.Expr, left: Value, right: Value) -> Predicate:
    """A comparison of two literals, as generated SQL is full of (`1 = 1`)."""
    if left is None or right is None:
        return Const(left is right) if op == "<=>" else NULL
    simple = int, str, bool
    if type(left) is type(right) and isinstance(left, simple):
        return Const(_ORDER["=" if op == "<=>" else op](left, right))
    raise refused(node, "compares two literals, which is supported for integers, strings and booleans only")
