"""The text of a WHERE clause as sqlglot's tree, and how a part of it is refused.

Invariant: string literals are read by Spark's rules, not by the library's, and no text makes the parser run out of
stack. Functions of ours that share a name with one that the library knows (`st_distance`) are left to us; so are those
whose units it would spell out (`date_trunc('M', ...)` is null in Spark, not minutes). Intervals have the units that
Spark's have: the library takes `INTERVAL 1 M` for a minute, and Spark for a mistake.
"""

from __future__ import annotations

import functools
import re

from sqlglot import Parser, Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from millpond.errors import InvalidPredicate
from millpond.query.sql.literals import unescape

# Spark's names of the functions that cut dates and timestamps to a unit.
CUTS = ("TRUNC", "DATE_TRUNC")
# sqlglot takes some 23 stack frames for a pair of parentheses, of the interpreter's 1,000.
NESTING_MAX = 32

# What Spark calls the units of an interval, besides the same in the plural.
_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_INTERVAL_WORDS = frozenset((*_UNITS, *(f"{unit}S" for unit in _UNITS), "TO"))
_AMOUNTS = (TokenType.NUMBER, TokenType.STRING)

_SUPPORTED = (
    "use AND, OR, NOT, = != < <= > >= <=>, BETWEEN, IN (...), LIKE, IS NULL, IS TRUE between columns and literals, "
    "st_box, st_near and st_distance; everything else goes into Spark SQL"
)
_PIECE_MAX = 80


def parse(sql: str) -> exp.Expr:
    dialect = Dialect.get_or_raise("spark")
    try:
        tokens = _with_spark_strings(dialect.tokenize(sql), sql)
        _check_nesting(tokens)
        _check_units(tokens)
        trees = _parser_of(dialect.parser_class)(dialect=dialect).parse_into(exp.Condition, tokens, sql)
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
            raise too_deep()


def _check_units(tokens: list[Token]) -> None:
    """Refuse an interval with a unit that is none of Spark's: `INTERVAL 1 H`, `INTERVAL '1 day 2 h'`."""
    for at, token in enumerate(tokens):
        if token.token_type == TokenType.INTERVAL:
            signed = at + 1 < len(tokens) and tokens[at + 1].token_type in (TokenType.DASH, TokenType.PLUS)
            for amount, unit in zip(tokens[at + 1 + signed :: 2], [*tokens[at + 2 + signed :: 2], None], strict=False):
                if amount.token_type not in _AMOUNTS:
                    break
                for found in re.findall(r"\d\s+([^\W\d_]+)", amount.text):
                    _check_unit(found)
                if unit is not None and unit.token_type == TokenType.VAR:
                    _check_unit(unit.text)


def _check_unit(word: str) -> None:
    if word.upper() not in _INTERVAL_WORDS:
        raise InvalidPredicate(
            f"{word[:_PIECE_MAX]!r} is no unit of an interval",
            hint=f"Spark's are {', '.join(_UNITS)}, also in the plural: INTERVAL 3 DAYS",
        )


def too_deep() -> InvalidPredicate:
    return InvalidPredicate(
        f"the predicate is nested too deep; at most {NESTING_MAX} parentheses may be open at once",
        hint="chains of AND and of OR need no parentheses; use IN for many values of one column",
    )


def refused(node: exp.Expr, why: str = "is not supported in a predicate") -> InvalidPredicate:
    try:
        piece = node.sql(dialect="spark")
    except (SqlglotError, ValueError, TypeError):
        piece = type(node).__name__
    piece = piece if len(piece) <= _PIECE_MAX else piece[: _PIECE_MAX - 3] + "..."
    return InvalidPredicate(f"{piece} {why}", hint=_SUPPORTED)


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that carries anything besides what the caller translates."""
    if any(value for name, value in node.args.items() if name not in known):
        raise refused(node)


@functools.cache
def _parser_of(known: type[Parser]) -> type[Parser]:
    ours = {name: build for name, build in known.FUNCTIONS.items() if not name.startswith("ST_") and name not in CUTS}
    return type("_Parser", (known,), {"FUNCTIONS": ours})
