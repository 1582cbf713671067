"""Many queries: at once, and one after the other without leaving anything behind."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

import millpond
from tests.spark.conftest import readings

QUERIES = 60


def test_queries_from_many_threads(spark: SparkSession, shared_meters: millpond.Stream) -> None:
    frame = shared_meters.to_spark(spark)

    def ask(number: int) -> tuple[int, int]:
        return number, frame.where(f"n >= {number * 10}").count()

    with ThreadPoolExecutor(8) as pool:
        for number, found in pool.map(ask, range(24)):
            assert found == 350 - number * 10


def test_a_query_leaves_nothing_behind(spark: SparkSession, meters: millpond.Stream) -> None:
    """What Python holds for the JVM goes when the JVM lets go of the plan."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    held = gateway.gateway_property.pool.dict
    frame = meters.to_spark(spark)
    frame.where("n = 1")._jdf.queryExecution().executedPlan()
    most = 0
    for number in range(QUERIES):
        if number % 20 == 0:
            meters.append(readings(1_000 + number, 1_001 + number))
            meters.settle()
        frame.where(f"n = {number}")._jdf.queryExecution().executedPlan()
        most = max(most, len(held))
    assert most > QUERIES // 2
    deadline = time.monotonic() + 60
    while len(held) > most - QUERIES // 2:
        if time.monotonic() > deadline:
            pytest.fail(f"{len(held)} callbacks are still held, {most} at most")
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        time.sleep(0.2)


def test_ten_thousand_objects_are_planned_in_no_time(spark: SparkSession, meters: millpond.Stream) -> None:
    """Objects are loaded from one string, and only those that are read become files for Spark."""
    import numpy as np
    import pyarrow as pa

    from millpond.spark.planner import planner_of

    settled = meters.snapshot().settled
    count = 10_000
    entries = settled.objects.entries
    many = pa.concat_tables([entries.slice(0, 1)] * count).combine_chunks()
    paths = pa.array([f"g00001/{number}.86400/b0000-{number:012d}-0.parquet" for number in range(count)])
    many = many.set_column(many.schema.get_field_index("path"), "path", paths)
    objects = type(settled.objects)(many, settled.schema)
    larger = type(settled)(
        settled.version + 1, settled.boundary, objects, settled.root, settled.schema, settled.storage
    )
    planner = planner_of(spark)
    began = time.monotonic()
    table = planner.table("a large one", larger)
    assert table.bytes() == objects.bytes_total
    keep = np.zeros(count, dtype=np.bool_)
    keep[[0, count - 1]] = True
    chosen = table.select(bytearray(np.packbits(keep, bitorder="little").tobytes())).apply(0).files()
    assert [chosen.apply(at).getPath().getName() for at in range(chosen.size())] == [
        "b0000-000000000000-0.parquet",
        f"b0000-{count - 1:012d}-0.parquet",
    ]
    assert planner.table("a large one", larger) is table
    # Building them one by one would take ten seconds or more.
    assert time.monotonic() - began < 8
