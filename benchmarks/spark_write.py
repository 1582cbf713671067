"""A DataFrame loaded straight into the archive against `df.write.parquet` of the same frame, with the same compression.

The frame is made from a cached table, so that both write rows that are there, and neither reads. They take turns, so
that what else the machine does befalls both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile

import pyarrow as pa

import millpond
from benchmarks.figures import report, timed
from benchmarks.session import spark_session

ROWS, TASKS, TURNS = 4_000_000, 4, 5
SCHEMA = pa.schema(
    [("vid", pa.string()), ("city", pa.string()), ("temp", pa.float64()), ("lat", pa.float64()), ("n", pa.int64())]
)


def spark_write() -> bool:
    """Median of the turns, after one that warms up."""
    spark = spark_session({"spark.sql.parquet.compression.codec": "snappy"})
    millpond.spark.register(spark)
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr(
        "concat('meter-', id % 50000) AS vid",
        "concat('city-', id % 40) AS city",
        "sin(id) * 30 AS temp",
        "cos(id) * 90 AS lat",
        "id AS n",
    )
    frame = frame.cache()
    frame.count()
    with (
        tempfile.TemporaryDirectory() as directory,
        millpond.open(os.path.join(directory, "pond"), background=False) as pond,
    ):
        stream = pond.create_stream("bench/load", SCHEMA, keys=["vid"])
        plain_path = os.path.join(directory, "plain")

        def load() -> None:
            options = {"pond": pond.path, "stream": stream.name, "to": "archive"}
            frame.write.format("millpond").options(**options).mode("append").save()

        def plain() -> None:
            shutil.rmtree(plain_path, ignore_errors=True)
            frame.write.parquet(plain_path)

        ours, theirs = [], []
        for turn in range(TURNS + 1):
            seconds = timed(load), timed(plain)
            if turn:
                ours.append(seconds[0])
                theirs.append(seconds[1])
        assert stream.count() == ROWS * (TURNS + 1)
    spark.stop()
    return report(
        'Spark write to="archive" ÷ df.write.parquet',
        ROWS / statistics.median(ours),
        ROWS / statistics.median(theirs),
        ">= 0.5",
        "rows/s",
        rows=ROWS,
    )
