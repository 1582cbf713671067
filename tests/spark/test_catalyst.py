"""Catalyst's predicates to ours, on the JSON that the Java side writes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.model.predicate import (
    NULL,
    And,
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
from millpond.model.prune import may_match
from millpond.model.stats import Stats, collect_stats
from millpond.spark.catalyst import translate

COLUMNS = ["b", "i", "l", "f", "d", "m", "t", "day", "at", "flag", "st"]


def literal(kind: str, value: str | None) -> dict[str, Any]:
    return {"is": "Literal", "type": kind, "value": value}


def column(name: str, kind: str = "int") -> dict[str, Any]:
    return {"is": "AttributeReference", "name": name, "type": kind}


def cast(inner: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"is": "Cast", "type": kind, "of": [inner]}


def node(kind: str, *terms: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"is": kind, "of": list(terms), **more}


def translated(expression: dict[str, Any]) -> Predicate:
    (term,) = translate(json.dumps([expression]), COLUMNS).terms  # type: ignore[union-attr]
    return term


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (node("EqualTo", column("i"), literal("int", "3")), Compare("=", "i", 3)),
        (node("LessThan", literal("int", "3"), column("i")), Compare(">", "i", 3)),
        (node("EqualNullSafe", column("i"), literal("int", None)), Compare("<=>", "i", None)),
        (node("EqualTo", column("i"), literal("int", None)), NULL),
        (node("GreaterThanOrEqual", column("d", "double"), literal("double", "NaN")), Compare(">=", "d", float("nan"))),
        (node("LessThanOrEqual", column("f", "float"), literal("float", "0.5")), Compare("<=", "f", 0.5)),
        (
            node("EqualTo", column("m", "decimal(5,2)"), literal("decimal(5,2)", "1.50")),
            Compare("=", "m", Decimal("1.50")),
        ),
        (node("EqualTo", column("day", "date"), literal("date", "-1")), Compare("=", "day", date(1969, 12, 31))),
        (
            node("EqualTo", column("at", "timestamp"), literal("timestamp", "1000001")),
            Compare("=", "at", datetime(1970, 1, 1, 0, 0, 1, 1, UTC)),
        ),
        (node("In", column("i"), literal("int", "1"), literal("int", None)), In("i", (1, None))),
        (node("IsNull", column("i")), IsNull("i")),
        (node("IsNotNull", column("i")), Not(IsNull("i"))),
        (node("IsNaN", column("d", "double")), Compare("<=>", "d", float("nan"))),
        (node("StartsWith", column("t", "string"), literal("string", "a")), StartsWith("t", "a")),
        (node("Like", column("t", "string"), literal("string", "a\\_%"), escape="\\"), Like("t", "a\\_%")),
        (node("Like", column("t", "string"), literal("string", "a%"), escape="!"), Like("t", "a%")),
        (column("flag", "boolean"), Compare("=", "flag", True)),
        (literal("boolean", "false"), Const(False)),
        (node("Not", column("flag", "boolean")), Not(Compare("=", "flag", True))),
        (node("LessThan", column("i"), column("l", "int")), CompareColumns("<", "i", "l")),
        (
            node("EqualTo", node("GetStructField", column("st", "struct<x:int>"), name="x"), literal("int", "1")),
            Compare("=", ("st", "x"), 1),
        ),
        (node("EqualTo", cast(column("i"), "bigint"), literal("bigint", "3")), Compare("=", "i", 3)),
        (node("LessThan", cast(column("l", "bigint"), "double"), literal("double", "1.5")), Compare("<", "l", 1.5)),
        (
            node("EqualTo", cast(column("i"), "decimal(11,1)"), literal("decimal(11,1)", "1.5")),
            Compare("=", "i", Decimal("1.5")),
        ),
        (node("IsNull", cast(column("i"), "bigint")), IsNull("i")),
    ],
)
def test_what_is_understood(expression: dict[str, Any], expected: Predicate) -> None:
    assert translated(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        node("EqualTo", cast(column("l", "bigint"), "int"), literal("int", "3")),
        node("EqualTo", cast(column("i"), "float"), literal("float", "3.0")),
        node("EqualTo", cast(column("i"), "decimal(10,1)"), literal("decimal(10,1)", "3.0")),
        node("EqualTo", cast(column("m", "decimal(9,2)"), "decimal(9,3)"), literal("decimal(9,3)", "3.0")),
        node("EqualTo", cast(column("m", "decimal(9,2)"), "double"), literal("double", "3.0")),
        node("EqualTo", cast(column("day", "date"), "timestamp"), literal("timestamp", "0")),
        node("EqualTo", cast(column("at", "timestamp"), "date"), literal("date", "0")),
        node("EqualTo", cast(column("t", "string"), "int"), literal("int", "0")),
        node("EqualTo", cast(column("i"), "string"), literal("string", "0")),
        node("EqualTo", column("t", "string collate UTF8_LCASE"), literal("string collate UTF8_LCASE", "a")),
        node("EqualTo", column("at", "timestamp_ntz"), literal("timestamp_ntz", "0")),
        node("EqualTo", column("at", "timestamp"), literal("timestamp", str(2**63 - 1))),
        node("EqualTo", column("day", "date"), literal("date", str(2**31 - 1))),
        node("EqualTo", column("elsewhere"), literal("int", "0")),
        node("EqualTo", node("Add", column("i"), literal("int", "1")), literal("int", "2")),
        node("EqualTo", column("i"), {"is": "Opaque"}),
        node("In", column("i"), node("Add", column("l"), literal("int", "1"))),
        node("Like", column("t", "string"), literal("string", "a!%"), escape="!"),
        node("EndsWith", column("t", "string"), literal("string", "a")),
        node("ScalarSubquery"),
        {"is": "Opaque"},
    ],
)
def test_what_is_not_is_unknown_and_stays_so_below_not(expression: dict[str, Any]) -> None:
    assert isinstance(translated(expression), Unknown)
    assert isinstance(translated(node("Not", expression)), Not)
    around = node("Or", node("IsNull", column("i")), expression)
    match translated(around):
        case Or((IsNull("i"), Unknown())):
            pass
        case other:
            pytest.fail(f"{other}")


def test_a_list_is_a_conjunction() -> None:
    text = json.dumps([node("IsNull", column("i")), node("IsNotNull", column("l"))])
    assert translate(text, COLUMNS) == And((IsNull("i"), Not(IsNull("l"))))
    assert translate("[]", COLUMNS) == And(())


@pytest.mark.parametrize(("kind", "most"), [("int", 2**31 - 1), ("bigint", 2**63 - 1)])
@pytest.mark.parametrize(
    ("op", "value"), [("EqualTo", 0), ("LessThanOrEqual", 0), ("GreaterThan", -1), ("GreaterThanOrEqual", 0)]
)
def test_what_is_beyond_an_integer_may_come_out_as_its_greatest(kind: str, most: int, op: str, value: int) -> None:
    """By the session's settings a cast of a large float gives the end of the type: such rows are never ruled out."""
    compared = node(op, cast(column("d", "double"), kind), literal(kind, str(most + value)))
    batch = pa.record_batch([pa.array([1e30, 2e30])], ["d"])
    found = may_match(translated(compared), Stats.gather(batch.schema, [collect_stats(batch)], [2]))
    assert found.keep.tolist() == [True]
    small = pa.record_batch([pa.array([1.0, 2.0])], ["d"])
    if op != "LessThanOrEqual":
        found = may_match(translated(compared), Stats.gather(small.schema, [collect_stats(small)], [2]))
        assert found.keep.tolist() == [False], "what is below it is ruled out as ever"
