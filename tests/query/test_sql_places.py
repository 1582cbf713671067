"""st_box, st_near and st_distance in a WHERE clause."""

from __future__ import annotations

import math
import operator
from decimal import Decimal

import pyarrow as pa
import pytest

from millpond.errors import InvalidPredicate
from millpond.model.evaluate import mask
from millpond.model.predicate import And, Compare, Near, Not, inside
from millpond.model.sphere import Around, around
from millpond.query.sql import parse_where

SCHEMA = pa.schema(
    [("lat", pa.float64()), ("lon", pa.float32()), ("n", pa.int64()), ("s", pa.string()), ("d", pa.decimal128(9, 6))]
)
ROWS = pa.RecordBatch.from_pydict(
    {
        "lat": [48.85, 43.7, 48.9, None, math.nan, -17.7, -17.7, 89.9, 95.0],
        "lon": [2.35, 7.25, None, 2.35, 2.35, 179.9, -179.9, 100.0, 2.35],
    },
    schema=pa.schema([SCHEMA.field("lat"), SCHEMA.field("lon")]),
)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("st_box(lat, lon, 48, 2, 49, 3)", [0]),
        ("st_box(lat, lon, -90, -180, 90, 180)", [0, 1, 5, 6, 7]),
        ("st_box(lat, lon, -18, 179, -17, -179)", [5, 6]),
        ("NOT st_box(lat, lon, 48, 2, 49, 3)", [1, 4, 5, 6, 7, 8]),
        ("st_near(lat, lon, 48.8566, 2.3522, 1000)", [0]),
        ("st_near(lat, lon, 48.8566, 2.3522, 700000)", [0, 1]),
        ("ST_NEAR(LAT, LON, -17.7, 180, 20000)", [5, 6]),
        ("st_near(lat, lon, 90, 0, 20000)", [7]),
        ("st_near(lat, lon, 0, 0, 1e9)", [0, 1, 5, 6, 7]),
        ("NOT st_near(lat, lon, 48.8566, 2.3522, 1000)", [1, 2, 4, 5, 6, 7, 8]),
        ("st_distance(lat, lon, 48.8566, 2.3522) <= 1000", [0]),
        ("1000 > st_distance(48.8566, 2.3522, lat, lon)", [0]),
        ("st_distance(lat, lon, 48.8566, 2.3522) > 1000", [1, 5, 6, 7]),
        ("st_distance(lat, lon, 48.8566, 2.3522) >= 0", [0, 1, 5, 6, 7]),
        ("st_distance(lat, lon, 48.8566, 2.3522) < 0", []),
        ("st_distance(lat, lon, 48.8566, 2.3522) BETWEEN 1000 AND 700000", [1]),
        ("st_distance(lat, lon, 48.8 + 0.0566, 2.3522) / 1000 BETWEEN 1 AND 7 * 100", [1]),
        ("1000.0 * st_distance(lat, lon, 48.8566, 2.3522) / 1e3 < 1000", [0]),
        ("-(1 - 2) < st_distance(lat, lon, 48.8566, 2.3522) / 1000", [1, 5, 6, 7]),
    ],
)
def test_the_rows_that_are_there(sql: str, rows: list[int]) -> None:
    """Null, NaN and degrees beyond the Earth are in no box and at no distance."""
    found = mask(ROWS, parse_where(sql, ROWS.schema)).to_pylist()
    assert [row for row, passes in enumerate(found) if passes] == rows


def test_what_the_text_becomes() -> None:
    near = Near("lat", "lon", 1.0, 2.0, 3.5)
    assert parse_where("st_near(lat, lon, 1, 2, 3.5)", SCHEMA) == And((inside("lat", "lon", around(1, 2, 3.5)), near))
    assert parse_where("st_distance(lat, lon, 1, 2) <= 3.5", SCHEMA) == near
    assert parse_where("st_distance(lat, lon, 1, 2) > 3.5", SCHEMA) == Not(near)
    box = inside("d", "n", Around(1.0, 2.0, 3.0, 4.0))
    assert parse_where("st_box(d, n, 1, 3, 2, 4)", SCHEMA) == box


@pytest.mark.parametrize("step", ["/ 1000", "* 3", "/ 1609.344", "* 0.001 / 7", "/ 3.0 * 1e-3"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_a_distance_in_other_units_is_cut_at_the_very_double(step: str, op: str) -> None:
    """What Spark computes for a row is the rounded product; the border between its rows is ours."""
    ways = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    for limit in (5.0, 0.1, 123456.789, 1.0000000000000002):
        found = parse_where(f"st_distance(lat, lon, 1, 2) {step} {op} {limit!r}D", SCHEMA)
        near = found.term if isinstance(found, Not) else found
        assert isinstance(near, Near)
        inside_of, beyond = near.meters, math.nextafter(near.meters, math.inf)
        holds = [ways[op](eval(f"{meters!r} {step}"), limit) for meters in (inside_of, beyond)]
        assert holds == [op in ("<", "<="), op in (">", ">=")], (limit, near.meters)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("n < 2 * 3", 6),
        ("n < 2 - 5 + 1", -2),
        ("n < -(2 + 3)", -5),
        ("n < 5 / 2", 2.5),
        ("n < 3000000000 * 2", 6_000_000_000),
        ("d < 1.5 * 2", Decimal("3.0")),
        ("d < 0.25 + 1.5 - 3", Decimal("-1.25")),
        ("lat < 1.5D * 2", 3.0),
        ("lat < 0.1 + 0.2", Decimal("0.3")),
        ("lat < 1e-1 + 0.2", 0.1 + 0.2),
    ],
)
def test_arithmetic_of_literals_is_computed_as_in_spark(sql: str, value: object) -> None:
    found = parse_where(sql, SCHEMA)
    assert isinstance(found, Compare)
    assert (found.value, type(found.value)) == (value, type(value))


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("n < 2147483647 + 1", "overflows: both sides are INT"),
        ("n < 9223372036854775807 * 2", "overflows: both sides are BIGINT"),
        ("d < 5.5 / 2", "rounds a division of decimals"),
        ("d < 0.12345678901234567890 * 0.12345678901234567890", "more than the 38 digits"),
        ("n < 1 / 0", "divides by zero"),
        ("n < CAST(5 AS TINYINT) * 2", "only literals and distances"),
        ("n * 2 < 6", "only literals and distances"),
        ("n < 'a' * 2", "only literals and distances"),
        ("n < 5 % 2", "is not supported"),
        ("st_distance(lat, lon, 1, 2) * -1 > -5", "a number above 0"),
        ("st_distance(lat, lon, 1, 2) / 0 > 5", "a number above 0"),
        ("1000 / st_distance(lat, lon, 1, 2) > 5", "only literals and distances"),
        ("st_distance(lat, lon, 1, 2) / 1000 < 1e200", "no length on the Earth"),
    ],
)
def test_other_arithmetic_is_refused_with_the_reason(sql: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says) as caught:
        parse_where(sql, SCHEMA)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("st_box(lat, lon, 1, 2, 3)", "st_box takes 6 arguments, not 5"),
        ("st_near(lat, lon)", "st_near takes 5 arguments, not 2"),
        ("st_box(1, 2, lat, lon, 3, 4)", "the first two arguments of st_box are columns"),
        ("st_near(lat, lon, 91, 0, 1)", "to_lat of st_near is 91"),
        ("st_near(lat, lon, 9, -181, 1)", "to_lon of st_near is -181"),
        ("st_box(lat, lon, 1, 200, 2, 4)", "west of st_box is 200"),
        ("st_box(lat, lon, 5, 2, 3, 4)", r"south \(5\) above its north \(3\)"),
        ("st_near(lat, lon, 9, 0, -1)", "meters of st_near is -1"),
        ("st_near(lat, lon, 9, 0, 1e400)", "meters of st_near cannot be inf"),
        ("st_near(lat, lon, 9, 'a', 1)", "to_lon of st_near must be a number, it is 'a'"),
        ("st_near(lat, lon, NULL, 0, 1)", "to_lat of st_near must be a number, it is None"),
        ("st_near(lat, lon, 9, n, 1)", "to_lon of st_near must be a number, it is not a literal"),
        ("st_near(s, lon, 9, 1, 1)", "a string column cannot be compared"),
        ("st_distance(s, lon, 9, 1) < 1", "needs columns of floating-point degrees, 's' is string"),
        ("st_distance(d, lon, 9, 1) < 1", "needs columns of floating-point degrees, 'd' is decimal"),
        ("st_near(nowhere, lon, 9, 1, 1)", "there is no column 'nowhere'"),
        ("st_distance(lat, lon, 1, 2)", "is not supported"),
        ("st_distance(lat, lon, 1, 2) = 3", "compared by < <= > >= or BETWEEN"),
        ("st_distance(lat, lon, 1, 2) < 'far'", "compared with a number of meters"),
        ("st_distance(lat, lon, 1, 2) < n", "is not supported"),
        ("st_within(lat, lon)", "is not supported"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(sql: str, says: str) -> None:
    with pytest.raises(InvalidPredicate, match=says) as caught:
        parse_where(sql, SCHEMA)
    assert caught.value.hint
