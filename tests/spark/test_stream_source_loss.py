"""What a streaming query does when records that it has not read are gone: expired, or truncated with their stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import millpond
from millpond.testing import ManualClock
from tests.spark.conftest import METERS, readings
from tests.spark.streaming import Reading


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def aging(pond_dir: Path, clock: ManualClock) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False, clock=clock) as pond:
        yield pond


def fill(stream: millpond.Stream, clock: ManualClock) -> None:
    """Two settled objects and a live rest, ten minutes apart: 0 to 99, 100 to 199, 200 to 299."""
    for start in (0, 100, 200):
        stream.append(readings(start, start + 100))
        if start < 200:
            stream.settle()
        clock.advance("10m")


def test_a_new_query_begins_at_the_first_record_that_is_still_there(
    spark: SparkSession, aging: millpond.Pond, clock: ManualClock, tmp_path: Path
) -> None:
    fill(aging.create_stream("grid/meters", METERS, keys=["vid"], ttl="25m"), clock)
    reading = Reading(spark, aging.path, "grid/meters", tmp_path / "checkpoint")
    reading.run()
    assert reading.numbers == list(range(100, 300))


def test_records_that_expired_before_they_were_read_fail_the_query_unless_told_otherwise(
    spark: SparkSession, aging: millpond.Pond, clock: ManualClock, tmp_path: Path
) -> None:
    stream = aging.create_stream("grid/meters", METERS, keys=["vid"], ttl="1d")
    fill(stream, clock)
    reading = Reading(spark, aging.path, "grid/meters", tmp_path / "checkpoint")
    aging.alter_stream("grid/meters", ttl="25m")
    start = json.dumps({"0": 40})
    with pytest.raises(PySparkException, match="60 records of grid/meters were gone before the query read them"):
        reading.run(startingOffsets=start)
    assert reading.batches == {}
    reading.run(startingOffsets=start, failOnDataLoss="false")
    assert reading.numbers == list(range(100, 300))


def test_a_query_whose_last_batch_has_expired_since_goes_on(
    spark: SparkSession, aging: millpond.Pond, clock: ManualClock, tmp_path: Path
) -> None:
    """After a restart Spark plans the last batch again, although it is done: that it is gone harms nobody."""
    stream = aging.create_stream("grid/meters", METERS, keys=["vid"], ttl="1d")
    fill(stream, clock)
    reading = Reading(spark, aging.path, "grid/meters", tmp_path / "checkpoint")
    reading.run()
    clock.advance("25h")
    stream.append(readings(300, 310))
    reading.run()
    assert reading.numbers == list(range(310))


def test_a_truncated_stream_fails_the_query_unless_told_otherwise(reading: Reading, meters: millpond.Stream) -> None:
    reading.run()
    meters.truncate()
    meters.append(readings(1_000, 1_010))
    with pytest.raises(
        PySparkException, match="grid/meters was truncated: the checkpoint is of generation 1, this is 2"
    ):
        reading.run()
    assert reading.numbers == list(range(350))
    reading.run(failOnDataLoss="false")
    assert reading.numbers == [*range(350), *range(1_000, 1_010)]
