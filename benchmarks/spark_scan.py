"""A Spark query on settled data against Spark's own Parquet reader on the same objects; nothing can be skipped."""

from __future__ import annotations

import os
import tempfile

import millpond
from benchmarks import records
from benchmarks.figures import median_of, report
from benchmarks.session import spark_session

BATCHES, ROWS, SETTLES = 800, 10_000, 8
QUERY = "SELECT city, count(*), avg(temp), max(load) FROM {} WHERE lat > 0 GROUP BY city"


def spark_scan() -> bool:
    """Median of five, after a warm-up; the live half is part of the query, and empty."""
    spark = spark_session()
    with (
        tempfile.TemporaryDirectory() as directory,
        millpond.open(os.path.join(directory, "pond"), background=False) as pond,
    ):
        stream = pond.create_stream("bench/scan", records.SCHEMA, keys=["vid"])
        made = [records.batch(number, ROWS) for number in range(50)]
        for number in range(BATCHES):
            stream.append(made[number % len(made)], durability="os")
            if (number + 1) % (BATCHES // SETTLES) == 0:
                stream.settle()
        pond.attach(spark)
        snapshot = stream.snapshot().settled
        paths = [os.path.join(snapshot.root, path) for path in snapshot.objects.paths]
        spark.read.parquet(*paths).createOrReplaceTempView("plain")
        expected = sorted(map(tuple, spark.sql(QUERY.format("plain")).collect()))
        assert sorted(map(tuple, spark.sql(QUERY.format("bench_scan")).collect())) == expected
        plain = median_of(5, lambda: spark.sql(QUERY.format("plain")).collect())
        ours = median_of(5, lambda: spark.sql(QUERY.format("bench_scan")).collect())
        plain_again = median_of(5, lambda: spark.sql(QUERY.format("plain")).collect())
    spark.stop()
    return report(
        "Spark query on settled data ÷ spark.read.parquet", ours, (plain + plain_again) / 2, "<= 1.15", "seconds",
        rows=BATCHES * ROWS,
    )  # fmt: skip
