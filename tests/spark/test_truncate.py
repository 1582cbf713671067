"""C11: a query over a stream that is truncated sees one generation, or fails and says why."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import millpond
from tests.spark.conftest import readings
from tests.spark.test_snapshot import Fetches, numbers


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    return Fetches(monkeypatch)


@pytest.mark.usefixtures("by_tasks")
def test_a_frame_made_earlier_sees_the_new_generation(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    assert len(numbers(frame)) == 350
    meters.truncate()
    assert numbers(frame) == []
    meters.append(readings(1_000, 1_010))
    assert numbers(frame) == list(range(1_000, 1_010))
    meters.settle()
    meters.append(readings(1_010, 1_012))
    assert numbers(frame) == list(range(1_000, 1_012))


@pytest.mark.usefixtures("by_tasks")
def test_a_query_that_is_overtaken_fails_with_the_reason(
    spark: SparkSession, meters: millpond.Stream, fetches: Fetches
) -> None:
    """Its live records are gone, and others lie under their offsets by now."""

    def truncated() -> None:
        fetches.before = lambda: None
        meters.truncate()
        meters.append(readings(5_000, 5_400))

    frame = meters.to_spark(spark)
    fetches.before = truncated
    with pytest.raises(Exception, match="generation 1 is gone, this is 2"):
        numbers(frame)
    assert numbers(frame) == list(range(5_000, 5_400))
