"""What cannot be indexed is refused with what to do instead, and leaves nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import millpond
from millpond.errors import InvalidInput, InvalidName, InvalidSchema, InvalidValue, MillpondError
from tests.spark.datasets.conftest import numbers

HEADER = {"header": True}


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"format": "xlsx"}, InvalidValue, "no format 'xlsx'"),
        ({"indexes": ["minmax:altitude"]}, InvalidValue, "no column 'altitude'"),
        ({"indexes": ["boxes:city,n"]}, InvalidValue, "city"),
        ({"indexes": ["minmax:n", "minmax:n"]}, InvalidValue, "twice"),
        ({"indexes": ["nonsense:n"]}, InvalidValue, "no index kind 'nonsense'"),
        ({"indexes": ["bloom:n,rate=7"]}, InvalidValue, "rate"),
        ({"schema": "n of int"}, InvalidSchema, "n of int"),
        ({"schema": 7}, InvalidSchema, "a schema of int"),
        ({"options": {"path": "/elsewhere"}}, InvalidValue, "option 'path'"),
        ({"options": {"fs.s3a.secret.key": "x"}}, InvalidValue, "clear text"),
        ({"name": "../escape"}, InvalidName, "escape"),
        (
            {"options": {**HEADER, "mode": "FAILFAST"}, "schema": "n date, city string"},
            InvalidInput,
            "could not be read",
        ),
    ],
)
def test_what_is_refused(
    spark: SparkSession,
    pond: millpond.Pond,
    data: Path,
    asked: dict[str, Any],
    error: type[MillpondError],
    says: str,
) -> None:
    numbers(data / "a.csv", 0, 3)
    wanted = {"format": "csv", "options": HEADER, "schema": "n int, city string", "indexes": ["minmax:n"], **asked}
    with pytest.raises(error, match=says) as found:
        pond.index(data, spark=spark, **wanted)
    assert found.value.hint
    assert pond.datasets() == []
    assert list(Path(pond.path).glob("datasets/*/dataset.json")) == []


def test_a_place_without_files(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        pond.index(data / "nowhere", format="csv", spark=spark)
    (data / "_hidden.csv").write_text("1\n")
    (data / "empty.csv").touch()
    with pytest.raises(InvalidInput, match="no files"):
        pond.index(data, format="csv", schema="n int", spark=spark)
    with pytest.raises(InvalidInput, match="cannot be read as parquet"):
        pond.index(data, format="parquet", spark=spark)


def test_a_path_that_is_gone_fails_the_query_and_the_refresh(
    spark: SparkSession, pond: millpond.Pond, data: Path
) -> None:
    numbers(data / "a.csv", 0, 3)
    made = pond.index(data, format="csv", options=HEADER, schema="n int", indexes=["minmax:n"], spark=spark)
    frame = made.to_spark(spark)
    shutil.rmtree(data)
    with pytest.raises(IllegalArgumentException, match=r"Millpond: .*cannot be read as csv"):
        frame.where("n = 1").count()
    with pytest.raises(InvalidInput, match="cannot be read as csv"):
        made.refresh(spark)
    assert made.status().files == 1
    data.mkdir()
    assert frame.count() == 0
    assert made.refresh(spark).removed == 1


def test_a_damaged_file_fails_the_job_and_is_named(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    spark.range(5).write.parquet(str(data / "good"))
    (data / "good" / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(InvalidInput, match=r"bad\.parquet"):
        pond.index(data / "good", format="parquet", schema="id long", indexes=["minmax:id"], spark=spark)
    assert pond.datasets() == []


def test_a_closed_pond_refuses(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    pond.close()
    with pytest.raises(millpond.errors.PondClosed):
        pond.index(data, format="csv", spark=spark)
    with pytest.raises(millpond.errors.PondClosed):
        pond.datasets()
