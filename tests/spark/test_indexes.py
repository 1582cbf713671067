"""Indexes and filters in Spark: loads describe objects in the executors, and plans ask filters by name."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond import IndexKind
from millpond.archive.index.registry import INDEXES
from millpond.archive.index.view import Entries
from millpond.model.predicate import Compare, Predicate
from tests.spark.conftest import session_setting

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


class Remainders(IndexKind):
    """What the values of a column leave when they are divided by ten. Executors cannot import this module."""

    name = "remainders"

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("found", pa.list_(pa.int64()))]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        return {"found": np.unique(np.asarray(rows.column(self.column).drop_null()) % 10).tolist()}

    def keep(self, term: Predicate, entries: Entries) -> npt.NDArray[np.bool_] | None:
        match term:
            case Compare("=", _, value):
                lists = entries.column("found").to_pylist()
                return np.array([found is None or value % 10 in found for found in lists], dtype=np.bool_)
        return None


@pytest.fixture
def stream(pond: millpond.Pond, spark: SparkSession) -> Iterator[millpond.Stream]:
    millpond.spark.register(spark)
    yield pond.create_stream("s", SCHEMA, indexes=[Remainders("n"), "values:text", "bloom:n"])
    INDEXES.forget(Remainders.name)


def test_a_load_describes_its_objects_with_every_kind(
    spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond
) -> None:
    numbers = spark.range(0, 3000, 1, 3).selectExpr("id * 10 + id div 1000 AS n", "concat('t', id div 1000) AS text")
    numbers.write.format("millpond").option("pond", pond.path).option("stream", "s").option("to", "archive").mode(
        "append"
    ).save()
    objects = stream.archive.snapshot().objects
    assert len(objects) == 3
    assert sorted(objects.entries.column("remainders(n).found").to_pylist()) == [[0], [1], [2]]
    assert objects.entries.column("bloom(n).filter").null_count == 0
    found = stream.explain("n = 15001 AND text >= 't'")
    assert found.objects_read == 1
    assert stream.to_spark(spark).where("n = 15001").count() == 1
    assert stream.explain("n = 15003").objects_read == 0
    assert pond.verify().findings == ()


def _module(name: str, **functions: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(functions)
    sys.modules[name] = module


def test_filters_are_named_in_the_sessions_configuration(spark: SparkSession, meters: millpond.Stream) -> None:
    seen: list[pa.Table] = []

    def not_the_first(predicate: Predicate, objects: pa.Table) -> pa.Array:
        seen.append(objects)
        return pc.greater_equal(objects.column("min.n"), 100)

    def not_the_last(predicate: Predicate, objects: pa.Table) -> list[bool]:
        return [low < 200 for low in objects.column("min.n").to_pylist()]

    def raising(predicate: Predicate, objects: pa.Table) -> None:
        raise RuntimeError("out of ideas")

    def short(predicate: Predicate, objects: pa.Table) -> list[bool]:
        return [False]

    def leaving(predicate: Predicate, objects: pa.Table) -> None:
        sys.exit(3)

    functions = (not_the_first, not_the_last, raising, short, leaving)
    for function in functions:
        function.__module__, function.__qualname__ = "user_filters", function.__name__
    _module("user_filters", **{function.__name__: function for function in functions})

    def asked(filters: str) -> tuple[int, millpond.spark.QueryFigures]:
        with session_setting(spark, "millpond.filters", filters):
            rows = meters.to_spark(spark).where("n >= 0").count()
        figures = millpond.spark.last_query(spark)
        assert figures is not None
        return rows, figures

    rows, figures = asked("user_filters:not_the_first, user_filters:not_the_last")
    assert (rows, figures.objects_read) == (150, 1)  # fifty are live
    assert figures.skipped_by == {"filter user_filters:not_the_first": 1, "filter user_filters:not_the_last": 1}
    assert seen[-1].num_rows == 3
    assert {"path", "bytes", "rows", "max.city"} <= set(seen[-1].schema.names)
    rows, figures = asked("user_filters:raising,user_filters:short,user_filters:nowhere,no_such_module:f")
    assert (rows, figures.objects_read) == (350, 3)
    assert set(figures.failures) == {
        "filter user_filters:raising",
        "filter user_filters:short",
        "filter user_filters:nowhere",
        "filter no_such_module:f",
    }
    assert "out of ideas" in figures.failures["filter user_filters:raising"]
    rows, figures = asked("user_filters:leaving")
    assert (rows, figures.objects_read) == (350, 3)
    assert figures.failures == {"filter user_filters:leaving": "SystemExit: 3"}
    rows, figures = asked("")
    assert (rows, figures.objects_read, figures.failures) == (350, 3, {})
    del sys.modules["user_filters"]


def test_filters_of_a_stream(meters: millpond.Stream, spark: SparkSession) -> None:
    stop = meters.add_filter(lambda predicate, objects: pc.less(objects.column("min.n"), 100))
    assert meters.scan("n >= 0").num_rows == 150
    assert meters.count("n >= 0") == 150
    assert meters.to_spark(spark).where("n >= 0").count() == 150
    (label,) = meters.explain("n >= 0").skipped_by
    assert label.startswith("filter tests.spark.test_indexes:")
    stop()
    assert meters.scan("n >= 0").num_rows == 350
