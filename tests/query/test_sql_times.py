"""Dates and timestamps in a WHERE clause: what is made of a column or of a literal, and what is refused."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest

from millpond.errors import InvalidPredicate
from millpond.model.evaluate import mask
from millpond.model.predicate import Compare, IsNull, Predicate
from millpond.query.sql import parse_where

ROWS = pa.RecordBatch.from_pydict(
    {
        "day": [dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(1969, 12, 31), None],
        "t": [
            dt.datetime(2024, 1, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
            dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 23, 0, tzinfo=dt.UTC),
            None,
        ],
        "f": [-0.5, 3.99, float("nan"), None],
        "n": [1, 2, 3, None],
        "s": ["2024-01-01", "", "x", None],
    },
    schema=pa.schema(
        [
            ("day", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("f", pa.float64()),
            ("n", pa.int64()),
            ("s", pa.string()),
        ]
    ),
)

# What is short for a unit elsewhere; Spark's answer is NULL.
ABBREVIATED = ("H", "M", "D", "S", "MS", "Q", "W", "Y", "m", "HOURS")


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("t + INTERVAL 1 DAY < '2024-02-02'", [0, 2]),
        ("t + INTERVAL 1 DAY <= TIMESTAMP '2024-02-01 23:59:59.999999'", [0, 2]),
        ("t - INTERVAL '1 12:00:00' DAY TO SECOND = TIMESTAMP '2024-02-28'", [1]),
        ("t + INTERVAL 1 HOUR 30 MINUTES >= '2024-03-01'", []),
        ("t + INTERVAL '1 hour' < '2024-02-02' AND n > 9 OR t + INTERVAL 1 DAY < '2024-02-02'", [0, 2]),
        ("t + INTERVAL -2 HOURS < DATE '1969-12-31'", []),
        ("t + INTERVAL '0.000001' SECOND = '2024-02-01'", [0]),
        ("t > TIMESTAMP '2024-03-29 12:00:00' - INTERVAL 1 MONTH", []),
        ("t >= TIMESTAMP '2024-03-29 12:00:00' - INTERVAL 1 MONTH", [1]),
        ("day = DATE '2023-12-31' + INTERVAL 2 MONTHS", [1]),
        ("day > DATE '2024-03-01' - 2", [1]),
        ("day + INTERVAL 1 MONTH = DATE '2024-02-29'", [0]),
        ("day + INTERVAL 36 HOURS > TIMESTAMP '2024-03-01'", [1]),
        ("add_months(day, 12) = '2025-02-28'", [1]),
        ("date_add(day, 1) IN ('2024-02-01', '1970-01-01', NULL)", [0, 2]),
        ("date_add(day, 1) NOT IN ('2024-02-01', '1970-01-01')", [1]),
        ("date_sub(day, 31) BETWEEN '2023-12-31' AND '2024-01-01'", [0]),
        ("CAST(t AS DATE) = DATE '2024-01-31'", [0]),
        ("CAST(t AS DATE) != DATE '2024-01-31'", [1, 2]),
        ("NOT (date(t) < '2024-01-31')", [0, 1]),
        ("CAST(day AS TIMESTAMP) < TIMESTAMP '2024-01-31 00:00:00.000001'", [0, 2]),
        ("year(t) = 2024", [0, 1]),
        ("year(day) < 1970", [2]),
        ("date_trunc('MONTH', t) = '2024-02-01'", [1]),
        ("date_trunc('month', t - INTERVAL 1 DAY) = '2024-02-01'", [1]),
        ("trunc(day, 'YEAR') = '1969-01-01'", [2]),
        ("TRUNC(t, 'mm') = '2024-02-01'", [1]),
        ("Date_Trunc('dd', t) = TIMESTAMP '2024-02-29'", [1]),
        ("date_trunc('hour', day) = '2024-02-29'", [1]),
        ("unix_seconds(t) < 0", [2]),
        ("CAST(f AS INT) = 0", [0]),
        ("CAST(f AS BIGINT) >= 0", [0, 1]),
        ("(t - INTERVAL 1 HOUR) <=> NULL", [3]),
        ("t - INTERVAL 1 HOUR = NULL", []),
    ],
)
def test_the_rows_that_spark_would_find(sql: str, rows: list[int]) -> None:
    found = mask(ROWS, parse_where(sql, ROWS.schema)).to_pylist()
    assert [row for row, passes in enumerate(found) if passes] == rows


FLOATS = pa.RecordBatch.from_pydict(
    {
        "d": [2.0**31, 2.0**63, math.nextafter(2.0**63, math.inf), math.nextafter(2.0**63, 0), -(2.0**63), 5.5, None],
        "f": [2.0**31, 2.0**63, 2.0**63 + 2**40, 2.0**31 - 128, -(2.0**31), 5.5, None],
    },
    schema=pa.schema([("d", pa.float64()), ("f", pa.float32())]),
)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("CAST(d AS BIGINT) = 9223372036854775807", [1]),
        ("CAST(d AS BIGINT) > 9223372036854774784", [1]),
        ("CAST(d AS BIGINT) >= 9223372036854774784", [1, 3]),
        ("CAST(d AS BIGINT) <= 9223372036854775807", [0, 1, 3, 4, 5]),
        ("CAST(d AS BIGINT) < 9223372036854775807", [0, 3, 4, 5]),
        ("CAST(d AS BIGINT) IN (9223372036854775807, 5)", [1, 5]),
        ("CAST(f AS BIGINT) = 9223372036854775807", [1]),
        ("CAST(f AS INT) = 2147483647", [0]),
        ("CAST(f AS INT) > 0", [0, 3, 5]),
        ("CAST(f AS INT) <= 2147483647", [0, 3, 4, 5]),
        ("CAST(f AS INT) > 2147483647", []),
        # A double holds the greatest INT itself.
        ("CAST(d AS INT) = 2147483647", []),
        ("CAST(d AS INT) > 0", [5]),
        ("CAST(CAST(f AS DOUBLE) AS INT) > 0", [3, 5]),
        *((f"CAST(d AS BIGINT) {op} {sign}1{'0' * 390}", []) for op, sign in (("=", ""), (">", ""), ("<", "-"))),
        (f"CAST(d AS BIGINT) < 1{'0' * 390}", [0, 1, 3, 4, 5]),
        (f"CAST(d AS BIGINT) != 1{'0' * 390}", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_the_ends_of_the_whole_numbers(sql: str, rows: list[int]) -> None:
    """Spark lets in what is equal to the greatest number of the type as a float, and gives that number for it."""
    found = mask(FLOATS, parse_where(sql, FLOATS.schema)).to_pylist()
    assert [row for row, passes in enumerate(found) if passes] == rows


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("date_add(day, 3) = '2024-01-04'", Compare("=", "day", dt.date(2024, 1, 1))),
        ("day < DATE '2024-01-01' + INTERVAL -1 DAY", Compare("<", "day", dt.date(2023, 12, 31))),
        ("t < DATE '2024-01-01' + INTERVAL 1 HOUR", Compare("<", "t", dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC))),
        ("(t - INTERVAL 1 HOUR) <=> NULL", IsNull("t")),
    ],
)
def test_literals_are_computed_and_columns_stand_alone(sql: str, predicate: Predicate) -> None:
    found = parse_where(sql, ROWS.schema)
    terms = getattr(found, "terms", (found,))
    assert terms == (predicate,)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("t - INTERVAL 1 MONTH < '2024-01-01'", "months are not added to timestamps; take them from the literal"),
        ("t + INTERVAL 1 MONTH 2 DAYS < '2024-01-01'", "either years and months, or days and times"),
        ("t + INTERVAL 1 PARSEC > '2024-01-01'", "'PARSEC' is no unit of an interval"),
        *(
            (f"t > TIMESTAMP '2024-01-01' - INTERVAL {amount}", f"'{unit}' is no unit of an interval")
            for unit in ("Y", "Q", "M", "W", "D", "H", "S", "MS", "US", "NS", "min", "QUARTER", "NANOSECOND")
            for amount in (f"1 {unit}", f"-1 {unit}", f"'1' {unit}", f"'1 {unit}'", f"1 DAY 2 {unit}")
        ),
        ("t + INTERVAL 'x' DAY > '2024-01-01'", "is not an interval"),
        ("t + INTERVAL '1-2' YEAR TO MONTH > '2024-01-01'", "DAY TO SECOND"),
        ("t + INTERVAL 99999999999 DAYS > '2024-01-01'", "out of bounds"),
        ("n + 1 = 2", "a column or a literal of dates or timestamps"),
        ("n + INTERVAL 1 DAY > '2024-01-01'", "a column or a literal of dates or timestamps"),
        ("t + 1 = '2024-01-01'", "whole numbers are added to dates only"),
        ("t + n = '2024-01-01'", "needs a whole number or an interval"),
        ("day - DATE '2024-01-01' > 3", "needs a whole number or an interval"),
        ("year(t) = 'x'", "'x' is not integer"),
        ("year(t) = 2024.5", "is not integer"),
        ("year(t) < 20000", "cannot be decided exactly"),
        ("year(s) = 2024", "a column or a literal of dates or timestamps"),
        ("month(t) = 3", "is not supported"),
        ("CAST(t AS DATE) = 'never'", "'never' is not a date"),
        ("CAST(t AS DATE) = 3", "3 is not date"),
        ("CAST(s AS DATE) = '2024-01-01'", "is not supported"),
        ("CAST(f AS SMALLINT) = 3", "is not supported"),
        ("date_trunc('ERA', t) = '2024-01-01'", "no such unit"),
        ("date_trunc('DAY', DATE '2024-01-01') = day", "write its value"),
        *((f"date_trunc('{unit}', t) = '2024-01-01'", "no such unit") for unit in ABBREVIATED),
        *((f"trunc(day, '{unit}') = '2024-01-01'", "no such unit") for unit in (*ABBREVIATED, "DAY", "HOUR")),
        ("date_trunc(MONTH, t) = '2024-01-01'", "a unit in quotes"),
        ("date_trunc('MONTH', t, 'UTC') = '2024-01-01'", "a unit in quotes"),
        ("timestamp_trunc(t, MONTH) = '2024-01-01'", "is not supported"),
        ("DATE '9999-12-31' + INTERVAL 1 DAY > day", "outside the years 1 to 9999"),
        ("'2024-01-01' + INTERVAL 1 DAY > day", "write the literal as DATE"),
        ("t + INTERVAL 1 DAY < t", "with a column, which is not supported"),
        ("t + INTERVAL 1 DAY IS NULL", "needs a column on the left"),
        ("t < current_timestamp()", "is not supported"),
    ],
)
def test_what_cannot_be_exact_is_refused_with_the_reason(sql: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says) as caught:
        parse_where(sql, ROWS.schema)
    assert caught.value.hint
