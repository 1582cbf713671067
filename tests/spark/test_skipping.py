"""Which objects a query reads, and what is reported of it (F4, F5)."""

from __future__ import annotations

import math
import os

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.errors import InvalidInput
from millpond.spark import last_query
from tests.spark.conftest import readings, session_setting


@pytest.mark.parametrize(
    ("where", "read", "matching"),
    [
        ("n < 100", 1, 100),
        ("n >= 100 AND n < 200", 1, 100),
        ("n < 50 OR n > 250", 2, 149),
        ("NOT (n >= 100)", 1, 100),
        ("n IN (5, 205)", 2, 2),
        ("n IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", 1, 12),
        ("n BETWEEN 120 AND 130", 1, 11),
        ("n = 5 AND city = 'Paris'", 0, 0),
        ("n <=> 5", 1, 1),
        ("n IS NULL", 0, 0),
        ("city LIKE 'Zzz%'", 0, 0),
        ("city LIKE 'Ni%'", 3, 117),
        ("startswith(city, 'P')", 0, 0),
        ("lat > 42.5", 1, 99),
        ("n > 99.5", 2, 250),
        ("CAST(n AS DOUBLE) > 249.5D", 1, 100),
        ("CAST(n AS DECIMAL(30, 2)) < 10.5", 1, 11),
        ("CAST(n AS STRING) = '5'", 3, 1),
        ("n + 1 = 6", 3, 1),
        ("CAST(lat AS INT) = 40", 1, 100),
        ("CAST(lat AS BIGINT) IN (40, 42)", 2, 200),
        ("year(_ingest_time) < 2000", 0, 0),
        ("CAST(_ingest_time AS DATE) = DATE '2000-01-01'", 0, 0),
        ("_ingest_time + INTERVAL 1 MONTH < TIMESTAMP '2000-01-01 00:00:00'", 0, 0),
        ("date_trunc('MONTH', _ingest_time - INTERVAL 1 HOUR) = TIMESTAMP '2000-01-01 00:00:00'", 0, 0),
        ("_ingest_time > current_timestamp() - INTERVAL 1 DAY", 3, 350),
        ("n < 100 AND length(city) > 4", 1, 33),
        ("n < 100 OR length(city) > 100", 3, 100),
        ("_offset < 0", 0, 0),
        ("_ingest_time > TIMESTAMP '2000-01-01 00:00:00'", 3, 350),
        ("_ingest_time < TIMESTAMP '2000-01-01 00:00:00'", 0, 0),
    ],
)
def test_objects_that_cannot_match_are_not_read(
    spark: SparkSession, shared_meters: millpond.Stream, where: str, read: int, matching: int
) -> None:
    """F4: ruled out while planning, with the whole predicate. Live records are found as well."""
    assert shared_meters.to_spark(spark).where(where).count() == matching
    figures = last_query(spark)
    assert (figures.objects_read, figures.objects_total) == (read, 3)


def test_the_figures_of_a_query(spark: SparkSession, shared_meters: millpond.Stream) -> None:
    shared_meters.to_spark(spark).where("n >= 190 AND n < 210").collect()
    figures = last_query(spark)
    sizes = shared_meters.snapshot().settled.objects.sizes
    assert figures.bytes_total == sizes.sum()
    assert figures.bytes_read == sizes[1:].sum()
    assert figures.skipped_by == {"n": 1}
    assert figures.rows_live == 50
    assert figures.requests == 2 + 1
    assert figures.accuracy == pytest.approx(0.1, rel=0.02)
    assert "2 of 3 objects" in str(figures)


def test_a_stream_that_is_read_twice_counts_twice(spark: SparkSession, shared_meters: millpond.Stream) -> None:
    left, right = shared_meters.to_spark(spark).where("n < 100"), shared_meters.to_spark(spark).where("n >= 100")
    left.join(right, "city").count()
    figures = last_query(spark)
    assert (figures.objects_read, figures.objects_total, figures.rows_live) == (3, 6, 100)


def test_a_query_without_a_predicate_reads_all_of_it(spark: SparkSession, shared_meters: millpond.Stream) -> None:
    assert shared_meters.to_spark(spark).count() == 350
    figures = last_query(spark)
    assert (figures.objects_read, figures.objects_total, figures.accuracy) == (3, 3, 1.0)


def test_queries_on_other_tables_do_not_count(spark: SparkSession, shared_meters: millpond.Stream) -> None:
    shared_meters.to_spark(spark).where("n < 100").count()
    before = last_query(spark)
    spark.range(10).where("id > 3").count()
    assert last_query(spark) is before


def test_before_the_first_query_there_are_no_figures(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="no query"):
        last_query(spark.newSession())


def test_an_error_in_the_callback_reads_everything_and_is_counted(
    spark: SparkSession, meters: millpond.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5: whatever goes wrong while deciding, no record is missed."""

    def fail(*_: object) -> None:
        raise RuntimeError("decided to fail")

    monkeypatch.setattr("millpond.archive.object_index.prune", fail)
    assert meters.to_spark(spark).where("n < 100").count() == 100
    assert (last_query(spark).undecided, last_query(spark).objects_read) == (1, 3)


def test_an_object_without_an_entry_is_read(spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond) -> None:
    """F5: the statistics of one object are gone; the others are still skipped."""
    from millpond.archive.object_index import ObjectIndex

    snapshot = meters.snapshot().settled
    entries = snapshot.objects.entries
    columns = {
        name: pa.concat_arrays([column.slice(0, 2).combine_chunks(), pa.nulls(1, column.type)])
        if "." in name
        else column.combine_chunks()
        for name, column in zip(entries.schema.names, entries.columns, strict=True)
    }
    object.__setattr__(snapshot, "objects", ObjectIndex(pa.table(columns, schema=entries.schema), snapshot.schema))
    assert meters.snapshot().settled is snapshot
    assert meters.to_spark(spark).where("n < 100").count() == 100
    assert last_query(spark).objects_read == 2


def test_settled_objects_are_scanned_by_spark_itself(spark: SparkSession, meters: millpond.Stream) -> None:
    """No Union, no Python: the plan of a stream without live records is that of plain Parquet files."""
    meters.settle()
    plan = meters.to_spark(spark).where("n < 100").groupBy("city").count()._jdf.queryExecution().toString()
    physical = plan[plan.index("== Physical Plan ==") :]
    assert "FileScan parquet" in physical
    assert "ReadSchema: struct<city:string,n:bigint>" in physical
    assert "Union" not in physical
    assert "live" not in physical


def test_a_damaged_or_missing_object_fails_the_query_whatever_the_session_says(
    spark: SparkSession, meters: millpond.Stream
) -> None:
    """Nothing disappears silently (I6)."""
    from pathlib import Path

    settled = meters.snapshot().settled
    lost = Path(settled.root) / settled.objects.paths[0]
    kept = lost.read_bytes()
    with (
        session_setting(spark, "spark.sql.files.ignoreMissingFiles", "true"),
        session_setting(spark, "spark.sql.files.ignoreCorruptFiles", "true"),
    ):
        lost.unlink()
        with pytest.raises(Exception, match=r"(?i)not exist|not_exist|FileNotFound"):
            meters.to_spark(spark).agg({"n": "sum"}).collect()
        lost.write_bytes(bytes(byte ^ 0x55 for byte in kept[:200]) + kept[200:])
        with pytest.raises(Exception, match=r"(?i)checksum|crc|corrupt|cannot"):
            meters.to_spark(spark).selectExpr("max(vid)", "max(city)", "max(lat)", "max(n)").collect()
        lost.write_bytes(kept)
        assert meters.to_spark(spark).agg({"n": "sum"}).collect()[0][0] == sum(range(350))


def test_a_query_after_a_merge_of_objects_reads_the_merged_ones(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    assert frame.count() == 350
    meters.settling.compact()
    assert frame.where("n >= 0").count() == 350
    assert last_query(spark).objects_total == len(meters.snapshot().settled.objects)
    meters.append(readings(350, 360))
    assert frame.where("n >= 0").count() == 360


def test_a_plain_reader_of_the_objects_loses_no_nan(spark: SparkSession, pond: millpond.Pond) -> None:
    """Parquet's statistics leave NaN out, and Spark sorts NaN above every number: a column with NaN has none."""
    stream = pond.create_stream("odd", schema=pa.schema([("n", pa.int64()), ("x", pa.float64())]))
    stream.append(pa.table({"n": [1, 2, 3], "x": [1.0, math.nan, 2.0]}))
    stream.settle()
    paths = [os.path.join(stream.archive.root, each) for each in stream.snapshot().settled.objects.paths]
    plain = spark.read.parquet(*paths)
    assert [row.n for row in plain.where("x > 1e9").collect()] == [2]
    assert [row.n for row in plain.where("n >= 3").collect()] == [3]
