"""Structured Streaming over a stream against Spark's own sources: rows a second, and what a micro-batch costs.

The sink is Spark's `noop`, which takes every row and keeps none. Ours and Spark's run in turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millpond
from benchmarks import records
from benchmarks.figures import report
from benchmarks.session import spark_session

BATCHES, ROWS, SETTLES = 400, 10_000, 8
LIVE_BATCHES = 100
TURNS = 3
SMALL_BATCHES = 15
# The first batches of a query compile its code.
WARM_UP = 3


def streaming() -> bool:
    spark = spark_session()
    millpond.spark.register(spark)
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            millpond.open(os.path.join(directory, "pond"), background=False) as pond,
        ):
            met = [figure(spark, pond, Path(directory)) for figure in (_settled, _live, _overhead)]
            return all(met)
    finally:
        spark.stop()


def _settled(spark: SparkSession, pond: millpond.Pond, directory: Path) -> bool:
    """The same objects, read by both: as a stream's beginning, and as files that have appeared in a directory."""
    stream = _filled(pond, "bench/settled", BATCHES, BATCHES // SETTLES)
    return _rate(spark, pond, stream, _files_of(stream, directory), directory, BATCHES * ROWS)


def _live(spark: SparkSession, pond: millpond.Pond, directory: Path) -> bool:
    """Records that have not settled, fetched by tasks, against the same ones as files."""
    twin = _filled(pond, "bench/twin", LIVE_BATCHES, LIVE_BATCHES // 2)
    live = _filled(pond, "bench/live", LIVE_BATCHES, 0)
    return _rate(spark, pond, live, _files_of(twin, directory), directory, LIVE_BATCHES * ROWS)


def _rate(
    spark: SparkSession, pond: millpond.Pond, stream: millpond.Stream, files: Path, directory: Path, rows: int
) -> bool:
    schema = spark.read.parquet(str(files)).schema
    ours, plain = [], []
    for turn in range(TURNS + 1):
        ours.append(_run(_stream(spark, pond, stream.name), directory / f"{stream.definition.id}-ours-{turn}"))
        plain.append(
            _run(
                spark.readStream.schema(schema).parquet(str(files)), directory / f"{stream.definition.id}-plain-{turn}"
            )
        )
    where = stream.name.split("/")[1]
    return report(
        f"Structured Streaming, {where} records ÷ Parquet files by readStream",
        rows / statistics.median(ours[1:]),
        rows / statistics.median(plain[1:]),
        ">= 0.4",
        "records/s",
        rows=rows,
    )


def _overhead(spark: SparkSession, pond: millpond.Pond, directory: Path) -> bool:
    """Batches of a few rows: what is left is what each costs, whatever is in it."""
    stream = pond.create_stream("bench/idle", records.SCHEMA, keys=["vid"])
    one = records.batch(0, 1)
    ours = _start(_stream(spark, pond, stream.name), directory / "idle-ours")
    for _ in range(SMALL_BATCHES):
        stream.append(one)
        ours.processAllAvailable()
    taken = _durations(ours)
    ours.stop()
    rate = _start(spark.readStream.format("rate").option("rowsPerSecond", 1).load(), directory / "idle-rate")
    while len(_durations(rate)) < SMALL_BATCHES:
        time.sleep(0.2)
    plain = _durations(rate)
    rate.stop()
    return report(
        "Structured Streaming, a micro-batch of one record ÷ of the rate source",
        statistics.median(taken[WARM_UP:]),
        statistics.median(plain[WARM_UP:]),
        "<= 1.5",
        "seconds",
        rows=1,
    )


def _durations(query: StreamingQuery) -> list[float]:
    """Of the batches that held rows, from the look for new ones to the note that they are done."""
    return [
        progress["durationMs"]["triggerExecution"] / 1_000
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def _filled(pond: millpond.Pond, name: str, batches: int, settle_every: int) -> millpond.Stream:
    stream = pond.create_stream(name, records.SCHEMA, keys=["vid"], streamlets=2)
    made = [records.batch(number, ROWS) for number in range(50)]
    for number in range(batches):
        stream.append(made[number % len(made)], durability="os")
        if settle_every and (number + 1) % settle_every == 0:
            stream.settle()
    return stream


def _files_of(stream: millpond.Stream, directory: Path) -> Path:
    """Its objects, side by side in a directory of their own."""
    settled = stream.snapshot().settled
    files = directory / f"files-{stream.definition.id}"
    files.mkdir()
    for number, path in enumerate(settled.objects.paths):
        shutil.copy(os.path.join(settled.root, path), files / f"{number:06}.parquet")
    return files


def _stream(spark: SparkSession, pond: millpond.Pond, name: str) -> DataFrame:
    return spark.readStream.format("millpond").option("pond", pond.path).option("stream", name).load()


def _start(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _run(frame: DataFrame, checkpoint: Path) -> float:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    began = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began
