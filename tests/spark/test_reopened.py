"""A pond that is opened again, in a session that knows it from before: the order of its objects may be another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import millpond

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("lat", pa.float64()), ("lon", pa.float64())])
QUERY = "SELECT count(*) FROM places WHERE lat < 0.3 AND lon < 0.3 AND at < TIMESTAMP '2026-01-02 00:00:00Z'"


def rows() -> list[dict[str, object]]:
    """A field of places, each on three days."""
    return [
        {"at": START + timedelta(days=day), "lat": row / 30, "lon": column / 30}
        for row in range(30)
        for column in range(30)
        for day in range(3)
    ]


def asked(pond: millpond.Pond, spark: SparkSession) -> tuple[int, int]:
    """What Spark counts, and how many objects it read for it."""
    views = pond.attach(spark)
    (found,) = spark.sql(QUERY).collect()
    views.detach()
    return int(found[0]), millpond.spark.last_query(spark).objects_read


def test_objects_are_found_although_their_order_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "pond"
    with millpond.open(path, background=False) as pond:
        stream = pond.create_stream("places", SCHEMA, event_time="at", layout=millpond.KdTree("lat", "lon", buckets=4))
        stream.append(rows())
        stream.settle()
        before = stream.snapshot().settled.objects.paths
        wanted = stream.count("lat < 0.3 AND lon < 0.3 AND at < TIMESTAMP '2026-01-02 00:00:00'")
        first = asked(pond, spark)
        assert first[0] == wanted
        assert first[1] < len(before) / 2
    with millpond.open(path, background=False) as pond:
        after = pond.stream("places").snapshot().settled.objects.paths
        assert sorted(after) == sorted(before)
        assert after != before, "this is what the test is about"
        assert asked(pond, spark) == first
