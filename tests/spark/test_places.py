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


@pytest.mark.parametrize(
    "where",
    [
        *(f"NOT {where}" for where in WHERE),
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
