"""The readings that Spark's tasks make are those that are made here, row for row."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.gridpocket import ORIGIN, SCHEMA, Readings, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_make_the_same_rows(spark: SparkSession) -> None:
    """F12: executors keep no state: three tasks, of which none begins at a moment's first meter."""
    wanted = Readings(9_000, ORIGIN + timedelta(days=1, hours=23), timedelta(hours=5), timedelta(minutes=15))
    here = pa.Table.from_batches(wanted.batches())
    made = frame(spark, wanted, 3)
    assert made.rdd.getNumPartitions() == 3
    found = made.toArrow()
    assert found.schema.names == SCHEMA.names
    order = [("date", "ascending"), ("vid", "ascending")]
    assert found.cast(SCHEMA).sort_by(order).equals(here)
