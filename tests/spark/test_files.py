"""Files of Spark's own formats, written once and to their final names: what counts is what a manifest names (O9)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import millpond


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    millpond.spark.register(spark)


def frame(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, 1, 3).selectExpr("id AS n", """concat('a "b", ', id) AS text""")


def write(data: DataFrame, root: Path, kind: str, mode: str = "append", **options: str) -> None:
    data.write.format("millpond").option("format", kind).options(**options).mode(mode).save(str(root))


def read(spark: SparkSession, root: Path) -> DataFrame:
    return spark.read.format("millpond").option("path", str(root)).load()


@pytest.mark.parametrize("kind", ["csv", "json", "orc", "parquet"])
def test_what_was_written_is_read_back(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    options = {"header": "true", "sep": ";"} if kind == "csv" else {}
    write(frame(spark, 0, 50), tmp_path / "out", kind, **options)
    write(frame(spark, 50, 60), tmp_path / "out", kind, **options)
    found = read(spark, tmp_path / "out")
    assert sorted(tuple(row) for row in found.collect()) == [(n, f'a "b", {n}') for n in range(60)]
    assert found.where("n = 7").count() == 1


def test_lines_of_text_and_partitions(spark: SparkSession, tmp_path: Path) -> None:
    lines = spark.range(10).selectExpr("concat('line ', id) AS value", "id % 2 AS odd")
    lines.write.format("millpond").option("format", "text").partitionBy("odd").mode("append").save(str(tmp_path / "o"))
    assert (tmp_path / "o" / "odd=1").is_dir()
    found = sorted((row["value"], row["odd"]) for row in read(spark, tmp_path / "o").collect())
    assert found == [(f"line {n}", n % 2) for n in range(10)]


def test_files_that_no_manifest_names_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "out"
    write(frame(spark, 0, 10), root, "json")
    (root / "part-00099-left-behind.json").write_text('{"n": 99}\n')
    assert read(spark, root).count() == 10
    assert not list(root.glob("_SUCCESS"))
    assert not list(root.glob("_temporary*"))


def test_a_write_that_fails_leaves_nothing_to_see(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "out"
    write(frame(spark, 0, 10), root, "csv")
    bad = spark.range(0, 100, 1, 4).selectExpr(
        "CASE WHEN id = 90 THEN raise_error('planned') ELSE id END AS n", "'x' AS text"
    )
    with pytest.raises(PySparkException, match="planned"):
        write(bad.selectExpr("CAST(n AS LONG) AS n", "text"), root, "csv")
    assert read(spark, root).count() == 10


def test_a_file_that_is_gone_or_cut_is_told(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "out"
    write(frame(spark, 0, 10), root, "json")
    victim = next(path for path in root.glob("part-*.json"))
    os.truncate(victim, 1)
    with pytest.raises(PySparkException, match="is not there with"):
        read(spark, root)


def test_what_does_not_belong_together_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "out"
    with pytest.raises(PySparkException, match="no files"):
        read(spark, root)
    write(frame(spark, 0, 10), root, "csv", mode="error")
    for kind, mode, data, word in [
        ("json", "append", frame(spark, 0, 1), "format"),
        ("csv", "append", spark.range(1), "columns"),
        ("csv", "overwrite", frame(spark, 0, 1), "mode"),
        ("csv", "error", frame(spark, 0, 1), "mode"),
        ("xml", "append", frame(spark, 0, 1), "xml"),
    ]:
        with pytest.raises(PySparkException, match=word):
            write(data, root, kind, mode=mode)
    assert read(spark, root).count() == 10
