"""A streaming query with a consumer group: its lag is seen where all others' are."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

import millpond
from tests.spark.conftest import readings
from tests.spark.streaming import Reading


def test_a_group_follows_the_query(reading: Reading, meters: millpond.Stream, pond: millpond.Pond) -> None:
    query = reading.start(group="billing", maxRecordsPerTrigger=200)
    try:
        query.processAllAvailable()
        meters.append(readings(350, 360))
        query.processAllAvailable()
    finally:
        query.stop()
    # Spark commits a batch when it plans the next one: the last one is still to be told of.
    assert pond.group("grid/meters", "billing").status().lag_total in (0, 10)
    meters.append(readings(360, 365))
    reading.run(group="billing")
    status = pond.group("grid/meters", "billing").status()
    assert status.lag_total <= 5
    assert reading.numbers == list(range(365))


def test_a_query_that_has_read_nothing_has_its_lag_too(reading: Reading, pond: millpond.Pond) -> None:
    reading.during = lambda frame, number: _fail()
    with pytest.raises(PySparkException, match="as planned"):
        reading.run(group="billing")
    assert pond.group("grid/meters", "billing").status().lag_total == 350


def _fail() -> None:
    raise RuntimeError("failed, as planned")


def test_a_group_that_consumers_work_in_is_refused(reading: Reading, pond: millpond.Pond) -> None:
    with pond.consumer("grid/meters", group="billing", instance="bills-1") as consumer:
        assert next(consumer.poll(max_records=10, timeout="1s")).num_rows == 10
        with pytest.raises(PySparkException, match="group 'billing' of grid/meters has consumers: bills-1"):
            reading.run(group="billing")
    assert reading.batches == {}
