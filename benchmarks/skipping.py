"""How much a query need not read: layouts and filters against reading everything, and against Delta's Z-order.

Ten million meter readings; squares of 5, 10 and 20 km around a meter of each part of the map. A figure is the sum over
all queries: total bytes × queries ÷ bytes of the objects that were not ruled out. So a query that reads much counts
much. What is ruled out is asked of the index that Spark's planner asks, for every square; some are then asked through
Spark, and must have read the same.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import millpond
from benchmarks.figures import report, talk, timed
from benchmarks.neighbourhoods import Squares, squares, told
from benchmarks.session import spark_session
from benchmarks.zorder import ZOrdered
from millpond.gridpocket import SCHEMA, Readings
from millpond.model.predicate import Predicate

READINGS = Readings(50_000, period=timedelta(days=9), every=timedelta(hours=1))
PLACE = ("latitude", "longitude")
SIZES = (5.0, 10.0, 20.0)
APPEND_ROWS = 100_000
# Queries that are asked through Spark, too, and those that are timed.
CONFIRMED, TIMED = 20, 7
PUSH_DOWN = "spark.sql.parquet.filterPushdown"


def skipping() -> bool:
    """All figures of skipping but those of history."""
    met: list[bool] = []
    around = {km: squares(READINGS, km) for km in SIZES}
    with new_pond() as pond:
        tree = laid_out(pond, "kd128", millpond.KdTree(*PLACE, buckets=128), boxes=8)
        for km, target in zip(SIZES, (80, 70, 50), strict=True):
            met.append(spared("k-d tree, 128 buckets", tree, around[km], f">= {target}"))
        met.append(against_z_order(pond.path, tree, around[5.0]))
        met.append(through_spark(pond, tree, around[5.0]))
        pond.drop_stream(tree.name)
        for buckets in (32, 64):
            tree = laid_out(pond, f"kd{buckets}", millpond.KdTree(*PLACE, buckets=buckets), boxes=8)
            met += [spared(f"k-d tree, {buckets} buckets", tree, around[km], ">= 18") for km in SIZES]
            pond.drop_stream(tree.name)
        # A bucket holds cells from all over the map: a box each.
        grid = laid_out(pond, "grid128", millpond.Grid(*PLACE, precision=1, buckets=128), boxes=64)
        met.append(spared("grid of precision 1, 128 buckets", grid, around[5.0], ">= 30"))
    return all(met)


@contextmanager
def new_pond() -> Iterator[millpond.Pond]:
    """A pond whose settles take all readings as one block, so that a bucket is an object."""
    with (
        tempfile.TemporaryDirectory() as directory,
        millpond.open(
            os.path.join(directory, "pond"), background=False, block_segments=400, memory_bytes=1_000_000_000
        ) as pond,
    ):
        yield pond


def laid_out(pond: millpond.Pond, name: str, layout: Any, *, boxes: int = 0) -> millpond.Stream:
    """All readings, settled under a layout."""
    stream = pond.create_stream(
        f"bench/{name}",
        SCHEMA,
        keys=["vid"],
        event_time="date",
        partition="365d",
        layout=layout,
        indexes=[millpond.Boxes(*PLACE, boxes=boxes)] if boxes else [],
    )

    def load() -> None:
        for batch in READINGS.batches(rows=APPEND_ROWS):
            stream.append(batch, durability="os")
        stream.settle()

    seconds = timed(load)
    status = stream.status()
    assert status.rows_settled == len(READINGS)
    talk(f"{name}: {status.objects} objects, {status.bytes_settled:,} bytes, in {seconds:.0f} s")
    return stream


def read_for(stream: millpond.Stream, predicates: Sequence[Predicate]) -> tuple[int, int]:
    """Bytes and objects that are read for all queries."""
    index = stream.snapshot().settled.objects
    size = count = 0
    for predicate in predicates:
        keep = index.prune(predicate).keep
        size += int(index.sizes[keep].sum())
        count += int(keep.sum())
    return size, count


def spared(what: str, stream: millpond.Stream, around: Squares, target: str) -> bool:
    """Bytes without filters ÷ bytes with them."""
    index = stream.snapshot().settled.objects
    size, count = read_for(stream, around.predicates)
    return report(
        f"{what}, {around.km:g}×{around.km:g} km: bytes without ÷ with filters",
        index.bytes_total * len(around),
        size,
        target,
        "bytes",
        rows=len(READINGS),
        **told(count, len(around), index.sizes),
    )


def against_z_order(directory: str, stream: millpond.Stream, around: Squares) -> bool:
    """Bytes that our layout and index read ÷ those of Delta's Z-order with minima and maxima."""
    index = stream.snapshot().settled.objects
    other = ZOrdered(os.path.join(os.path.dirname(directory), "z-order"), READINGS, len(index))
    assert other.rows == len(READINGS)
    ours, _ = read_for(stream, around.predicates)
    theirs, theirs_objects = around.reaching(other.bounds("min"), other.bounds("max"), other.sizes)
    return report(
        f"k-d tree, {around.km:g}×{around.km:g} km: bytes read ÷ Delta's Z-order",
        ours,
        theirs,
        "<= 0.5",
        "bytes",
        bytes_total=[index.bytes_total, other.bytes_total],
        objects=[len(index), len(other.sizes)],
        z_order_objects_read_per_query=round(theirs_objects / len(around), 2),
    )


def through_spark(pond: millpond.Pond, stream: millpond.Stream, around: Squares) -> bool:
    """The same through Spark SQL: what `last_query` says is what the index says, and how long it takes. Without filters
    every object is read: Spark's own reader, which does not look at Parquet's statistics. If it does, it opens every
    object all the same, and reads the row groups that may match; that time is told beside it."""
    # Or else a job with a task for each path would look whether it is there.
    spark = spark_session({"spark.sql.sources.parallelPartitionDiscovery.threshold": "100000"})
    try:
        pond.attach(spark)
        settled = stream.snapshot().settled
        paths = [os.path.join(settled.root, path) for path in settled.objects.paths]
        spark.read.parquet(*paths).createOrReplaceTempView("without_filters")
        view = stream.name.replace("/", "_")
        chosen = range(0, len(around), len(around) // CONFIRMED)
        predicates = around.predicates
        for at in chosen:
            ask(spark, view, around, at)
            keep = settled.objects.prune(predicates[at]).keep
            assert millpond.spark.last_query(spark).bytes_read == int(settled.objects.sizes[keep].sum())
        with_filters, without, by_parquet = [], [], []
        for at in list(chosen)[:TIMED]:
            assert ask(spark, view, around, at) == ask(spark, "without_filters", around, at)
            with_filters.append(timed(lambda at=at: ask(spark, view, around, at)))
            by_parquet.append(timed(lambda at=at: ask(spark, "without_filters", around, at)))
            spark.conf.set(PUSH_DOWN, "false")
            without.append(timed(lambda at=at: ask(spark, "without_filters", around, at)))
            spark.conf.set(PUSH_DOWN, "true")
    finally:
        spark.stop()
    return report(
        f"query time through Spark, {around.km:g}×{around.km:g} km, with ÷ without filters",
        statistics.median(with_filters),
        statistics.median(without),
        "<= 0.2",
        "seconds",
        queries=TIMED,
        confirmed=len(chosen),
        with_parquet_statistics_alone=round(statistics.median(by_parquet), 3),
    )


def ask(spark: Any, view: str, around: Squares, at: int) -> list[Any]:
    """What the homes of a square took, by town and how they are warmed: everything but the region counts."""
    text = (
        "SELECT city, type, count(*), min(vid), max(vid), min(date), max(date), max(index) - min(index), "
        "max(sumHC), max(sumHP), min(temp), max(temp), avg(size) "
        f"FROM {view} WHERE {around.sql(at)} GROUP BY city, type"
    )
    return sorted(map(tuple, spark.sql(text).collect()))
