"""The text of a WHERE clause, in Spark's SQL, as a predicate.

sqlglot reads the text; its tree is then translated node by node. Nothing of it is used anywhere else.

Invariant: no part of the text is dropped. A node is translated only if everything it carries is understood (a NOT LIKE
differs from a LIKE by one flag on the node), anything else is `InvalidPredicate` naming the piece. So what comes out
means what Spark would make of the same text in a session whose time zone is UTC.

Left out: arithmetic, functions, subqueries, casts of columns that narrow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from millpond.errors import InvalidPredicate
from millpond.model.bind import bind, column_type
from millpond.model.like import BadPattern, parse_like
from millpond.model.literal import Value, as_double
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
from millpond.query.sql_literals import INTEGER_BITS, cast, hex_bytes, number, unescape

SQL_BYTES_MAX = 64 * 1024
# sqlglot takes some 23 stack frames for a pair of parentheses, of the interpreter's 1,000.
NESTING_MAX = 32

_SUPPORTED = (
    "use AND, OR, NOT, = != < <= > >= <=>, BETWEEN, IN (...), LIKE, IS NULL, IS TRUE between columns and literals; "
    "everything else goes into Spark SQL"
)
_PIECE_MAX = 80
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


class _Ref(NamedTuple):
    """A column in the text; `as_double`: it was cast to DOUBLE, so literals beside it are doubles."""

    column: Column
    as_double: bool = False


class _Lit(NamedTuple):
    value: Value


_Operand: TypeAlias = _Ref | _Lit


def parse_where(sql: str, schema: pa.Schema) -> Predicate:
    """The predicate that `sql` says, checked against `schema`. Raises `InvalidPredicate`."""
    size = len(sql.encode(errors="replace"))
    if size > SQL_BYTES_MAX:
        raise InvalidPredicate(
            f"a predicate of {size} bytes is over the bound of {SQL_BYTES_MAX}",
            hint="shorten its IN lists, or select by a join in Spark SQL",
        )
    try:
        predicate = _Translator(schema).predicate(_parse(sql))
    except RecursionError:
        raise _too_deep() from None
    bind(predicate, schema)
    return predicate


def _parse(sql: str) -> exp.Expr:
    dialect = Dialect.get_or_raise("spark")
    try:
        tokens = _with_spark_strings(dialect.tokenize(sql), sql)
        _check_nesting(tokens)
        trees = dialect.parser().parse_into(exp.Condition, tokens, sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = str(first.get("highlight") or "")[:_PIECE_MAX]
        where = f" at {near!r} (line {first.get('line')}, column {first.get('col')})" if near else ""
        raise InvalidPredicate(f"the predicate is not SQL{where}", hint=_SUPPORTED) from error
    except SqlglotError as error:
        raise InvalidPredicate(
            "the predicate is not SQL: a string, quoted name or comment in it does not end",
            hint="close it; a quote inside of a string is written twice",
        ) from error
    if len(trees) != 1 or trees[0] is None:
        raise InvalidPredicate(
            "the predicate is empty" if not any(trees) else "the predicate has more than one statement",
            hint="write one condition, as after WHERE",
        )
    return trees[0]


def _with_spark_strings(tokens: list[Token], sql: str) -> list[Token]:
    """String literals read by Spark's rules; neighbours are one literal ('it''s' is it's, 'a' 'b' is ab)."""
    result: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.STRING:
            result.append(token)
            continue
        raw = sql[token.start : token.end + 1]
        if len(raw) < 2 or raw[0] not in "'\"" or raw[0] != raw[-1]:
            raise InvalidPredicate(f"cannot read the string {raw[:_PIECE_MAX]}", hint="write it as '...'")
        token.text = unescape(raw[1:-1])
        before = result[-1] if result else None
        if before is not None and before.token_type == TokenType.STRING:
            doubled = before.end + 1 == token.start and sql[before.end] == raw[0]
            before.text += (raw[0] if doubled else "") + token.text
            before.end = token.end
        else:
            result.append(token)
    return result


def _check_nesting(tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth > NESTING_MAX:
            raise _too_deep()


def _too_deep() -> InvalidPredicate:
    return InvalidPredicate(
        f"the predicate is nested too deep; at most {NESTING_MAX} parentheses may be open at once",
        hint="chains of AND and of OR need no parentheses; use IN for many values of one column",
    )


def _refused(node: exp.Expr, why: str = "is not supported in a predicate") -> InvalidPredicate:
    try:
        piece = node.sql(dialect="spark")
    except (SqlglotError, ValueError, TypeError):
        piece = type(node).__name__
    piece = piece if len(piece) <= _PIECE_MAX else piece[: _PIECE_MAX - 3] + "..."
    return InvalidPredicate(f"{piece} {why}", hint=_SUPPORTED)


def _only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that carries anything besides what the caller translates."""
    if any(value for name, value in node.args.items() if name not in known):
        raise _refused(node)


class _Translator:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def predicate(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren():
                _only(node, "this")
                return self.predicate(node.this)
            case exp.And() | exp.Or():
                terms = tuple(self.predicate(term) for term in node.flatten())
                return And(terms) if isinstance(node, exp.And) else Or(terms)
            case exp.Not():
                _only(node, "this")
                return Not(self.predicate(node.this))
            case exp.NullSafeNEQ():
                _only(node, "this", "expression")
                return Not(self._compare("<=>", node, node.this, node.expression))
            case exp.Between():
                _only(node, "this", "low", "high")
                low = self._compare(">=", node, node.this, node.args["low"])
                return And((low, self._compare("<=", node, node.this, node.args["high"])))
            case exp.In():
                return self._in(node)
            case exp.Like():
                return self._like(node)
            case exp.StartsWith():
                _only(node, "this", "expression")
                return StartsWith(self._plain_column(node, node.this), self._text(node, node.expression))
            case exp.Is():
                return self._is(node)
            case exp.Boolean() | exp.Null():
                return NULL if isinstance(node, exp.Null) else Const(bool(node.this))
            case exp.Column() | exp.Dot():
                column = self._column(node)
                self._require_bool(node, column)
                return Compare("=", column, True)
        if type(node) in _COMPARISONS:
            _only(node, "this", "expression")
            return self._compare(_COMPARISONS[type(node)], node, node.this, node.expression)
        raise _refused(node)

    def _compare(self, op: str, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Predicate:
        match self._operand(left), self._operand(right):
            case _Ref() as ref, _Lit(value):
                return Compare(op, ref.column, _beside(ref, value))
            case _Lit(value), _Ref() as ref:
                return Compare(_FLIPPED.get(op, op), ref.column, _beside(ref, value))
            case _Ref(one, False), _Ref(other, False):
                return CompareColumns(op, one, other)
            case _Lit(one), _Lit(other):
                return _constant(op, node, one, other)
        raise _refused(node, "compares a cast column with a column, which is not supported")

    def _in(self, node: exp.In) -> Predicate:
        _only(node, "this", "expressions")
        operands = [self._operand(item) for item in node.expressions]
        values = [operand.value for operand in operands if isinstance(operand, _Lit)]
        match self._operand(node.this):
            case _Ref() as ref if values and len(values) == len(operands):
                return In(ref.column, tuple(_beside(ref, value) for value in values))
        raise _refused(node, "is not supported: IN takes a column on the left and literals on the right")

    def _like(self, node: exp.Like) -> Predicate:
        _only(node, "this", "expression", "negate")
        column, pattern = self._plain_column(node, node.this), self._text(node, node.expression)
        try:
            parts = parse_like(pattern)
        except BadPattern as error:
            raise InvalidPredicate(str(error), hint=r"write \\% \\_ or \\\\ for the characters themselves") from error
        found = StartsWith(column, parts.prefix) if parts.is_prefix else Like(column, pattern)
        return Not(found) if node.args.get("negate") else found

    def _is(self, node: exp.Is) -> Predicate:
        _only(node, "this", "expression")
        column = self._plain_column(node, node.this)
        match node.expression:
            case exp.Null():
                return IsNull(column)
            case exp.Boolean():
                self._require_bool(node, column)
                return Compare("<=>", column, bool(node.expression.this))
        raise _refused(node)

    def _text(self, node: exp.Expr, operand: exp.Expr) -> str:
        match self._operand(operand):
            case _Lit(str(text)):
                return text
        raise _refused(node, "is not supported: the pattern must be a string literal")

    def _plain_column(self, node: exp.Expr, operand: exp.Expr) -> Column:
        match self._operand(operand):
            case _Ref(column, False):
                return column
        raise _refused(node, "is not supported: it needs a column on the left")

    def _require_bool(self, node: exp.Expr, column: Column) -> None:
        kind = column_type(self._schema, column)
        if not pa.types.is_boolean(kind):
            raise _refused(node, f"is not a condition: the column is {kind}, not bool")

    def _operand(self, node: exp.Expr) -> _Operand:
        match node:
            case exp.Paren():
                _only(node, "this")
                return self._operand(node.this)
            case exp.Column() | exp.Dot():
                return _Ref(self._column(node))
            case exp.Cast():
                return self._cast(node)
            case exp.Literal() | exp.RawString() | exp.HexString() | exp.Boolean() | exp.Null():
                return _Lit(_literal(node))
            case exp.Neg():
                _only(node, "this")
                match self._operand(node.this):
                    case _Lit((int() | float() | Decimal()) as value) if not isinstance(value, bool):
                        return _Lit(value.copy_negate() if isinstance(value, Decimal) else -value)
        raise _refused(node)

    def _cast(self, node: exp.Cast) -> _Operand:
        _only(node, "this", "to")
        to = node.args["to"]
        _only(to, "this", "expressions", "nested")
        name = to.this.name
        sizes = [int(size.name) for size in to.expressions if size.name.isdecimal()]
        if len(sizes) != len(to.expressions) or (sizes and name != "DECIMAL") or len(sizes) > 2:
            raise _refused(node)
        precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise _refused(node, "is no DECIMAL: 1 to 38 digits, of which the scale is a part")
        match self._operand(node.this):
            case _Lit(value):
                try:
                    return _Lit(cast(value, name, precision, scale))
                except ValueError as error:
                    raise _refused(node, f"cannot be computed: {error}") from error
            case _Ref(column, False) as ref:
                kind = column_type(self._schema, column)
                if name == "DOUBLE" and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
                    return _Ref(column, as_double=True)
                if _widens(kind, name, precision, scale):
                    return ref
        raise _refused(node, "is not supported: only numeric columns can be cast, and only to a wider type")

    def _column(self, node: exp.Expr) -> Column:
        names = self._names(node)
        if not names:
            raise _refused(node)
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
                _only(node, "this", "table", "db", "catalog")
                names = [part for part in node.parts if isinstance(part, exp.Identifier)]
                return names if len(names) == len(node.parts) else []
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                _only(node, "this", "expression")
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
        raise _refused(node, f"is no literal: {error}") from error
    return str(node.this)


def _beside(ref: _Ref, value: Value) -> Value:
    if ref.as_double and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return as_double(value)
    return value


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
    raise _refused(node, "compares two literals, which is supported for integers, strings and booleans only")
