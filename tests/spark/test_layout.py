"""Spark's writes to the archive apply the stream's layout in the executors, a user's own as well."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.archive.layout.layout import BucketBox, Buckets, Layout, Levels, Model, Order
from millpond.model.past_query import PastQuery

SCHEMA = pa.schema([("n", pa.int64()), ("lat", pa.float64()), ("lon", pa.float64())])


@pytest.fixture
def pond(pond_dir: Any) -> Any:
    """Nothing happens by itself, and jobs use all buckets."""
    with millpond.open(str(pond_dir), background=False, object_bytes_min=0) as pond:
        yield pond


def frame(spark: SparkSession, start: int, stop: int, tasks: int = 2) -> DataFrame:
    """Places scattered over a country, the same for the same numbers."""
    numbers = spark.range(start, stop, 1, tasks)
    return numbers.selectExpr(
        "id AS n", "42 + (id * 7919 % 9000) / 1000D AS lat", "(id * 104729 % 12000) / 1000D AS lon"
    )


def load(data: DataFrame, stream: millpond.Stream, pond: millpond.Pond) -> None:
    options = {"pond": pond.path, "stream": stream.name, "to": "archive"}
    data.write.format("millpond").options(**options).mode("append").save()


def places(stream: millpond.Stream) -> list[tuple[str | None, int | None, int | None]]:
    entries = stream.snapshot().settled.objects.entries
    return list(zip(*(entries.column(name).to_pylist() for name in ("model", "bucket", "buckets")), strict=True))


def test_tasks_apply_the_model(spark: SparkSession, pond: millpond.Pond) -> None:
    millpond.spark.register(spark)
    stream = pond.create_stream("s", SCHEMA, layout=millpond.KdTree("lat", "lon", buckets=8))
    load(frame(spark, 0, 4_000), stream, pond)
    # The first load had no model: tasks made their own, and the stream got one from what they saw.
    stored = stream.archive.model()
    assert stored is not None
    assert places(stream) == [(None, None, None)] * 16
    load(frame(spark, 4_000, 8_000), stream, pond)
    assert sorted(places(stream)[16:]) == sorted([(stored.model.id, bucket, 8) for bucket in range(8)] * 2)
    here = "lat BETWEEN 45 AND 45.3 AND lon BETWEEN 3 AND 3.5"
    wanted = [
        n for n in range(8_000) if 45 <= 42 + n * 7919 % 9000 / 1000 <= 45.3 and 3 <= n * 104729 % 12000 / 1000 <= 3.5
    ]
    assert sorted(row["n"] for row in stream.to_spark(spark).where(here).collect()) == wanted
    assert stream.to_spark(spark).count() == 8_000
    assert pond.verify().findings == ()


class ParityModel(Model):
    """Even and odd numbers."""

    kind = "parity"

    def __init__(self, column: str) -> None:
        self._column = column

    @property
    def columns(self) -> tuple[str, ...]:
        return (self._column,)

    @property
    def levels(self) -> Levels:
        return Levels.halving(2)

    @property
    def id(self) -> str:
        return f"parity-{self._column}"

    def _assign(self, rows: pa.Table) -> Buckets:
        found: Buckets = (rows.column(self._column).to_numpy() % 2).astype(np.int32)
        return found

    def order(self, rows: pa.Table) -> Order:
        return np.arange(rows.num_rows)

    def boxes(self) -> list[BucketBox]:
        return []

    def encode(self) -> bytes:
        return json.dumps({"kind": self.kind, "column": self._column}).encode()


class Parity(Layout):
    """A layout that only this test has: executors get it with their task."""

    name = "parity"

    def __init__(self, column: str, buckets: int = 2) -> None:
        super().__init__(column, buckets=buckets)

    def fit(self, sample: pa.Table, history: Sequence[PastQuery] = ()) -> Model:
        return ParityModel(self.columns[0])

    @classmethod
    def decode(cls, plain: Mapping[str, Any]) -> Model:
        return ParityModel(plain["column"])


def test_a_layout_of_the_users_is_applied_by_tasks(spark: SparkSession, pond: millpond.Pond) -> None:
    millpond.spark.register(spark)
    stream = pond.create_stream("s", SCHEMA, layout=Parity("n"))
    stream.append({"n": 1})
    stream.settle()
    load(frame(spark, 0, 100), stream, pond)
    snapshot = stream.snapshot().settled
    assert sorted(places(stream)) == [("parity-n", bucket, 2) for bucket in (0, 0, 1, 1, 1)]
    for at in range(5):
        rows = [n for batch in snapshot.read(np.arange(5) == at) for n in batch.column("n").to_pylist()]
        assert {n % 2 for n in rows} == {places(stream)[at][1]}
