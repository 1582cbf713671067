"""st_box, st_near and st_distance in Spark: the same rows as in a scan, and objects elsewhere are not read."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import millpond
from millpond.errors import InvalidPredicate
from millpond.model.sphere import distance_meters
from millpond.spark import attach, functions, last_query, register

SCHEMA = pa.schema([("id", pa.int64()), ("lat", pa.float64()), ("lon", pa.float32()), ("name", pa.string())])
# Each is the middle of an object's places.
CITIES = {
    "Paris": (48.85, 2.35),
    "Nice": (43.7, 7.25),
    "Suva": (-18.1, 178.4),
    "Apia": (-13.8, -171.8),
    "Alert": (82.5, -62.3),
    "pole": (-89.9, 0.0),
    "Quito": (-0.2, -78.5),
}
NOWHERE = [None, math.nan, math.inf, -math.inf, 90.5, -181.0, 540.0, -0.0, 90.0, 180.0, -180.0]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[millpond.Stream]:
    dice, number = random.Random(5), itertools.count()
    with millpond.open(str(tmp_path_factory.mktemp("places") / "pond"), background=False) as pond:
        stream = pond.create_stream("places", schema=SCHEMA)
        for name, (lat, lon) in CITIES.items():
            places = [(lat + dice.uniform(-0.1, 0.1), lon + dice.uniform(-0.3, 0.3)) for _ in range(40)]
            stream.append([{"id": next(number), "lat": a, "lon": o, "name": name} for a, o in places])
            stream.settle()
        odd = list(itertools.product(NOWHERE, NOWHERE))
        stream.append([{"id": next(number), "lat": a, "lon": o, "name": "odd"} for a, o in odd])
        stream.settle()
        stream.append([{"id": next(number), "lat": 48.85, "lon": 2.35, "name": "live"}])
        attached = attach(pond, spark)
        yield stream
        attached.detach()


WHERE = {
    "st_box(lat, lon, 48, 2, 49, 3)": {"Paris"},
    "st_box(lat, lon, -20, 177, -13, -171)": {"Suva", "Apia"},
    "st_near(lat, lon, 48.85, 2.35, 5000)": {"Paris"},
    "st_near(lat, lon, 48.85, 2.35, 0)": {"Paris"},
    "st_near(lat, lon, 46, 5, 400000)": {"Paris", "Nice"},
    "st_near(lat, lon, -16, 180, 700000)": {"Suva"},
    "st_near(lat, lon, -16, -180, 1200000)": {"Suva", "Apia"},
    "st_near(lat, lon, -90, 100, 15000)": {"pole"},
    "st_near(lat, lon, 84, 120, 2000000)": {"Alert"},
    "st_near(lat, lon, 0, 0, 20100000)": set(CITIES),
    "st_near(lat, lon, 0, 0, 1000)": set(),
    "st_distance(lat, lon, 48.85, 2.35) < 5000": {"Paris"},
    "st_distance(48.85, 2.35, lat, lon) <= 5 * 1000": {"Paris"},
    "5e3 > st_distance(lat, lon, 48.8 + 0.05, 2.35)": {"Paris"},
    "5000.5 >= st_distance(48.85, 2.35, lat, lon)": {"Paris"},
    "st_distance(lat, lon, 48.85, 2.35) / 1000 < 5": {"Paris"},
    "2 * st_distance(lat, lon, 48.85, 2.35) / 1609.344 <= 6": {"Paris"},
    "st_distance(lat, lon, 48.85, 2.35) BETWEEN 1000 AND 5000": {"Paris"},
    "st_distance(lat, lon, -16, 180) < 700000": {"Suva"},
    "st_distance(lat, lon, -16, -180) < 1200000": {"Suva", "Apia"},
    "st_distance(lat, lon, -90, 100) <= 15000": {"pole"},
    "st_distance(lat, lon, 84, 120) < 2000000": {"Alert"},
    "st_distance(lat, lon, 0, 0) < 1000": set(),
    "NOT st_distance(lat, lon, 48.85, 2.35) > 5000": {"Paris"},
    "NOT (st_distance(lat, lon, 48.85, 2.35) >= 5000 OR id < 0)": {"Paris"},
    "id >= 0 AND 5000 > st_distance(lat, lon, 48.85, 2.35)": {"Paris"},
    "st_distance(lat, lon, 48.85, 2.35) < 5000 OR st_distance(lat, lon, 43.7, 7.25) < 5000": {"Paris", "Nice"},
}


@pytest.mark.parametrize("where", WHERE)
def test_spark_and_a_scan_find_the_same_rows(spark: SparkSession, stream: millpond.Stream, where: str) -> None:
    names, settled = WHERE[where], len(CITIES) + 1
    found = spark.sql(f"SELECT id, name FROM places WHERE {where}").collect()
    figures = last_query(spark)
    assert {row.name for row in found} - {"odd", "live"} <= names
    assert {row.id for row in found} == set(stream.scan(where=where).column("id").to_pylist())
    assert figures.objects_total == settled
    # Of the object with NaN nothing is known.
    assert figures.objects_read <= len(names) + 1
    assert stream.explain(where).objects_read <= len(names) + 1
    # As a column of all rows, nobody skips by it.
    everywhere = spark.sql(f"SELECT id, {where} AS wanted FROM places").collect()
    assert {row.id for row in everywhere if row.wanted} == {row.id for row in found}


def test_a_distance_that_was_given_a_name_is_skipped_by(spark: SparkSession, stream: millpond.Stream) -> None:
    named = "SELECT id, st_distance(lat, lon, 48.85, 2.35) AS meters FROM places"
    found = spark.sql(f"SELECT id, meters FROM ({named}) WHERE meters < 5000 ORDER BY meters").collect()
    assert {row.id for row in found} == {row.id for row in spark.sql(named).collect() if (row.meters or 1e9) < 5000}
    spark.sql(f"SELECT id FROM ({named}) WHERE meters < 5000").collect()
    assert last_query(spark).objects_read <= 2


def test_distances_that_bound_nothing_skip_nothing(spark: SparkSession, stream: millpond.Stream) -> None:
    """What is far away, what is compared with another column or with NaN, and a formula of somebody else, whose
    longitudes may be any number."""
    own = "asin(sqrt(least(1D, power(sin((lat * {r} - 0.85D) / 2), 2) + cos(lat * {r}) * cos(0.85D)"
    own += " * power(sin((CAST(lon AS DOUBLE) - 2.35D) * {r} / 2), 2)))) * 12742017.6D < 5000"
    for where in (
        "st_distance(lat, lon, 48.85, 2.35) > 5000",
        "st_distance(lat, lon, 48.85, 2.35) * -1 < 5000",
        "st_distance(lat, lon, 48.85, 2.35) < id",
        "st_distance(lat, lon, 48.85, 2.35) <= double('NaN')",
        own.format(r=f"{math.pi / 180!r}D"),
    ):
        found = {row.id for row in spark.sql(f"SELECT id FROM places WHERE {where}").collect()}
        assert last_query(spark).objects_read == len(CITIES) + 1, where
        everywhere = spark.sql(f"SELECT id, {where} AS wanted FROM places").collect()
        assert {row.id for row in everywhere if row.wanted} == found, where


@pytest.mark.parametrize(
    "where",
    [
        *(f"NOT ({where})" for where in WHERE),
        "st_distance(lat, lon, 48.85, 2.35) < 5000",
        "st_distance(48.85, 2.35, lat, lon) >= 5000",
        "st_distance(lat, lon, 90, 0) BETWEEN 0 AND 1000000",
        "NOT (st_distance(lat, lon, 0, 180) > 3000000 OR st_box(lat, lon, -1, -79, 1, -78))",
    ],
)
def test_nulls_and_what_is_no_place_are_the_same_below_a_not(
    spark: SparkSession, stream: millpond.Stream, where: str
) -> None:
    found = spark.sql(f"SELECT id FROM places WHERE {where}").collect()
    assert found
    assert {row.id for row in found} == set(stream.scan(where=where).column("id").to_pylist())


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("st_box(lat, lon, 48, 2, 49, 3)", lambda: functions.st_box("lat", "lon", 48, 2, 49, 3)),
        ("st_box(lat, lon, -20, 177, -13, -171)", lambda: functions.st_box("lat", F.col("lon"), -20, 177, -13, -171)),
        ("st_near(lat, lon, 46, 5, 400000)", lambda: functions.st_near(F.col("lat"), "lon", 46, 5, 400_000)),
        ("st_near(lat, lon, -16, 180, 700000)", lambda: functions.st_near("lat", "lon", -16, 180, 700_000)),
        ("st_near(lat, lon, -90, 100, 15000)", lambda: functions.st_near("lat", "lon", -90, 100, 15_000)),
        ("st_distance(lat, lon, 48.85, 2.35) < 1e6", lambda: functions.st_distance("lat", "lon", 48.85, 2.35) < 1e6),
    ],
)
def test_columns_say_what_the_functions_of_sql_say(
    spark: SparkSession, stream: millpond.Stream, where: str, column: Callable[[], Column]
) -> None:
    expected = {row.id for row in spark.sql(f"SELECT id FROM places WHERE {where}").collect()}
    read = last_query(spark).objects_read
    assert {row.id for row in stream.to_spark(spark).where(column()).collect()} == expected
    assert last_query(spark).objects_read == read
    negated = {row.id for row in stream.to_spark(spark).where(~column()).collect()}
    assert negated == {row.id for row in spark.sql(f"SELECT id FROM places WHERE NOT ({where})").collect()}


def test_distances_are_those_of_the_model(spark: SparkSession, stream: millpond.Stream) -> None:
    rows = spark.sql("SELECT lat, CAST(lon AS DOUBLE) AS lon, st_distance(lat, lon, 48.85, 2.35) AS d FROM places")
    for lat, lon, away in rows.collect():
        expected = None if lat is None or lon is None else distance_meters(lat, lon, 48.85, 2.35)
        assert (away is None) == (expected is None)
        assert away is None or away == pytest.approx(expected, rel=1e-12, abs=1e-6)


def test_two_places_of_one_row_have_a_distance(spark: SparkSession, stream: millpond.Stream) -> None:
    pairs = spark.sql(
        "SELECT count(*) AS n FROM places a JOIN places b ON st_near(a.lat, a.lon, b.lat, b.lon, 1000)"
        " WHERE a.name = 'Quito' AND b.name = 'Quito'"
    )
    assert pairs.collect()[0].n >= 40


def test_several_functions_in_one_list_of_columns(spark: SparkSession, stream: millpond.Stream) -> None:
    """A stream is a union, over which Spark itself fails if a parameter is named as the column that it is given."""
    functions_of = "st_distance(lat, lon, 48.85, 2.35) AS paris, st_distance(43.7, 7.25, lat, lon) AS nice"
    rows = spark.sql(f"SELECT lat, lon, {functions_of}, st_near(lat, lon, 43.7, 7.25, 5000) AS near FROM places")
    for lat, lon, *found in rows.where("lat = lat AND name <> 'odd'").collect():
        paris, nice = distance_meters(lat, lon, 48.85, 2.35), distance_meters(lat, lon, 43.7, 7.25)
        assert found == [pytest.approx(paris, abs=1e-6), pytest.approx(nice, abs=1e-6), (nice or 0) <= 5000]
    grouped = "SELECT st_box(lat, lon, 40, 0, 50, 10) AS france, avg(st_distance(lat, lon, 48.85, 2.35)) AS far"
    means = {
        row.france: row.far for row in spark.sql(f"{grouped} FROM places WHERE name <> 'odd' GROUP BY 1").collect()
    }
    assert means[True] < 700_000 < means[False]


def test_a_function_of_another_keeps_its_name(spark: SparkSession) -> None:
    other = spark.newSession()
    other.sql("CREATE TEMPORARY FUNCTION st_distance(a STRING, b STRING) RETURNS STRING RETURN a || b")
    register(other)
    assert other.sql("SELECT st_distance('here', 'there') AS d").collect()[0].d == "herethere"
    assert other.sql("SELECT st_near(1D, 2D, 1, 2, 3) AS d").collect()[0].d is True


@pytest.mark.parametrize(
    "make",
    [
        lambda: functions.st_box("lat", "lon", 3, 0, 2, 1),
        lambda: functions.st_box("lat", "lon", 1, 0, 95, 1),
        lambda: functions.st_near("lat", "lon", 1, 190, 5),
        lambda: functions.st_near("lat", "lon", 1, 1, -5),
        lambda: functions.st_near("lat", "lon", 1, 1, math.nan),
    ],
)
def test_arguments_that_make_no_sense_are_refused(spark: SparkSession, make: Callable[[], Column]) -> None:
    with pytest.raises(InvalidPredicate, match="st_"):
        make()
