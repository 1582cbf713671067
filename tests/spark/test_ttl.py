"""Expired records in Spark: no query gives them, in either half, also of objects that hold others besides (C12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import millpond
from millpond.spark.planner import planner_of
from millpond.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.struct([("lat", pa.float64()), ("name", pa.string())]))])


def rows(start: int, stop: int) -> list[dict[str, object]]:
    return [{"n": n, "at": {"lat": n / 10, "name": f"p{n}"}} for n in range(start, stop)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pond(pond_dir: Path, clock: ManualClock) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False, clock=clock) as pond:
        yield pond


@pytest.fixture
def places(pond: millpond.Pond, clock: ManualClock) -> millpond.Stream:
    """n below 10 in one object, below 20 in another that holds two times, below 30 live, of two times as well; ten
    minutes apart."""
    stream = pond.create_stream("places", SCHEMA, ttl="1h")
    stream.append(rows(0, 10))
    stream.settle()
    clock.advance("10m")
    stream.append(rows(10, 15))
    clock.advance("10m")
    stream.append(rows(15, 20))
    stream.settle()
    clock.advance("10m")
    stream.append(rows(20, 25))
    clock.advance("10m")
    stream.append(rows(25, 30))
    return stream


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("n").collect())


def test_each_query_leaves_out_what_has_expired_by_then(
    spark: SparkSession, places: millpond.Stream, clock: ManualClock
) -> None:
    frame = places.to_spark(spark)
    assert numbers(frame) == list(range(30))
    clock.advance("21m")
    assert numbers(frame.where("n % 2 = 0")) == list(range(10, 30, 2)), "an object is gone"
    clock.advance("9m")
    clock.advance("1s")
    assert numbers(frame) == list(range(15, 30)), "of an object a part is gone"
    assert sorted(r[0] for r in frame.select("at.name").collect()) == sorted(f"p{n}" for n in range(15, 30))
    assert frame.alias("a").join(frame.alias("b"), "n").count() == 15
    clock.advance("20m")
    assert numbers(frame) == list(range(25, 30)), "of the live ones as well"


def test_objects_that_have_expired_whole_are_not_read(
    spark: SparkSession, places: millpond.Stream, clock: ManualClock
) -> None:
    clock.advance("21m")
    assert places.to_spark(spark).count() == 20
    figures = planner_of(spark).last_query()
    assert figures is not None
    (scan,) = figures.settled.values()
    assert int(scan.keep.sum()) == 1


def test_a_shorter_ttl_takes_effect_in_views_at_once(
    spark: SparkSession, places: millpond.Stream, pond: millpond.Pond
) -> None:
    attached = pond.attach(spark)
    try:
        assert numbers(spark.table("places")) == list(range(30))
        pond.alter_stream("places", ttl="15m")
        assert numbers(spark.table("places")) == list(range(20, 30))
        pond.alter_stream("places", ttl=None)
        assert numbers(spark.table("places")) == list(range(30))
    finally:
        attached.detach()


def test_a_stream_without_expired_records_is_planned_as_before(
    spark: SparkSession, places: millpond.Stream, clock: ManualClock
) -> None:
    frame = places.to_spark(spark)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "_ingest_time#" not in plan or "Filter" not in plan
    clock.advance("31m")
    plan = places.to_spark(spark)._jdf.queryExecution().optimizedPlan().toString()
    assert "Filter" in plan
