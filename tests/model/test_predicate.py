"""The tree itself: its JSON, its bounds, binding to a schema, and evaluation where Arrow and Spark differ."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from millpond.errors import InvalidPredicate
from millpond.model.bind import bind
from millpond.model.evaluate import Filter, filter_batch, mask, to_expression
from millpond.model.predicate import (
    DEPTH_MAX,
    JSON_BYTES_MAX,
    NODES_MAX,
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
    columns_of,
    decode,
    encode,
    negate,
)

BIG = 2**53


def one(column: str, kind: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], names=[column])


def matches(kind: pa.DataType, values: list[Any], predicate: Predicate) -> list[bool]:
    found: list[bool] = mask(one("a", kind, values), predicate).to_pylist()
    return found


def nested(levels: int) -> Predicate:
    predicate: Predicate = Compare("=", "a", 1)
    for _ in range(levels):
        predicate = Not(predicate)
    return predicate


def test_columns_of_names_top_level_columns() -> None:
    predicate = And((Compare("<", "a", 1), Not(Or((IsNull(("s", "x")), CompareColumns("=", "b", "c"))))))
    assert columns_of(predicate) == {"a", "s", "b", "c"}


def test_negation_reaches_the_leaves_and_leaves_unknown_alone() -> None:
    predicate = And((Compare("<", "a", 1), Or((IsNull("b"), Unknown("f(x)"))), Const(None)))
    assert negate(predicate) == Or((Compare(">=", "a", 1), And((Not(IsNull("b")), Unknown("f(x)"))), Const(None)))


def test_equality_of_trees_tells_literals_of_different_types_apart() -> None:
    assert Compare("=", "a", 1) != Compare("=", "a", 1.0)
    assert Compare("=", "a", 1) != Compare("=", "a", True)
    assert In("a", (math.nan,)) == In("a", (float("nan"),))


def test_json_is_readable_and_keeps_types() -> None:
    predicate = And((Compare("<", "a", Decimal("1.50")), In(("s", "x"), (dt.date(2024, 2, 29), b"\xde", None))))
    assert encode(predicate) == (
        b'{"is":"and","terms":[{"is":"compare","op":"<","column":"a","value":{"decimal":"1.50"}},'
        b'{"is":"in","column":["s","x"],"values":[{"date":"2024-02-29"},{"bytes":"3g=="},null]}]}'
    )
    assert decode(encode(predicate)) == predicate


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"is":"eval","code":"1"}',
        b'{"is":"compare","op":"~","column":"a","value":1}',
        b'{"is":"compare","op":"=","column":"","value":1}',
        b'{"is":"compare","op":"=","column":[],"value":1}',
        b'{"is":"compare","op":"=","column":7,"value":1}',
        b'{"is":"compare","op":"=","column":"a"}',
        b'{"is":"compare","op":"=","column":"a","value":1,"more":2}',
        b'{"is":"compare","op":"=","column":"a","value":[1]}',
        b'{"is":"compare","op":"=","column":"a","value":{"decimal":"1e999999999"}}',
        b'{"is":"compare","op":"=","column":"a","value":{"decimal":"NaN"}}',
        b'{"is":"compare","op":"=","column":"a","value":{"int":"' + b"9" * 5000 + b'"}}',
        b'{"is":"compare","op":"=","column":"a","value":' + b"9" * 5000 + b"}",
        b'{"is":"compare","op":"=","column":"a","value":{"timestamp":"2024-02-29T00:00:00"}}',
        b'{"is":"compare","op":"=","column":"a","value":{"timestamp":"0001-01-01T00:00:00+10:00"}}',
        b'{"is":"compare","op":"=","column":"a","value":{"bytes":"%%"}}',
        b'{"is":"compare","op":"=","column":"a","value":{"decimal":1}}',
        b'{"is":"compare","op":"=","column":"a","value":{"decimal":"1","int":"1"}}',
        b'{"is":"compare","op":"=","column":"a","value":"\\ud800"}',
        b'{"is":"in","column":"a","values":{"int":"1"}}',
        b'{"is":"const","value":1}',
        b'{"is":"not","term":' * 100_000,
        b'{"is":"not","term":' * 500 + b'{"is":"const","value":true}' + b"}" * 500,
        b'{"is":"unknown","reason":"' + b"x" * JSON_BYTES_MAX + b'"}',
        b'{"is":"or","terms":[' + b",".join([b'{"is":"const","value":true}'] * (NODES_MAX + 1)) + b"]}",
    ],
    ids=lambda data: repr(data[:60]),
)
def test_json_from_strangers_is_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(InvalidPredicate):
        decode(data)


def test_a_tree_built_too_deep_is_refused_not_crashed_on() -> None:
    schema = pa.schema([("a", pa.int64())])
    bind(nested(DEPTH_MAX - 1), schema)
    for levels in (DEPTH_MAX, 50_000):
        with pytest.raises(InvalidPredicate, match="nested deeper"):
            bind(nested(levels), schema)


@pytest.mark.parametrize(
    ("op", "column", "value"),
    [("~", "a", 1), ("=", "", 1), ("=", (), 1), ("=", "a", object()), ("=", "a", dt.datetime(2024, 1, 1))],
)
def test_a_node_is_validated_at_birth(op: str, column: Column, value: Any) -> None:
    with pytest.raises(InvalidPredicate):
        Compare(op, column, value)


def test_an_unknown_column_is_named_with_the_columns_there_are() -> None:
    schema = pa.schema([("lat", pa.float64()), ("lon", pa.float64())])
    with pytest.raises(InvalidPredicate, match="'lut'") as caught:
        bind(Compare("<", "lut", 1), schema)
    assert "lat, lon" in caught.value.hint
    assert bind(Compare("<", "lut", 1), schema, loose=True) == Unknown("there is no column 'lut'")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), 5),
        (pa.string(), b"x"),
        (pa.int64(), "5"),
        (pa.bool_(), 1),
        (pa.date32(), 5),
        (pa.date32(), "yesterday"),
        (pa.timestamp("us", "UTC"), "2024-13-01"),
        (pa.int32(), dt.date(2024, 1, 1)),
        (pa.list_(pa.int64()), 1),
    ],
)
def test_a_literal_that_does_not_fit_is_an_error_or_loosely_unknown(kind: pa.DataType, value: Any) -> None:
    schema = pa.schema([("a", kind)])
    with pytest.raises(InvalidPredicate, match="'a'") as caught:
        bind(Compare("=", "a", value), schema)
    assert caught.value.hint
    assert isinstance(bind(Compare("=", "a", value), schema, loose=True), Unknown)


@pytest.mark.parametrize(
    ("kind", "predicate", "bound"),
    [
        (pa.int64(), Compare("<", "a", Decimal("1.5")), Compare("<", "a", 2)),
        (pa.int64(), Compare("<=", "a", Decimal("1.5")), Compare("<=", "a", 1)),
        (pa.int8(), Compare(">=", "a", 300), And((IsNull("a"), Const(None)))),
        (pa.int8(), Compare("<", "a", 300), Or((Not(IsNull("a")), Const(None)))),
        (pa.float64(), Compare("=", "a", Decimal("0.1")), Compare("=", "a", 0.1)),
        (pa.decimal128(5, 2), Compare(">", "a", Decimal("1.555")), Compare(">", "a", Decimal("1.55"))),
        (pa.date32(), Compare("=", "a", "2024-2-29"), Compare("=", "a", dt.date(2024, 2, 29))),
        (pa.binary(), Compare("=", "a", "é"), Compare("=", "a", b"\xc3\xa9")),
        (pa.string(), Like("a", "ab%"), StartsWith("a", "ab")),
        (pa.string(), Like("a", r"a\%"), Compare("=", "a", "a%")),
        (pa.int64(), In("a", (1, Decimal("1.5"), None)), Or((In("a", (1,)), Const(None)))),
        (pa.int64(), Compare("<=>", "a", None), IsNull("a")),
    ],
)
def test_binding_moves_the_literal_into_the_columns_type(
    kind: pa.DataType, predicate: Predicate, bound: Predicate
) -> None:
    assert bind(predicate, pa.schema([("a", kind)])) == bound


def test_large_integers_compare_with_decimals_exactly_and_with_doubles_as_spark_does() -> None:
    values = [BIG, BIG + 1, BIG + 2, None]
    assert matches(pa.int64(), values, Compare("=", "a", Decimal(BIG + 1))) == [False, True, False, False]
    assert matches(pa.int64(), values, Compare(">", "a", Decimal(f"{BIG}.5"))) == [False, True, True, False]
    # Spark casts the column to double here, and 2**53 + 1 is no double.
    assert matches(pa.int64(), values, Compare("=", "a", float(BIG))) == [True, True, False, False]
    assert matches(pa.int64(), values, Compare("<", "a", float(BIG + 2))) == [True, True, False, False]


@pytest.mark.parametrize("digits", [18, 38])
def test_decimals_compare_with_doubles_by_the_nearest_double(digits: int) -> None:
    """As measured in Spark: not by dividing the unscaled number as a double, which rounds twice."""
    value = Decimal("537666554764512.283")
    assert float(537666554764512283) / 1000.0 == 537666554764512.25
    assert matches(pa.decimal128(digits, 3), [value], Compare("=", "a", 537666554764512.3)) == [True]
    assert matches(pa.decimal128(digits, 3), [value], Compare("=", "a", 537666554764512.25)) == [False]


def test_nan_is_equal_to_itself_and_greater_than_everything() -> None:
    values = [1.0, math.nan, math.inf, None]
    assert matches(pa.float64(), values, Compare("=", "a", math.nan)) == [False, True, False, False]
    assert matches(pa.float64(), values, Compare(">", "a", math.inf)) == [False, True, False, False]
    assert matches(pa.float64(), values, Compare("<=", "a", math.nan)) == [True, True, True, False]
    assert matches(pa.float64(), values, Not(In("a", (1.0, math.nan)))) == [False, False, True, False]


def test_zero_has_one_value() -> None:
    assert matches(pa.float64(), [0.0, -0.0], In("a", (0, 7))) == [True, True]
    assert matches(pa.float32(), [0.0, -0.0], Compare("=", "a", -0.0)) == [True, True]


def test_text_compares_by_its_bytes() -> None:
    assert matches(pa.string(), ["Z", "a", "é", "\U00010000", "\uffff"], Compare(">", "a", "\uffee")) == [
        *[False, False, False],
        *[True, True],
    ]


@pytest.mark.parametrize("predicate", [Unknown("f(x)"), Not(Unknown("f(x)")), And((Const(True), Unknown("f(x)")))])
def test_unknown_is_refused_by_exact_evaluation_and_passes_the_loose_one(predicate: Predicate) -> None:
    batch = one("a", pa.int64(), [1, 2])
    with pytest.raises(InvalidPredicate, match=r"f\(x\)"):
        mask(batch, predicate)
    assert filter_batch(batch, predicate, loose=True).num_rows == 2


def test_a_filter_that_passes_everything_hands_out_the_batch_itself() -> None:
    batch = one("a", pa.int64(), [1, 2])
    assert filter_batch(batch, Compare(">", "a", 0)) is batch
    assert Filter(Compare("<", "a", 2**70), batch.schema).columns == {"a"}
    assert Filter(Or((Const(True), IsNull("a"))), batch.schema).passes_all
    assert Filter(Compare("=", "a", None), batch.schema).passes_none


def test_ten_thousand_terms_evaluate() -> None:
    batch = one("a", pa.int64(), [1, 9_000])
    either = Or(tuple(Compare("=", "a", n) for n in range(5_000)))
    assert mask(batch, either).to_pylist() == [True, False]
    assert pa.Table.from_batches([batch]).filter(to_expression(either, batch.schema)).num_rows == 1


@pytest.mark.parametrize("pattern", ["a\\", "a\\b", "x" * 5_000])
def test_a_like_pattern_that_spark_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPredicate, match="LIKE"):
        bind(Like("a", pattern), pa.schema([("a", pa.string())]))


@pytest.mark.parametrize(
    "predicate",
    [
        Compare(">", "a", 6.0),
        Compare("!=", "a", 5.0),
        Compare("=", "a", math.nan),
        Not(In("a", (5.0,))),
        In("a", (math.nan, 7.0)),
        CompareColumns(">", "a", "b"),
        Not(CompareColumns("<=>", "a", "b")),
    ],
)
def test_a_scanner_does_not_lose_nan_to_parquet_statistics(tmp_path: Path, predicate: Predicate) -> None:
    """F5: Parquet's own min and max leave NaN out, so that this row group looks as if it held nothing but 5."""
    table = pa.table({"a": [5.0, math.nan], "b": [5.0, 5.0]})
    pq.write_table(table, tmp_path / "nan.parquet")
    found = ds.dataset(tmp_path / "nan.parquet").to_table(filter=to_expression(predicate, table.schema))
    assert found.num_rows == 1
    assert math.isnan(found["a"][0].as_py())
