"""Run by test_cluster.py in a process of its own, as the driver of a streaming query on a standalone cluster. In its
second batch every task waits, in the middle of its records, until a worker was killed. Prints what it was given.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

import millpond
import millpond.spark.live
from tests.spark.cluster_session import cluster_session

SCHEMA = pa.schema([("n", pa.int64()), ("city", pa.string())])
WAIT_SECONDS = 120.0


def rows(start: int, stop: int) -> list[dict[str, object]]:
    return [{"n": n, "city": f"c{n % 3}"} for n in range(start, stop)]


def waiting(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes batches on; a first attempt says that it is in the middle, and waits for the worker's end."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                Path(directory, f"running-{context.partitionId()}").touch()
                limit = time.monotonic() + WAIT_SECONDS
                while not Path(directory, "killed").exists() and time.monotonic() < limit:
                    time.sleep(0.05)

    return work


def main(master: str, directory: str, java_options: str) -> dict[str, object]:
    spark = cluster_session(master, java_options)
    millpond.spark.live.ROWS_HELD_MAX = 0  # whoever fetches is an executor
    batches: dict[int, list[int]] = {}
    with millpond.open(os.path.join(directory, "pond"), background=False) as pond:
        stream = pond.create_stream("grid/meters", schema=SCHEMA, streamlets=2)
        millpond.spark.register(spark)
        made = 0

        def add() -> None:
            nonlocal made
            for _ in range(2):  # one append for each streamlet
                stream.append(rows(made, made + 100))
                made += 100

        def take(frame: DataFrame, number: int) -> None:
            if number == 1:
                frame = frame.mapInArrow(waiting(directory), frame.schema)
            if number == 0:
                add()
                stream.settle()
            if number < 3:
                add()
            batches[number] = [row["n"] for row in frame.select("n").collect()]
            if number == 1:
                stream.settle()

        add()
        stream.settle()
        add()
        # The first two batches hold settled and live records, with tasks enough for both workers.
        frame = spark.readStream.format("millpond").options(pond=pond.path, stream="grid/meters").load()
        writer = frame.writeStream.foreachBatch(take).option(
            "checkpointLocation", os.path.join(directory, "checkpoint")
        )
        query = writer.start()
        query.processAllAvailable()
        query.stop()
    spark.stop()
    return {"made": made, "batches": [batch for _, batch in sorted(batches.items())]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
