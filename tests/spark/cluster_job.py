"""Run by test_cluster.py in a process of its own, as a driver of a standalone cluster: prints what it found as JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

import millpond
import millpond.spark.live
from millpond.pond.desk import PondDesk
from millpond.spark import last_query
from millpond.wire import LiveTicket
from millpond.wire.access import Caller
from millpond.wire.desk import Batches
from tests.spark.cluster_session import cluster_session

SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("city", pa.string())])


def rows(start: int, stop: int) -> list[dict[str, object]]:
    return [{"n": n, "x": math.nan if n % 50 == 7 else float(n), "city": f"c{n % 3}"} for n in range(start, stop)]


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every task reads its first batch, then fails; the second attempt passes everything on."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        if context.attemptNumber() == 0:
            raise RuntimeError("failed once, as planned")
        yield batch


def main(master: str, directory: str, java_options: str) -> dict[str, object]:
    found: dict[str, object] = {}
    spark = cluster_session(master, java_options)
    with millpond.open(os.path.join(directory, "pond"), background=False) as pond:
        stream = pond.create_stream("grid/meters", schema=SCHEMA, streamlets=2)
        for start in (0, 100, 200):
            stream.append(rows(start, start + 100))
            stream.settle()
        stream.append(rows(300, 350))
        pond.attach(spark)

        found["workers"] = sorted(set(spark.range(0, 8, 1, 8).rdd.map(lambda _: os.getppid()).collect()))
        found["driver"] = os.getpid()
        found["all"] = numbers(spark.table("grid_meters"))
        found["few"] = numbers(spark.table("grid_meters").where("n BETWEEN 190 AND 205 OR n = 349"))
        found["objects"] = [last_query(spark).objects_read, last_query(spark).objects_total]
        found["nan"] = numbers(spark.table("grid_meters").where("x > 1e9"))
        found["groups"] = [
            [row["city"], row["rows"]]
            for row in spark.sql("SELECT city, count(*) AS rows FROM grid_meters GROUP BY city ORDER BY city").collect()
        ]

        # From here on the stream moves on whenever the node serves anything.
        serve, lock, next_number = PondDesk.live, threading.Lock(), iter(range(10_000, 20_000))
        served = 0

        def live(desk: PondDesk, caller: Caller, ticket: LiveTicket) -> Batches:
            nonlocal served
            with lock:
                served += 1
                stream.append(rows(start := next(next_number), start + 1))
                stream.settle()
            return serve(desk, caller, ticket)

        PondDesk.live = live  # type: ignore[method-assign]
        millpond.spark.live.ROWS_HELD_MAX = 0  # whoever fetches now is an executor
        found["retried"] = numbers(spark.table("grid_meters").mapInArrow(fail_once, spark.table("grid_meters").schema))
        found["served"] = served
        stream.append(rows(20_000, 20_100))
        (missing,) = spark.sql("""
            SELECT count(*) AS rows FROM grid_meters l FULL OUTER JOIN (SELECT n, city FROM grid_meters WHERE n >= 0) r
            ON l.n = r.n WHERE l.n IS NULL OR r.n IS NULL
        """).collect()
        found["unmatched"] = missing["rows"]
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
