"""A stream as the sink of a streaming query: every batch once, whatever Spark remembers of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millpond

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
TARGETS = pytest.mark.parametrize("to", ["log", "archive"])


@pytest.fixture
def source(pond: millpond.Pond, spark: SparkSession) -> millpond.Stream:
    millpond.spark.register(spark)
    return pond.create_stream("source", SCHEMA)


@pytest.fixture
def target(pond: millpond.Pond) -> millpond.Stream:
    return pond.create_stream("target", SCHEMA, keys=["text"], streamlets=2)


def fill(source: millpond.Stream, start: int, stop: int) -> None:
    source.append([{"n": n, "text": f"t{n % 7}"} for n in range(start, stop)])


def copy(spark: SparkSession, pond: millpond.Pond, checkpoint: Path, to: str, per_batch: int = 100) -> StreamingQuery:
    frame = (
        spark.readStream.format("millpond")
        .options(pond=pond.path, stream="source", maxRecordsPerTrigger=str(per_batch))
        .load()
    )
    return (
        frame.writeStream.format("millpond")
        .options(pond=pond.path, stream="target", to=to, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def numbers(stream: millpond.Stream) -> list[int]:
    return sorted(stream.scan(columns=["n"]).column("n").to_pylist())


def forget_last_commit(checkpoint: Path) -> int:
    """As if the driver had died before Spark noted that its last batch was done; the batch's number."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    return last


@TARGETS
def test_a_copy_is_exact_and_goes_on_after_a_restart(
    to: str, spark: SparkSession, pond: millpond.Pond, source: millpond.Stream, target: millpond.Stream, tmp_path: Path
) -> None:
    fill(source, 0, 250)
    copy(spark, pond, tmp_path / "c", to).awaitTermination()
    assert numbers(target) == list(range(250))
    fill(source, 250, 260)
    copy(spark, pond, tmp_path / "c", to).awaitTermination()
    assert numbers(target) == list(range(260))
    assert target.status().rows_live == (260 if to == "log" else 0)


@TARGETS
def test_a_batch_that_spark_runs_again_is_there_once(
    to: str, spark: SparkSession, pond: millpond.Pond, source: millpond.Stream, target: millpond.Stream, tmp_path: Path
) -> None:
    fill(source, 0, 150)
    for _ in range(2):
        copy(spark, pond, tmp_path / "c", to).awaitTermination()
        forget_last_commit(tmp_path / "c")
    assert numbers(target) == list(range(150))
    target.settle()
    fill(source, 150, 300)
    copy(spark, pond, tmp_path / "c", to).awaitTermination()
    assert numbers(target) == list(range(300))
    assert pond.verify().findings == ()


@TARGETS
def test_another_query_is_another_writer(
    to: str, spark: SparkSession, pond: millpond.Pond, source: millpond.Stream, target: millpond.Stream, tmp_path: Path
) -> None:
    fill(source, 0, 50)
    for name in ("one", "two"):
        copy(spark, pond, tmp_path / name, to).awaitTermination()
    assert numbers(target) == sorted([*range(50), *range(50)])


@TARGETS
def test_a_batch_that_fails_leaves_nothing_and_comes_whole_later(
    to: str,
    spark: SparkSession,
    pond: millpond.Pond,
    source: millpond.Stream,
    target: millpond.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit is made and its answer lost, or it is not made at all."""
    fill(source, 0, 100)
    method = "commit_staged" if to == "log" else "commit_load"
    commit = getattr(target.bulk, method)
    for made in (False, True):

        def lost(*given: object, made: bool = made, **more: object) -> object:
            if made:
                commit(*given, **more)
            raise millpond.errors.Unavailable("the line is cut")

        with monkeypatch.context() as patched:
            patched.setattr(target.bulk, method, lost)
            with pytest.raises(PySparkException, match="the line is cut"):
                copy(spark, pond, tmp_path / "c", to).awaitTermination()
        assert target.count() == (100 if made else 0)
    copy(spark, pond, tmp_path / "c", to).awaitTermination()
    assert numbers(target) == list(range(100))


def test_tasks_with_more_rows_than_small_batches_have_get_more_room(
    spark: SparkSession,
    pond: millpond.Pond,
    source: millpond.Stream,
    target: millpond.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millpond.spark.sink.ROW_BITS_SMALL", 5)
    fill(source, 0, 100)
    copy(spark, pond, tmp_path / "c", "archive").awaitTermination()
    assert numbers(target) == list(range(100))


def test_what_a_sink_cannot_do_is_refused(
    spark: SparkSession, pond: millpond.Pond, source: millpond.Stream, target: millpond.Stream, tmp_path: Path
) -> None:
    fill(source, 0, 10)
    frame = spark.readStream.format("millpond").options(pond=pond.path, stream="source").load()
    counted = frame.groupBy("text").count().selectExpr("count AS n", "text")
    writer = counted.writeStream.format("millpond").options(
        pond=pond.path, stream="target", checkpointLocation=str(tmp_path / "c")
    )
    with pytest.raises(PySparkException, match="complete"):
        writer.outputMode("complete").start()
    with pytest.raises(PySparkException, match="partitionBy"):
        writer.outputMode("update").partitionBy("text").start()
    assert target.count() == 0


def test_a_schema_that_does_not_fit_fails_before_anything_is_written(
    spark: SparkSession, pond: millpond.Pond, source: millpond.Stream, tmp_path: Path
) -> None:
    fill(source, 0, 10)
    narrow = pond.create_stream("narrow", pa.schema([("n", pa.string())]))
    frame = spark.readStream.format("millpond").options(pond=pond.path, stream="source").load().select("n")
    query = (
        frame.writeStream.format("millpond")
        .options(pond=pond.path, stream="narrow", checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="'n'"):
        query.awaitTermination()
    assert narrow.count() == 0
