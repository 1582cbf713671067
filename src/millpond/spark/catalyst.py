"""Catalyst's predicates, as `ExpressionText.java` writes them, turned into ours.

Invariant: for every row, the translation is true, false or null exactly as Spark's expression is, or it holds an
`Unknown` in the place of what was not understood, which every later step takes for "any row may match". So a class, a
type or a cast that is not listed here is never wrong, only unhelpful.

Casts of a column are seen through where no value changes: wider integers and decimals, integers and floats to doubles.
Functions that keep the order of dates, timestamps and floats are undone (`catalyst_functions`), and of a distance its
box is kept (`catalyst_places`). All others depend on rounding, or may fail.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from millpond.model.derived import Derived
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
    Unknown,
)
from millpond.spark.catalyst_functions import Node, derived
from millpond.spark.catalyst_places import within_distance

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<=>": "<=>"}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# How many decimal digits hold every value of an integer type.
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Spark escapes in LIKE by any character; our patterns by this one.
_ESCAPE = "\\"


class _NotUnderstoodError(Exception):
    """Raised inside a term; the term becomes Unknown."""


def translate(text: str, columns: Sequence[str]) -> Predicate:
    """The conjunction of a JSON list of predicates over `columns`."""
    known = frozenset(columns)
    return And(tuple(_translate(node, known) for node in json.loads(text)))


def literals(text: str) -> list[tuple[Value, bool]]:
    """The values in a JSON list of literals, each with whether it is NULL: one that was not understood is not."""
    found: list[tuple[Value, bool]] = []
    for node in json.loads(text):
        try:
            value = _value(node)
            found.append((value, value is None))
        except _NotUnderstoodError:
            found.append((None, False))
    return found


def _translate(node: Node, columns: frozenset[str]) -> Predicate:
    match node["is"]:
        case "And":
            return And(tuple(_translate(term, columns) for term in node["of"]))
        case "Or":
            return Or(tuple(_translate(term, columns) for term in node["of"]))
        case "Not":
            return Not(_translate(node["of"][0], columns))
    try:
        return _leaf(node, columns)
    except _NotUnderstoodError as error:
        return Unknown(str(error))


def _leaf(node: Node, columns: frozenset[str]) -> Predicate:
    kind, terms = node["is"], node.get("of", [])
    near = within_distance(node, lambda inner: _column(inner, columns))
    if near is not None:
        return near
    if kind in _COMPARISONS:
        return _compare(_COMPARISONS[kind], terms[0], terms[1], columns)
    match kind:
        case "Literal":
            value = _value(node)
            if value is None or isinstance(value, bool):
                return Const(value)
        case "AttributeReference" | "GetStructField" if _type(node) in ("boolean", None):
            # Of a struct's field the type is not said, but what stands for a condition is a boolean.
            return Compare("=", _column(node, columns), True)
        case "IsNull":
            return IsNull(_column(terms[0], columns))
        case "IsNotNull":
            return Not(IsNull(_column(terms[0], columns)))
        case "IsNaN":
            # Never null, hence the equality that is never null.
            return Compare("<=>", _column(terms[0], columns), float("nan"))
        case "In":
            return _in(terms[0], tuple(_value(value) for value in terms[1:]), columns)
        case "StartsWith":
            return StartsWith(_column(terms[0], columns), _text(terms[1]))
        case "Like":
            pattern = _pattern(_text(terms[1]), node["escape"])
            return Like(_column(terms[0], columns), pattern)
    raise _NotUnderstoodError(kind)


def _compare(op: str, left: Node, right: Node, columns: frozenset[str]) -> Predicate:
    if left["is"] == "Literal":
        left, right, op = right, left, _MIRRORED[op]
    if right["is"] == "Literal":
        value = _value(right)
        if value is None and op != "<=>":
            return NULL
        found = _derived(left, columns)
        if found is not None:
            return found.compare(op, _fitting(found, value))
        return Compare(op, _column(left, columns), value)
    column = _column(left, columns)
    if left["is"] != "AttributeReference" or right["is"] != "AttributeReference" or _type(left) != _type(right):
        raise _NotUnderstoodError(f"{left['is']} {op} {right['is']}")
    return CompareColumns(op, column, _column(right, columns))


def _in(operand: Node, values: tuple[Value, ...], columns: frozenset[str]) -> Predicate:
    found = _derived(operand, columns)
    if found is None:
        return In(_column(operand, columns), values)
    return found.among(tuple(None if value is None else _fitting(found, value) for value in values))


def _derived(node: Node, columns: frozenset[str]) -> Derived | None:
    """A function of a column that can be undone; None for a column itself."""
    found = None if node["is"] == "AttributeReference" else derived(node, lambda inner: _column(inner, columns))
    return found if found is not None and found.gives != "floating" else None


def _fitting(found: Derived, value: Value) -> date | datetime | int:
    """The literal, if it is of the kind that comes out."""
    match found.gives, value:
        case "integer", int() if not isinstance(value, bool):
            return value
        case "timestamp", datetime():
            return value
        case "date", date() if not isinstance(value, datetime):
            return value
    raise _NotUnderstoodError(f"{found.gives} beside {value!r}")


def _column(node: Node, columns: frozenset[str]) -> Column:
    match node["is"]:
        case "AttributeReference":
            name: str = node["name"]
            if name not in columns:
                raise _NotUnderstoodError(f"{name} is not a column of the stream")
            if "collate" in node["type"]:
                raise _NotUnderstoodError("a collation")
            return name
        case "GetStructField":
            parent = _column(node["of"][0], columns)
            return (parent, node["name"]) if isinstance(parent, str) else (*parent, node["name"])
        case "Cast":
            inner = node["of"][0]
            if inner["is"] == "AttributeReference" and _keeps_values(inner["type"], node["type"]):
                return _column(inner, columns)
            raise _NotUnderstoodError(f"a cast to {node['type']}")
    raise _NotUnderstoodError(node["is"])


def _keeps_values(source: str, target: str) -> bool:
    """Whether every value of one type is a value of the other, and compares there as it does here."""
    if source == target:
        return True
    if source in _INTEGERS and target in _INTEGERS:
        return _INTEGERS.index(source) < _INTEGERS.index(target)
    if target == "double":
        # A bigint may change, but our comparisons of integers with doubles are made as Spark makes them.
        return source in (*_INTEGERS, "float")
    wide = _DECIMAL.fullmatch(target)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if source in _INTEGERS:
        return precision - scale >= _DIGITS[source]
    narrow = _DECIMAL.fullmatch(source)
    return narrow is not None and scale >= int(narrow[2]) and precision - scale >= int(narrow[1]) - int(narrow[2])


def _type(node: Node) -> str | None:
    kind: str | None = node.get("type")
    return kind


def _text(node: Node) -> str:
    value = _value(node)
    if not isinstance(value, str):
        raise _NotUnderstoodError(f"a pattern of {node.get('type', node['is'])}")
    return value


def _pattern(pattern: str, escape: str) -> str:
    """The same LIKE pattern with a backslash as its escape."""
    if escape == _ESCAPE:
        return pattern
    if escape in pattern or _ESCAPE in pattern:
        raise _NotUnderstoodError(f"LIKE with the escape {escape!r}")
    return pattern


def _value(node: Node) -> Value:
    if node["is"] != "Literal":
        raise _NotUnderstoodError(node["is"])
    kind, text = node["type"], node["value"]
    reader = _READERS.get("decimal" if _DECIMAL.fullmatch(kind) else kind)
    if reader is None:
        raise _NotUnderstoodError(f"a literal of {kind}")
    if text is None:
        return None
    try:
        return reader(text)
    except (ValueError, OverflowError, ArithmeticError) as error:
        raise _NotUnderstoodError(f"the {kind} {text[:40]!r}") from error


_READERS: dict[str, Callable[[str], Value]] = {
    **dict.fromkeys(_INTEGERS, int),
    "float": float,
    "double": float,
    "decimal": Decimal,
    "boolean": lambda text: {"true": True, "false": False}[text],
    "string": str,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "date": lambda text: date(1970, 1, 1) + timedelta(days=int(text)),
    "timestamp": lambda text: _EPOCH + timedelta(microseconds=int(text)),
    # The type of NULL itself.
    "void": lambda text: None,
}
