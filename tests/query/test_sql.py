"""The WHERE clause: what is understood means what Spark means by it, and everything else is refused by name."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from millpond.errors import InvalidPredicate
from millpond.model.evaluate import mask
from millpond.model.predicate import (
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
)
from millpond.query.sql import SQL_BYTES_MAX, parse_where

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("u", pa.string()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("Città", pa.string()),
        ("select", pa.int64()),
        ("z", pa.struct([("a", pa.struct([("Deep", pa.int64())])), ("b", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("Twin", pa.int64()),
        ("twin", pa.int64()),
        ("Same", pa.int64()),
        ("SAME", pa.int64()),
    ]
)


def where(sql: str) -> Predicate:
    return parse_where(sql, SCHEMA)


NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("n = 1", Compare("=", "n", 1)),
        ("n == 1", Compare("=", "n", 1)),
        ("n <> 1", Compare("!=", "n", 1)),
        ("n != -1", Compare("!=", "n", -1)),
        ("n = -(-(1))", Compare("=", "n", 1)),
        ("n < 1.50", Compare("<", "n", Decimal("1.50"))),
        ("n < .5", Compare("<", "n", Decimal("0.5"))),
        ("f >= 1e3", Compare(">=", "f", 1000.0)),
        ("f >= -1.5D", Compare(">=", "f", -1.5)),
        ("g = 0.1F", Compare("=", "g", 0.10000000149011612)),
        ("d = 1.5BD", Compare("=", "d", Decimal("1.5"))),
        ("n = 10L", Compare("=", "n", 10)),
        ("n <=> 1", Compare("<=>", "n", 1)),
        ("n <=> NULL", Compare("<=>", "n", None)),
        ("n = NULL", Compare("=", "n", None)),
        ("n IS DISTINCT FROM 1", Not(Compare("<=>", "n", 1))),
        ("5 < n", Compare(">", "n", 5)),
        ("5 >= n", Compare("<=", "n", 5)),
        ("n < i", CompareColumns("<", "n", "i")),
        ("n BETWEEN 1 AND 2", And((Compare(">=", "n", 1), Compare("<=", "n", 2)))),
        ("n NOT BETWEEN 1 AND 2", Not(And((Compare(">=", "n", 1), Compare("<=", "n", 2))))),
        ("n IN (1, 2, NULL)", In("n", (1, 2, None))),
        ("n NOT IN (1)", Not(In("n", (1,)))),
        ("s LIKE 'ab%'", StartsWith("s", "ab")),
        ("s NOT LIKE 'ab%'", Not(StartsWith("s", "ab"))),
        ("s LIKE 'a_b'", Like("s", "a_b")),
        ("s NOT LIKE '%b'", Not(Like("s", "%b"))),
        (r"s LIKE 'a\%b%'", StartsWith("s", "a%b")),
        (r"s LIKE 'a\\%b%'", StartsWith("s", "a%b")),
        ("startswith(s, 'ab')", StartsWith("s", "ab")),
        ("n IS NULL", IsNull("n")),
        ("n IS NOT NULL", Not(IsNull("n"))),
        ("tags IS NULL", IsNull("tags")),
        ("b", Compare("=", "b", True)),
        ("NOT b", Not(Compare("=", "b", True))),
        ("b IS TRUE", Compare("<=>", "b", True)),
        ("b IS NOT FALSE", Not(Compare("<=>", "b", False))),
        ("b = false", Compare("=", "b", False)),
        ("TRUE", Const(True)),
        ("1 = 1 AND n = 2", And((Const(True), Compare("=", "n", 2)))),
        ("NULL = 1", Const(None)),
        ("n = 1 OR n = 2 OR n = 3", Or((Compare("=", "n", 1), Compare("=", "n", 2), Compare("=", "n", 3)))),
        ("n = 1 AND (b OR NOT b)", And((Compare("=", "n", 1), where("b OR NOT b")))),
        ("n = 1 OR n = 2 AND b", Or((Compare("=", "n", 1), And((Compare("=", "n", 2), Compare("=", "b", True)))))),
        ("day = DATE '2024-02-29'", Compare("=", "day", dt.date(2024, 2, 29))),
        ("day = '2024-02-29'", Compare("=", "day", "2024-02-29")),
        ("t >= TIMESTAMP '2024-02-29 12:00:00'", Compare(">=", "t", NOON)),
        ("t >= TIMESTAMP '2024-02-29 14:00:00+02:00'", Compare(">=", "t", NOON)),
        ("t >= CAST('2024-02-29T12:00:00Z' AS TIMESTAMP)", Compare(">=", "t", NOON)),
        ("x = X'0aFF'", Compare("=", "x", b"\x0a\xff")),
        ("x = X'abc'", Compare("=", "x", b"\x0a\xbc")),
        ("n = CAST('12' AS INT)", Compare("=", "n", 12)),
        ("n = CAST(-1.9 AS INT)", Compare("=", "n", -1)),
        ("d = CAST(1.555 AS DECIMAL(5, 2))", Compare("=", "d", Decimal("1.56"))),
        ("f = CAST('inf' AS DOUBLE)", Compare("=", "f", math.inf)),
        ("f = double('NaN')", Compare("=", "f", math.nan)),
        ("s = CAST(5 AS STRING)", Compare("=", "s", "5")),
        ("CAST(i AS BIGINT) = 5", Compare("=", "i", 5)),
        ("CAST(n AS DOUBLE) = 5", Compare("=", "n", 5.0)),
        ("CAST(g AS DOUBLE) > 0.1", Compare(">", "g", Decimal("0.1"))),
        ("CAST(i AS DECIMAL(12, 2)) > 0.1", Compare(">", "i", Decimal("0.1"))),
        ("s = 'it''s'", Compare("=", "s", "it's")),
        ('s = "it\'s"', Compare("=", "s", "it's")),
        ("s = 'a' 'b'", Compare("=", "s", "ab")),
        (r"s = 'a\tb\\\u0041\101\q'", Compare("=", "s", "a\tb\\AAq")),
        (r"s = r'a\n'", Compare("=", "s", r"a\n")),
        ("s = ''", Compare("=", "s", "")),
        ("s = ';--'", Compare("=", "s", ";--")),
        ("`select` = 1", Compare("=", "select", 1)),
        ("`Città` = 'Nice'", Compare("=", "Città", "Nice")),
        ("N = 1", Compare("=", "n", 1)),
        ("twin = 1", Compare("=", "twin", 1)),
        ("Twin = 1", Compare("=", "Twin", 1)),
        ("z.a.deep > 1", Compare(">", ("z", "a", "Deep"), 1)),
        ("Z.B = 'x'", Compare("=", ("z", "b"), "x")),
        ("n /* why */ = 1 -- because", Compare("=", "n", 1)),
    ],
)
def test_sql_becomes_the_predicate_it_says(sql: str, predicate: Predicate) -> None:
    assert where(sql) == predicate


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "empty"),
        ("  -- nothing", "empty"),
        ("n = 1; n = 2", "more than one"),
        ("n = 1; DROP TABLE x", "not SQL"),
        ("SELECT 1", "not SQL"),
        ("n = ", "not SQL"),
        ("n = 1 n", "not SQL"),
        ("n = 1 LIMIT 3", "not SQL"),
        ("(n = 1", "not SQL"),
        ("s = 'x", "does not end"),
        ("`n = 1", "does not end"),
        ("n + 1 = 2", r"n \+ 1"),
        ("n % 2 = 0", "n % 2"),
        ("abs(n) = 1", r"ABS\(n\)"),
        ("f(n) = 1", r"(?i)f\(n\)"),
        ("f(n)", r"(?i)f\(n\)"),
        ("n", "not bool"),
        ("s IS TRUE", "not bool"),
        ("n BETWEEN SYMMETRIC 1 AND 2", "not supported"),
        ("n IN (SELECT 1)", "SELECT 1"),
        ("n IN (i)", "literals on the right"),
        ("1 IN (1, 2)", "column on the left"),
        ("s ILIKE 'a%'", "(?i)like"),
        ("s RLIKE 'a'", "(?i)like"),
        ("s LIKE u", "string literal"),
        ("s LIKE ANY ('a', 'b')", "(?i)any"),
        ("s LIKE 'a!%' ESCAPE '!'", "ESCAPE"),
        ("s NOT LIKE 'a!%' ESCAPE '!'", "ESCAPE"),
        (r"s LIKE 'a\\'", "LIKE pattern"),
        ("(n, i) = (1, 2)", r"\(n, i\)"),
        ("n = :x", ":x"),
        ("n = ?", r"\?"),
        ("* = 1", r"\*"),
        ("tags[0] = 'x'", "tags"),
        ("CASE WHEN b THEN b END", "CASE"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("t > current_timestamp()", "CURRENT_TIMESTAMP"),
        ("t > INTERVAL 1 DAY", "INTERVAL"),
        ("t = TIMESTAMP_NTZ '2024-02-29'", "TIMESTAMP_NTZ"),
        ("(n = 1) = TRUE", "n = 1"),
        ("(n = 1) IS NULL", "n = 1"),
        ("n = 1 = 2", "n = 1"),
        ("CAST(n AS INT) = 1", "wider"),
        ("CAST(n AS FLOAT) = 1", "wider"),
        ("CAST(d AS DECIMAL(10, 1)) = 1", "wider"),
        ("CAST(f AS SMALLINT) = 1", "wider"),
        ("CAST(s AS INT) = 1", "wider"),
        ("CAST(s AS STRING) = 'x'", "wider"),
        ("n = CAST('x' AS INT)", "not an integer"),
        ("n = CAST('1_0' AS INT)", "not an integer"),
        ("n = CAST(300 AS TINYINT)", "8 bits"),
        ("d = CAST(1 AS DECIMAL(50, 2))", "DECIMAL"),
        ("d = CAST(1000 AS DECIMAL(3, 1))", "does not fit"),
        ("f = CAST('1e999999999' AS DOUBLE)", "out of bounds"),
        ("n = " + "9" * 1000, "out of bounds"),
        ("s = 5", "CAST it AS STRING"),
        ("n = '5'", "without quotes"),
        ("b = 1", "'b'"),
        ("day = 'tomorrow'", "not a date"),
        ("t = '2024-02-30'", "'t'"),
        ("lat > 1", "no column 'lat'"),
        ("z.a.x > 1", "no column 'z.a.x'"),
        ("n.a = 1", "no column 'n.a'"),
        ("tWIN = 1", "ambiguous"),
        ("same = 1", "Same or SAME"),
        ("tags = 'x'", "cannot be compared"),
        ("z = 1", "cannot be compared"),
        ("s < n", "cannot be compared"),
        ("1.5 = 1.5", "two literals"),
    ],
)
def test_anything_else_is_refused_by_name(sql: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says) as caught:
        where(sql)
    assert caught.value.hint


def test_an_unknown_column_lists_the_columns() -> None:
    with pytest.raises(InvalidPredicate) as caught:
        parse_where("lat > 1", pa.schema([("latitude", pa.float64()), ("longitude", pa.float64())]))
    assert "latitude, longitude" in caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "(" * 10_000 + "n = 1" + ")" * 10_000,
        "(" * 33 + "n = 1" + ")" * 33,
        "NOT " * 10_000 + "b",
        "n = " + "-(" * 5_000 + "1" + ")" * 5_000,
        "n = " + "- " * 20_000 + "1",
        "z" + ".a" * 20_000 + " = 1",
        "CASE WHEN " * 5_000,
    ],
    ids=lambda sql: sql[:12],
)
def test_deep_nesting_is_a_clear_error(sql: str) -> None:
    with pytest.raises(InvalidPredicate):
        where(sql)


def test_reasonable_nesting_and_long_chains_pass() -> None:
    assert where("(" * 20 + "n = 1" + ")" * 20) == Compare("=", "n", 1)
    chain = where(" OR ".join(f"n={i}" for i in range(3_000)))
    assert isinstance(chain, Or)
    assert len(chain.terms) == 3_000
    assert where(f"n IN ({', '.join(map(str, range(5_000)))})") == In("n", tuple(range(5_000)))


def test_length_is_bounded() -> None:
    with pytest.raises(InvalidPredicate, match=str(SQL_BYTES_MAX)):
        where("s = '" + "x" * SQL_BYTES_MAX + "'")


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("n > 1 AND s LIKE 'b%'", [1]),
        ("NOT (n > 1 AND s LIKE 'b%')", [0, 2]),
        ("n NOT IN (1, NULL)", []),
        ("s IS NULL OR n < 1.5", [0, 3]),
        ("f > 1e300", [2]),
        ("NOT b", [1]),
        ("b IS NOT TRUE", [1, 3]),
    ],
)
def test_parsed_predicates_select_the_rows_spark_would(sql: str, rows: list[int]) -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, 2, 3, None], pa.int64()),
            "s": pa.array(["a", "bc", "c", None]),
            "f": pa.array([0.0, 1.0, math.nan, None], pa.float64()),
            "b": pa.array([True, False, True, None]),
        }
    )
    found = mask(batch, parse_where(sql, batch.schema)).to_pylist()
    assert [row for row, wanted in enumerate(found) if wanted] == rows
