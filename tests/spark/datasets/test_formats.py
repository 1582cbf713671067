"""Every format is read through the index as Spark reads it without, and files that cannot match are not opened."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.spark import last_query
from tests.spark.datasets.conftest import files_read, numbers

SCHEMA = "vid string, city string, temp double, at timestamp, n long"
FILES = 4
HEADER = {"header": True}


def write(spark: SparkSession, where: Path, form: str, options: dict[str, Any]) -> None:
    """Four files: n is 0 to 9, 10 to 19, …; each has one city."""
    rows = spark.range(FILES * 10).selectExpr(
        "concat('v', id) AS vid",
        "element_at(array('Nice', 'Lyon', 'Lille', 'Nice'), CAST(id DIV 10 AS INT) + 1) AS city",
        "CASE WHEN id % 10 = 7 THEN NULL ELSE CAST(id AS DOUBLE) END AS temp",
        "timestamp_micros(1500000000000000 + id * 3600000000) AS at",
        "id AS n",
    )
    if form == "text":
        rows = rows.selectExpr("concat(city, ' ', n) AS value")
    ordered = rows.repartitionByRange(FILES, "n" if form != "text" else "value")
    ordered.write.format(form).options(**options).save(str(where))


FORMS: list[tuple[str, dict[str, Any]]] = [
    ("csv", {"header": "true"}),
    ("csv", {"header": "false", "sep": ";"}),
    ("json", {}),
    ("json", {"compression": "gzip"}),
    ("parquet", {}),
    ("orc", {}),
]


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: f"{form[0]} {form[1]}")
def both(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The same files through the index, and without it."""
    form, options = request.param
    scratch = tmp_path_factory.mktemp("formats")
    path = scratch / "data"
    write(spark, path, form, options)
    with millpond.open(scratch / "pond", background=False) as pond:
        indexes = [millpond.Values("city"), millpond.MinMax("temp"), "minmax:n", "minmax:at"]
        dataset = pond.index(path, format=form, indexes=indexes, schema=SCHEMA, options=options, spark=spark)
        plain = spark.read.format(form).schema(SCHEMA).options(**options).load(str(path))
        yield dataset.to_spark(spark), plain


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("n < 10", 1),
        ("temp >= 10 AND temp < 20", 1),
        ("city = 'Lille'", 1),
        ("city = 'Nice' AND n > 20", 1),
        ("city = 'Paris'", 0),
        ("n < 5 OR city = 'Lyon'", 2),
        ("at >= TIMESTAMP '2017-07-15 10:40:00'", 1),
        ("temp IS NULL", 4),
        ("length(vid) > 2", 4),
    ],
)
def test_files_that_cannot_match_are_not_read(
    spark: SparkSession, both: tuple[DataFrame, DataFrame], where: str, read: int
) -> None:
    indexed, plain = both
    assert files_read(spark, indexed.where(where), plain.where(where)) == (read, FILES)


def test_text_is_indexed_by_its_words(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    for at, word in enumerate(("error", "warning", "notice")):
        (data / f"{at}.log").write_text("".join(f"{word} {n} café\n" for n in range(20)))
    (data / "3.log.gz").write_bytes(gzip.compress(b"fatal 1\nfatal 2\n"))
    logs = pond.index(data, format="text", name="logs", indexes=[millpond.Values("value", limit=100)], spark=spark)
    plain = spark.read.text(str(data))
    found = logs.to_spark(spark)
    assert files_read(spark, found.where("value = 'fatal 2'"), plain.where("value = 'fatal 2'")) == (1, 4)
    assert files_read(spark, found.where("value LIKE 'warn%'"), plain.where("value LIKE 'warn%'")) == (1, 4)
    assert files_read(spark, found, plain) == (4, 4)


def test_accuracy_is_found_by_spark(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """Of two files that are read, one of them never indexed, a quarter of the rows matter."""
    numbers(data / "dt=2017-08-21" / "a.csv", 0, 100)
    numbers(data / "dt=2017-08-21" / "b.csv", 1000, 1100)
    dataset = pond.index(
        data, format="csv", options=HEADER, schema="n int, city string", spark=spark, indexes=["minmax:n"]
    )
    numbers(data / "dt=2017-08-21" / "c.csv", 200, 300)
    dataset.to_spark(spark).where("n < 50 AND dt = '2017-08-21'").collect()
    figures = last_query(spark)
    assert (figures.objects_read, figures.objects_total) == (2, 3)
    small, large = (data / "dt=2017-08-21" / name for name in ("a.csv", "c.csv"))
    read = small.stat().st_size + large.stat().st_size
    assert figures.accuracy == pytest.approx(0.5 * small.stat().st_size / read)
