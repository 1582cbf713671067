"""Partitions in the names of directories: found and typed as Spark does, and pruned, alone and with indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.errors import InvalidValue
from millpond.spark import last_query
from tests.spark.conftest import session_setting
from tests.spark.datasets.conftest import files_read, numbers

HEADER = {"header": True}
DAYS = ("2017-08-21", "2017-08-22", "2017-08-23")
NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(scope="module")
def both(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DataFrame, DataFrame, millpond.Pond]]:
    """Three days and one without a date, two regions each, a file with n from 0 and one with n from 100."""
    scratch = tmp_path_factory.mktemp("partitions")
    for day in (*DAYS, NULL):
        for region in (1, 2):
            for start in (0, 100):
                numbers(scratch / "data" / f"dt={day}" / f"region={region}" / f"{start}.csv", start, start + 10)
    with millpond.open(scratch / "pond", background=False) as pond:
        made = pond.index(
            scratch / "data",
            format="csv",
            options=HEADER,
            schema="n int, city string",
            indexes=["minmax:n"],
            spark=spark,
        )
        plain = spark.read.csv(str(scratch / "data"), schema="n int, city string", header=True)
        yield made.to_spark(spark), plain, pond


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("dt = '2017-08-21'", 4),
        ("dt = DATE '2017-08-21' AND n < 50", 2),
        ("dt = '2017-08-21' OR n < 50", 10),
        ("dt = '2017-08-21' OR (n < 50 AND region = 2)", 7),
        ("(dt = '2017-08-21' AND n < 50) OR (dt = '2017-08-22' AND n >= 100)", 4),
        ("NOT (dt = '2017-08-21' OR n < 50)", 4),
        ("dt > '2017-08-22' AND region IN (1, 3)", 2),
        ("dt IS NULL", 4),
        ("dt IS NOT NULL AND n > 1000", 0),
        ("day(dt) = 23", 4),
        ("day(dt) = 23 AND n < 50", 2),
        ("day(dt) = 23 OR n < 50", 16),
        ("DT = '2017-08-21' AND N < 50", 2),
        ("region + n > 1000", 16),
        ("n = 5 AND region = 3", 0),
    ],
)
def test_partitions_and_indexes_rule_out_files_together(
    spark: SparkSession, both: tuple[DataFrame, DataFrame, millpond.Pond], where: str, read: int
) -> None:
    indexed, plain, _ = both
    assert files_read(spark, indexed.where(where), plain.where(where)) == (read, 16)


def test_columns_and_types_are_those_that_spark_finds(both: tuple[DataFrame, DataFrame, millpond.Pond]) -> None:
    indexed, plain, _ = both
    assert indexed.schema == plain.schema
    assert [field.dataType.simpleString() for field in indexed.schema] == ["int", "string", "date", "int"]


def test_partitions_are_pruned_while_a_query_runs(
    spark: SparkSession, both: tuple[DataFrame, DataFrame, millpond.Pond]
) -> None:
    """Spark's own dynamic pruning: the days come from the other side of a join."""
    indexed, plain, _ = both
    days = spark.createDataFrame([("2017-08-22", 1), ("2017-08-23", 9)], "day string, keep int").where("keep = 1")
    days = days.selectExpr("CAST(day AS DATE) AS dt")
    assert files_read(spark, indexed.join(days, "dt"), plain.join(days, "dt"))[1] == 16


def test_what_ruled_out_files_is_told(spark: SparkSession, both: tuple[DataFrame, DataFrame, millpond.Pond]) -> None:
    both[0].where("dt = '2017-08-21' AND n < 50").collect()
    assert last_query(spark).skipped_by == {"dt": 12, "n": 2}
    both[0].where("day(dt) = 23").collect()
    assert last_query(spark).skipped_by == {"dt": 4, "(partitions)": 8}  # no day is of no date; which one says Spark


def test_metadata_of_files_prunes_as_well(
    spark: SparkSession, both: tuple[DataFrame, DataFrame, millpond.Pond]
) -> None:
    indexed, plain, _ = both
    where = "_metadata.file_name = '0.csv' AND region = 1"
    assert files_read(spark, indexed.where(where), plain.where(where)) == (4, 16)


def test_a_partition_column_needs_no_index(
    spark: SparkSession, both: tuple[DataFrame, DataFrame, millpond.Pond], tmp_path: Path
) -> None:
    numbers(tmp_path / "more" / "dt=2017-08-21" / "a.csv", 0, 3)
    with pytest.raises(InvalidValue, match="names of directories"):
        both[2].index(tmp_path / "more", format="csv", options=HEADER, indexes=["minmax:dt"], spark=spark)


def test_types_are_kept_whatever_comes_later(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """Numbers stay numbers in the session that indexed them and in one that would take them for text."""
    numbers(data / "p=1" / "a.csv", 0, 3)
    numbers(data / "p=07" / "a.csv", 5, 9)
    made = pond.index(data, format="csv", options=HEADER, indexes=["minmax:n"], spark=spark)
    assert made.to_spark(spark).where("p = 7").count() == 4
    with session_setting(spark, "spark.sql.sources.partitionColumnTypeInference.enabled", "false"):
        assert made.to_spark(spark).where("p = 7").count() == 4
        text = pond.index(data, format="csv", name="text", options=HEADER, indexes=["minmax:n"], spark=spark)
        assert text.to_spark(spark).where("p = '07'").count() == 4
        assert last_query(spark).objects_read == 1
        assert text.to_spark(spark).where("p = '7'").count() == 0


QUESTIONS = ("n < 2", "k = 1", "k = 3000000000", "k > 1", "k IS NULL", "k <= 2 OR n = 12", "k > 3000000000 OR n = 1")
# Of a text and a number Spark makes numbers, or fails.
QUESTIONS_OF_TEXT = ("n < 2", "k = '1'", "k = 'abc'", "k > '1'", "k IS NULL", "k <= '2' OR n = 12", "k LIKE 'a%'")


@pytest.mark.parametrize(
    ("came", "kind"),
    [("3000000000", "bigint"), ("abc", "string"), ("1.5", "double"), ("12345678901234567890", "decimal(20,0)")],
)
def test_a_directory_of_another_type_gives_the_answers_of_spark(
    spark: SparkSession, pond: millpond.Pond, data: Path, came: str, kind: str
) -> None:
    """Two are indexed as integers; then one comes that is none. Before and after a refresh, and when it is gone."""
    for k in ("1", "2"):
        numbers(data / f"k={k}" / "a.csv", 0, 3)
    made = pond.index(
        data, format="csv", options=HEADER, schema="n int, city string", indexes=["minmax:n"], spark=spark
    )
    old = made.to_spark(spark)
    assert old.schema["k"].dataType.simpleString() == "int"
    views = pond.attach(spark)
    try:
        numbers(data / f"k={came}" / "b.csv", 10, 14)
        plain = spark.read.csv(str(data), schema="n int, city string", header=True)
        assert plain.schema["k"].dataType.simpleString() == kind
        with pytest.raises(Exception, match=rf"k is {re.escape(kind)} and was int\n.*to_spark"):
            old.where("n < 2").collect()
        for frame, at_most in ((made.to_spark(spark), 3), (None, 2)):
            if frame is None:
                assert made.refresh(spark).described == 1
                frame = made.to_spark(spark)
                assert spark.table("data").schema == plain.schema  # the view follows
            assert frame.schema == plain.schema
            for where in QUESTIONS_OF_TEXT if kind == "string" else QUESTIONS:
                assert files_read(spark, frame.where(where), plain.where(where))[0] <= 3
            assert files_read(spark, frame.where("n < 2"), plain.where("n < 2")) == (at_most, 3)
        (data / f"k={came}" / "b.csv").unlink()
        (data / f"k={came}").rmdir()
        assert old.where("k = 1").count() == 3
        assert made.to_spark(spark).where("k = '1'").count() == 3
    finally:
        views.detach()


def test_types_that_were_given_are_kept(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """As by Spark: a directory that is not of the type fails the query."""
    numbers(data / "k=1" / "a.csv", 0, 3)
    made = pond.index(
        data, format="csv", options=HEADER, schema="n int, city string, k double", indexes=["minmax:n"], spark=spark
    )
    numbers(data / "k=2" / "a.csv", 3, 6)
    assert made.to_spark(spark).where("k = 2D").count() == 3
    assert made.to_spark(spark).schema["k"].dataType.simpleString() == "double"
    numbers(data / "k=abc" / "a.csv", 6, 9)
    with pytest.raises(Exception, match="abc"):
        made.to_spark(spark).where("n > 0").collect()


def test_values_that_are_no_numbers_and_odd_names(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    for value in ("1.5", "NaN", NULL):
        numbers(data / f"x={value}" / "my file ü%.csv", 0, 3)
    schema = "n int, city string, x double"
    made = pond.index(data, format="csv", options=HEADER, schema=schema, indexes=["minmax:n"], spark=spark)
    plain = spark.read.csv(str(data), schema=schema, header=True)
    for where in ("x > 1", "x = 1.5", "isnan(x)", "x IS NULL", "x < 2", "NOT (x > 1)", "x <=> NULL"):
        same = files_read(spark, made.to_spark(spark).where(where), plain.where(where))
        assert same[1] == 3
    made.to_spark(spark).where("n < 0").collect()
    assert last_query(spark).objects_read == 0
