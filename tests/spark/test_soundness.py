"""F5: no false negatives. Whatever the predicate, skipping objects and filtering live records changes no answer.

Random predicates over every ordered type are evaluated twice by Spark: as a filter, which is handed to us, and as a
column of all rows, which is not. The rows lie in many small objects with tight bounds, so that wrong bounds would show,
and some are live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import millpond
from millpond.spark import last_query
from millpond.testing.odd_rows import SCHEMA, odd_rows
from tests.spark.conftest import session_setting

INNER = pa.struct([("x", pa.int32()), ("d", pa.float64())])
OBJECTS = 12
ROWS_PER_OBJECT = 6
LIVE_ROWS = 12
# In the hours in which daylight saving began in New York.
AROUND, STEP = datetime(2024, 3, 10, 4, tzinfo=UTC), timedelta(minutes=37)


def with_inner(rows: pa.Table) -> pa.Table:
    """The rows with numbers of theirs in a struct, too, which is null here and there."""
    inner = [
        None if row["id"] % 11 == 10 else {"x": row["tiny"], "d": row["double"]}
        for row in rows.select(["id", "tiny", "double"]).to_pylist()
    ]
    return rows.append_column("inner", pa.array(inner, INNER))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[str]:
    with millpond.open(str(tmp_path_factory.mktemp("sound") / "pond"), background=False) as pond:
        stream = pond.create_stream("sound", schema=pa.schema([*SCHEMA, ("inner", INNER)]))
        blocks = odd_rows(7, OBJECTS + LIVE_ROWS // ROWS_PER_OBJECT, ROWS_PER_OBJECT, around=AROUND, step=STEP)
        for number, rows in enumerate(blocks):
            stream.append(with_inner(rows))
            if number < OBJECTS:
                stream.settle()
        assert len(stream.snapshot().settled.objects) >= OBJECTS
        assert sum(map(len, stream.snapshot().live.values())) == LIVE_ROWS
        stream.to_spark(spark).createOrReplaceTempView("sound")
        yield "sound"
        spark.catalog.dropTempView("sound")


def check(spark: SparkSession, predicates: list[str]) -> int:
    """The objects that were skipped, over all predicates, none of which may change an answer."""
    filtered = " UNION ALL ".join(
        f"SELECT {at} AS at, id FROM sound WHERE {predicate}" for at, predicate in enumerate(predicates)
    )
    found = Counter(map(tuple, spark.sql(filtered).collect()))
    figures = last_query(spark)
    columns = ", ".join(f"({predicate}) AS p{at}" for at, predicate in enumerate(predicates))
    expected = Counter(
        (at, row["id"])
        for row in spark.sql(f"SELECT id, {columns} FROM sound").collect()
        for at in range(len(predicates))
        if row[at + 1]
    )
    wrong = [f"{predicates[at]}: id {number}" for at, number in (expected - found) + (found - expected)]
    assert not wrong
    return figures.objects_total - figures.objects_read


TRICKY = [
    "double > 1e300",
    "double = double('NaN')",
    "double >= double('NaN')",
    "NOT (double <= 5)",
    "NOT (double < double('NaN'))",
    "isnan(double)",
    "NOT isnan(double)",
    "single > 1e30",
    "single = 0.1F",
    "single = 0.1D",
    "double = 0",
    "double IN (double('NaN'), 0.1D)",
    "double NOT IN (0.1D, 1.0D)",
    "inner.d > 100",
    "inner.x = 3",
    "inner.x IS NULL",
    "inner IS NULL",
    "NOT (inner.x > 3)",
    "big > 9.007199254740992E15D",
    "big = 9.007199254740993E15D",
    "big = 9007199254740993",
    "CAST(big AS DOUBLE) >= 9.007199254740992E15D",
    "CAST(big AS FLOAT) >= 9.0E15F",
    "CAST(whole AS FLOAT) > 1.5F",
    "CAST(tiny AS BIGINT) BETWEEN -3 AND 3",
    "tiny > 1000",
    "tiny < 2.5",
    "tiny = 3.0",
    "money = 0.1",
    "money < 0.105",
    "money > 1.25D",
    "CAST(money AS DOUBLE) = 0.1D",
    "CAST(money AS DECIMAL(20, 5)) = 0.10000",
    "try_cast(money AS DECIMAL(4, 1)) = 0.2",
    "huge > 1e20",
    "huge < money",
    "CAST(huge AS DOUBLE) > 1e30D",
    "text > 'b' AND text < 'c'",
    "text LIKE 'c%'",
    "text LIKE 'a!_b' ESCAPE '!'",
    r"text LIKE 'a\\_b'",
    "text LIKE '%3'",
    "text LIKE '_1%'",
    "text LIKE ''",
    "text NOT LIKE 'a%'",
    "startswith(text, '')",
    "endswith(text, '1')",
    "contains(text, '1')",
    "upper(text) = 'A'",
    "text COLLATE UTF8_LCASE = 'Z'",
    "text >= 'z'",
    "text > '\U0001f300'",
    "data > X'05'",
    "data = X''",
    "data IN (X'FFFF', X'00')",
    "flag",
    "NOT flag",
    "flag = (tiny > 0)",
    "day = DATE '2024-03-10'",
    "day < '0100-01-01'",
    "day > TIMESTAMP '2024-03-10 00:00:00'",
    "CAST(day AS TIMESTAMP) < TIMESTAMP '2024-03-09 20:00:00'",
    "at >= TIMESTAMP '2024-03-10 01:30:00'",
    "at >= '2024-03-10 03:30:00'",
    "at < DATE '2024-03-10'",
    "CAST(at AS DATE) = DATE '2024-03-10'",
    "date_trunc('day', at) = TIMESTAMP '2024-03-10'",
    "at < TIMESTAMP '1900-01-01'",
    "at + INTERVAL 1 DAY < TIMESTAMP '2024-03-10 02:30:00'",
    "at - INTERVAL '0 12:30:00' DAY TO SECOND = TIMESTAMP '2024-03-09 15:30:00'",
    "at + INTERVAL 1 MONTH >= TIMESTAMP '2024-04-10 00:00:00'",
    "at - INTERVAL 1 YEAR < DATE '2023-03-10'",
    "at + make_interval(0, 1, 0, 1) > TIMESTAMP '2024-04-11 00:00:00'",
    "TIMESTAMP '2024-03-10 12:00:00' - INTERVAL 6 HOURS < at",
    "at BETWEEN TIMESTAMP '2024-03-10 00:00:00' - INTERVAL 1 DAY AND TIMESTAMP '2024-03-10 00:00:00' + INTERVAL 1 DAY",
    "CAST(at AS DATE) IN (DATE '2024-03-10', DATE '1883-11-18', NULL)",
    "CAST(at AS DATE) NOT IN (DATE '2024-03-10', DATE '1883-11-18')",
    "NOT (CAST(at AS DATE) <=> DATE '2024-03-10')",
    "date_trunc('hour', at) = TIMESTAMP '2024-03-10 03:00:00'",
    "date_trunc('week', at) < TIMESTAMP '2024-03-04'",
    "date_trunc('nonsense', at) IS NULL",
    "year(at) < 1900",
    "year(at) != 2024",
    "year(CAST(at AS DATE) + 300) = 2025",
    "unix_seconds(at) > 1710050000",
    "CAST(at AS BIGINT) BETWEEN 1710000000 AND 1710050000",
    "date_add(day, 3) = DATE '2024-03-12'",
    "date_sub(day, 2147483647) > DATE '2024-03-12'",
    "day + INTERVAL 1 MONTH = DATE '2024-04-10'",
    "day - INTERVAL 36 HOURS < TIMESTAMP '2024-03-09 00:00:00'",
    "add_months(day, -1) BETWEEN DATE '2024-02-08' AND DATE '2024-02-29'",
    "trunc(day, 'QUARTER') > DATE '2024-01-01'",
    "datediff(day, DATE '2024-03-10') < -1",
    "year(day) IN (1, 1970, 9999)",
    "CAST(day AS TIMESTAMP) + INTERVAL 1 DAY <= TIMESTAMP '2024-03-10 00:00:00'",
    "try_cast(double AS INT) = 0",
    "try_cast(double AS BIGINT) <= -3",
    "try_cast(single AS INT) IN (1, 2, 3)",
    "NOT (try_cast(double AS INT) > 0)",
    "at BETWEEN TIMESTAMP '2024-03-10 00:00:00 Europe/Paris' AND TIMESTAMP_NTZ '2024-03-10 09:00:00'",
    "whole IN (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000, 12000)",
    "whole IN (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000, NULL)",
    "NOT (whole IN (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000, 12000))",
    "whole NOT IN (1000, NULL)",
    "text IN ('a', 'aa', 'c1', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l1')",
    "at IN (TIMESTAMP '2024-03-10 00:00:00', TIMESTAMP '1883-11-18 07:03:58')",
    "whole <=> NULL",
    "NOT (whole <=> NULL)",
    "NOT (whole <=> 1000)",
    "whole IS NULL OR big IS NULL",
    "coalesce(whole, 0) = 0",
    "CAST(whole AS BIGINT) + 1 > 5000",
    "whole = tiny * 1000",
    "tiny < whole",
    "big < whole",
    "single < double",
    "double = double",
    "_offset >= 70 AND _streamlet = 0",
    "_ingest_time IS NULL",
    "id = (SELECT max(id) FROM sound)",
    "id IN (SELECT id FROM sound WHERE tiny > 3)",
    "rand(1) >= 0 AND tiny > 3",
    "true",
    "false",
    "CAST(NULL AS BOOLEAN)",
    "tiny = NULL",
    "CASE WHEN tiny > 3 THEN whole < 10000 ELSE big > 0 END",
    "if(tiny > 3, NULL, flag)",
    "NOT (tiny > 3 AND whole IS NULL) OR NOT (text = 'a' OR NOT flag)",
]


def test_tricky_predicates(spark: SparkSession, table: str) -> None:
    skipped = sum(check(spark, TRICKY[at : at + 24]) for at in range(0, len(TRICKY), 24))
    assert skipped > len(TRICKY) * OBJECTS / 4, "hardly anything was skipped; this proved nothing"


def test_tricky_predicates_in_another_time_zone(spark: SparkSession, table: str) -> None:
    """The day of a time, and the time of a text, depend on the session's zone; daylight saving began in these hours."""
    timely = [p for p in TRICKY if "at " in p or "day" in p or "DATE" in p]
    for zone in ("America/New_York", "Asia/Kolkata", "Pacific/Apia"):
        with session_setting(spark, "spark.sql.session.timeZone", zone):
            check(spark, timely)


def _number(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(
        st.integers(low, high).map(str),
        st.integers(low, high).map(lambda n: f"{n}.5"),
        st.integers(low, high).map(lambda n: f"{n / 8!r}D"),
    )


_DAYS = st.integers(-3, 6).map(lambda n: date(2024, 3, 10) + timedelta(days=n))
_TIMES = st.integers(-2000, 3000).map(lambda n: datetime(2024, 3, 10, 4) + timedelta(minutes=37 * n))
LITERALS: dict[str, st.SearchStrategy[str]] = {
    "tiny": _number(-60, 60),
    "whole": _number(-50_000, 50_000),
    "big": st.integers(-45, 45).map(lambda n: f"{n * 10**15}"),
    "single": _number(-6, 6) | st.sampled_from(["float('NaN')", "0.1F", "double('Infinity')"]),
    "double": _number(-5, 5) | st.sampled_from(["double('NaN')", "0.1D", "double('-Infinity')"]),
    "money": _number(-12, 12),
    "huge": st.integers(-45, 45).map(lambda n: f"{n * 10**9}.5"),
    "text": st.sampled_from(["'a'", "'b-3'", "'c'", "''", "'k20'", "'zz'", "'\U0001f30a'"]),
    "data": st.sampled_from(["X''", "X'05'", "X'0703'", "X'FF'"]),
    "day": _DAYS.map(lambda d: f"DATE '{d}'"),
    "at": _TIMES.map(lambda t: f"TIMESTAMP '{t}'"),
    "inner.x": _number(-60, 60),
    "id": st.integers(-1, 90).map(str),
}
CASTS = {
    "tiny": ["SMALLINT", "INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(5, 1)", "DECIMAL(3, 1)"],
    "whole": ["BIGINT", "DOUBLE", "FLOAT", "DECIMAL(12, 2)", "DECIMAL(6, 0)"],
    "big": ["DOUBLE", "FLOAT", "DECIMAL(20, 0)", "INT"],
    "single": ["DOUBLE"],
    "double": ["FLOAT"],
    "money": ["DECIMAL(20, 4)", "DECIMAL(9, 1)", "DOUBLE"],
    "huge": ["DOUBLE", "DECIMAL(38, 8)"],
    "day": ["TIMESTAMP"],
    "at": ["DATE"],
}


# Functions that keep a column's order, and columns of the type that comes out.
FUNCTIONS = {
    "date_add(day, 3)": "day",
    "day - INTERVAL 1 MONTH": "day",
    "add_months(day, 2)": "day",
    "trunc(day, 'MM')": "day",
    "CAST(day AS TIMESTAMP) - INTERVAL 90 MINUTES": "at",
    "datediff(day, DATE '2024-03-10')": "tiny",
    "CAST(at AS DATE)": "day",
    "CAST(at AS DATE) + 1": "day",
    "at + INTERVAL 1 DAY": "at",
    "at - INTERVAL '2 03:30:00.000001' DAY TO SECOND": "at",
    "at + INTERVAL 1 MONTH": "at",
    "date_trunc('hour', at)": "at",
    "date_trunc('day', at)": "at",
    "date_trunc('week', at)": "at",
    "year(at) - 2024": "tiny",
    "try_cast(double AS INT)": "tiny",
    "try_cast(single AS BIGINT)": "tiny",
}


@st.composite
def terms(draw: st.DrawFn) -> str:
    column = operand = draw(st.sampled_from(sorted(LITERALS)))
    if draw(st.integers(0, 3)) == 0:
        operand = draw(st.sampled_from(sorted(FUNCTIONS)))
        column = FUNCTIONS[operand]
    literals = LITERALS[column]
    if operand == column and column in CASTS and draw(st.integers(0, 3)) == 0:
        operand = f"try_cast({column} AS {draw(st.sampled_from(CASTS[column]))})"
    match draw(st.integers(0, 7)):
        case 0:
            values = draw(st.lists(literals, min_size=1, max_size=14))
            if draw(st.integers(0, 4)) == 0:
                values.append("NULL")
            return f"{operand} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(values)})"
        case 1:
            low, high = draw(literals), draw(literals)
            return f"{operand} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {low} AND {high}"
        case 2:
            return f"{operand} {draw(st.sampled_from(['IS NULL', 'IS NOT NULL']))}"
        case 3:
            pattern = draw(st.sampled_from(["a%", "%1", "b_%", "", "%", "c1", "_", "k2%0"]))
            return f"text {draw(st.sampled_from(['LIKE', 'NOT LIKE']))} '{pattern}'"
        case _:
            op = draw(st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "!="]))
            pair = [operand, draw(literals)]
            if draw(st.booleans()):
                pair.reverse()
            return f"{pair[0]} {op} {pair[1]}"


predicates = st.recursive(
    terms() | st.sampled_from(["flag", "length(text) > 2", "tiny * 2 > 7"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"NOT ({one})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} OR {two[1]})"),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_random_predicates(spark: SparkSession, table: str, zone: str) -> None:
    # One query checks many predicates; a query each would take minutes.
    @settings(max_examples=max(2, settings.default.max_examples // 12))  # type: ignore[union-attr]
    @given(st.lists(predicates, min_size=12, max_size=12))
    def run(several: list[str]) -> None:
        check(spark, several)

    with session_setting(spark, "spark.sql.session.timeZone", zone):
        run()
