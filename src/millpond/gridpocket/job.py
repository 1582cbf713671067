"""The readings as a Spark DataFrame: tasks make them, each its own rows, and need nothing from each other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.gridpocket.readings import BATCH_ROWS, Readings

COLUMNS = (
    "date timestamp, index double, sumHC double, sumHP double, type string, vid bigint, size bigint, temp double, "
    "city string, region bigint, latitude double, longitude double"
)


def frame(spark: Any, readings: Readings, partitions: int | None = None) -> Any:
    """All readings, made by as many tasks as said (or as Spark likes), in the order of time from task to task.

    Executors need Millpond. What they make is the same as `readings.batches()` makes here."""
    importlib.import_module("millpond.spark.live").use_our_python(spark)
    chunks = -(-len(readings) // BATCH_ROWS)
    numbers = spark.range(0, chunks, 1, None if partitions is None else min(partitions, chunks))
    return numbers.mapInArrow(_task(readings), COLUMNS)


def _task(readings: Readings) -> Any:
    # A function inside a function travels by value: an executor imports the generator and not this module's callers.
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from readings.batches(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)

    return make
