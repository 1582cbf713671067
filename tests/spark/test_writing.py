"""`df.write.format("millpond")`: a frame is in its stream whole and once, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millpond
from tests.spark.conftest import session_setting

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("x", pa.float64())])
TARGETS = pytest.mark.parametrize("to", ["log", "archive"])


@pytest.fixture
def stream(pond: millpond.Pond, spark: SparkSession) -> millpond.Stream:
    millpond.spark.register(spark)
    return pond.create_stream("s", SCHEMA, keys=["text"], streamlets=2)


def frame(spark: SparkSession, start: int, stop: int, tasks: int = 3) -> DataFrame:
    numbers = spark.range(start, stop, 1, tasks)
    return numbers.selectExpr("id AS n", "concat('t', id % 10) AS text", "id / 2.0D AS x")


def write(data: DataFrame, stream: millpond.Stream, pond: millpond.Pond, to: str) -> None:
    (
        data.write.format("millpond")
        .option("pond", pond.path)
        .option("stream", stream.name)
        .option("to", to)
        .mode("append")
        .save()
    )


def numbers(stream: millpond.Stream) -> list[int]:
    return sorted(stream.scan(columns=["n"]).column("n").to_pylist())


@TARGETS
def test_a_frame_is_appended(to: str, spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond) -> None:
    stream.append({"n": 0, "text": "t0", "x": 0.0})
    write(frame(spark, 1, 500), stream, pond, to)
    write(frame(spark, 500, 600, tasks=1), stream, pond, to)
    assert numbers(stream) == list(range(600))
    assert stream.scan("n = 321").to_pylist() == [{"n": 321, "text": "t1", "x": 160.5}]
    status = stream.status()
    assert status.rows_live == (600 if to == "log" else 1)
    assert stream.to_spark(spark).count() == 600
    stream.settle()
    assert pond.verify().findings == ()
    assert DeltaTable(stream.archive.root).to_pyarrow_table().num_rows == 600


@TARGETS
def test_columns_go_by_name_and_missing_ones_are_null(
    to: str, spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond
) -> None:
    write(spark.sql("SELECT 'a' AS text, 7 AS n, 0L AS _offset"), stream, pond, to)
    assert stream.scan().to_pylist() == [{"n": 7, "text": "a", "x": None}]


@TARGETS
@pytest.mark.parametrize(
    ("query", "column"),
    [("SELECT 'a' AS n", "n"), ("SELECT 1L AS n, 2 AS more", "more"), ("SELECT array(1) AS x", "x")],
)
def test_a_frame_that_does_not_fit_is_refused_before_a_task_runs(
    to: str, query: str, column: str, spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond
) -> None:
    with pytest.raises(PySparkException, match=column):
        write(spark.sql(query), stream, pond, to)
    assert stream.count() == 0
    assert not Path(stream.archive.root).exists()
    assert pond.staging.bytes == 0


@TARGETS
def test_a_value_that_does_not_fit_fails_all_of_it(
    to: str, spark: SparkSession, pond: millpond.Pond, stream: millpond.Stream
) -> None:
    small = pond.create_stream("small", pa.schema([pa.field("n", pa.int32(), nullable=False)]))
    data = spark.sql("SELECT CASE WHEN id = 77 THEN NULL ELSE CAST(id AS INT) END AS n FROM range(0, 100, 1, 4)")
    with pytest.raises(PySparkException, match="n"):
        write(data, small, pond, to)
    assert small.count() == 0
    assert pond.staging.bytes == 0


def test_other_modes_and_wrong_options_are_refused_with_a_remedy(
    spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond
) -> None:
    def refused(word: str, mode: str = "append", **options: str) -> None:
        writer = frame(spark, 0, 5).write.format("millpond").options(**{"pond": pond.path, "stream": "s", **options})
        with pytest.raises(PySparkException, match=word):
            writer.mode(mode).save()

    refused("append", mode="overwrite")
    refused("append", mode="error")
    refused("archive", to="the moon")
    refused("no option", streem="s")
    refused("no stream", stream="none")
    refused("no pond is open", pond="/nowhere")
    assert stream.count() == 0


def test_more_than_a_transaction_holds_is_for_the_archive(pond_dir: Path, spark: SparkSession) -> None:
    millpond.spark.register(spark)
    with millpond.open(str(pond_dir), background=False, transaction_bytes_max=10_000) as pond:
        stream = pond.create_stream("s", SCHEMA)
        with pytest.raises(PySparkException, match="archive"):
            write(frame(spark, 0, 5_000), stream, pond, "log")
        assert stream.count() == 0
        write(frame(spark, 0, 5_000), stream, pond, "archive")
        assert numbers(stream) == list(range(5_000))


def test_an_empty_frame_adds_nothing(spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond) -> None:
    for to in ("log", "archive"):
        write(frame(spark, 0, 0), stream, pond, to)
    assert stream.count() == 0
    assert stream.status().version == -1


def test_a_plan_that_is_read_twice_is_written_once(
    spark: SparkSession, stream: millpond.Stream, pond: millpond.Pond
) -> None:
    """Under adaptive execution, with a shuffle of which Spark decides late how many tasks it has."""
    with session_setting(spark, "spark.sql.adaptive.enabled", "true"):
        data = frame(spark, 0, 1_000).groupBy("n").agg(F.max("text"), F.max("x"))
        renamed = data.toDF("n", "text", "x").repartition(7)
        write(renamed.union(renamed.where("n < 10")), stream, pond, "archive")
    assert numbers(stream) == sorted([*range(1_000), *range(10)])
