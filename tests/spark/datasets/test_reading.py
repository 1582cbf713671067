"""What an index says of a file is what Spark would return for the data set's schema and options, to the row."""

from __future__ import annotations

import gzip
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

import millpond
from millpond.archive.index.kind import IndexKind
from millpond.gridpocket import ORIGIN, Readings, frame
from millpond.spark import last_query
from tests.spark.conftest import session_setting
from tests.spark.datasets.conftest import files_read, numbers

HEADER = {"header": True}
PARIS = "Europe/Paris"


def test_a_file_that_spark_would_split_is_described_whole(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """One file of many splits among small ones: the least value is in its first split, the greatest in its last."""
    numbers(data / "large.csv", 100_000, 400_000, city="Menton")
    for at in range(5):
        numbers(data / f"{at}.csv", 10 * at, 10 * at + 10)
    options = {**HEADER, "maxPartitionBytes": "ignored"}
    with (
        session_setting(spark, "spark.sql.files.maxPartitionBytes", "40000"),
        session_setting(spark, "spark.sql.files.openCostInBytes", "1000"),
    ):
        plain = spark.read.csv(str(data), schema="n int, city string", header=True)
        assert plain.rdd.getNumPartitions() > 50
        made = pond.index(
            data,
            format="csv",
            options=options,
            schema="n int, city string",
            indexes=[millpond.MinMax("n"), millpond.Values("city")],
            spark=spark,
        )
        assert made.status().rows == 300_050
        for where, read in (("n = 100000", 1), ("n = 399999", 1), ("n > 399999", 0), ("city = 'Menton' AND n < 9", 0)):
            assert files_read(spark, made.to_spark(spark).where(where), plain.where(where)) == (read, 6)


def test_many_small_files_share_tasks(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    for at in range(300):
        numbers(data / f"{at:03d}.csv", at, at + 1)
    seen: list[tuple[int, int]] = []
    made = pond.index(
        data,
        format="csv",
        options=HEADER,
        schema="n int, city string",
        indexes=["minmax:n"],
        spark=spark,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (300, 300)
    assert made.status().rows == 300
    assert made.to_spark(spark).where("n IN (7, 123, 299)").count() == 3
    assert last_query(spark).objects_read == 3


def test_records_over_several_lines(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    (data / "csv").mkdir()
    (data / "csv" / "a.csv").write_text('n,text\n1,"one\ntwo"\n2,"three"\n')
    (data / "csv" / "b.csv").write_text('n,text\n11,"x\ny\nz"\n')
    schema, options = "n int, text string", {**HEADER, "multiLine": True}
    lines = pond.index(data / "csv", format="csv", options=options, schema=schema, indexes=["values:text"], spark=spark)
    plain = spark.read.csv(str(data / "csv"), schema=schema, header=True, multiLine=True)
    where = "text = 'one\ntwo'"
    assert files_read(spark, lines.to_spark(spark).where(where), plain.where(where)) == (1, 2)
    (data / "json").mkdir()
    for at in range(2):
        records = [{"n": 10 * at + k, "deep": {"x": k}} for k in range(3)]
        (data / "json" / f"{at}.json").write_text(json.dumps(records, indent=2))
    deep = pond.index(
        data / "json", format="json", options={"multiLine": True}, indexes=["minmax:n"], name="deep", spark=spark
    )
    plain = spark.read.json(str(data / "json"), multiLine=True)
    assert deep.to_spark(spark).schema == plain.schema
    assert files_read(spark, deep.to_spark(spark).where("n > 5"), plain.where("n > 5")) == (1, 2)
    assert files_read(spark, deep.to_spark(spark).where("deep.x = 1"), plain.where("deep.x = 1")) == (2, 2)


def test_files_without_rows_are_never_opened(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    numbers(data / "some.csv", 0, 5)
    numbers(data / "header.csv", 0, 0)
    (data / "nothing.csv").touch()
    (data / "_SUCCESS").touch()
    (data / "zipped.csv.gz").write_bytes(gzip.compress(b"n,city\n7,Gap\n"))
    made = pond.index(
        data, format="csv", options=HEADER, indexes=["minmax:n"], schema="n int, city string", spark=spark
    )
    plain = spark.read.csv(str(data), schema="n int, city string", header=True)
    assert files_read(spark, made.to_spark(spark), plain) == (2, 3)
    assert last_query(spark).skipped_by == {"(empty)": 1}
    assert files_read(spark, made.to_spark(spark).where("n = 7"), plain.where("n = 7")) == (1, 3)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("pruning", ["true", "false"])
def test_records_that_cannot_be_parsed(
    spark: SparkSession, pond: millpond.Pond, data: Path, mode: str, pruning: str
) -> None:
    """Which rows there are depends, where bad ones are dropped, on the columns that are read."""
    (data / "a.csv").write_text("1,2,x\nbad,4,y\n5,bad,z\n7\n8,9,x,more\n")
    (data / "b.csv").write_text("bad,44,q\n")
    (data / "c.csv").write_text("55,bad,r\n")
    (data / "d.csv").write_text("100,200,s\n")
    schema = "a int, b int, c string"
    several = [millpond.Boxes("a", "b")] if mode == "PERMISSIVE" else []
    with session_setting(spark, "spark.sql.csv.parser.columnPruning.enabled", pruning):
        made = pond.index(
            data,
            format="csv",
            options={"mode": mode},
            schema=schema,
            indexes=[millpond.MinMax("a"), millpond.MinMax("b"), millpond.Values("c"), *several],
            spark=spark,
        )
        if mode == "DROPMALFORMED":
            with pytest.raises(millpond.errors.InvalidValue, match="DROPMALFORMED"):
                made.add_index(millpond.Boxes("a", "b"), spark=spark)
        plain = spark.read.csv(str(data), schema=schema, mode=mode)
        for where in ("a = 5", "a = 55", "b = 4", "b = 44", "a IS NULL", "b IS NULL", "c = 'r'", "c = 'q' OR a = 55"):
            for columns in (["a"], ["b"], ["c"], ["a", "b", "c"]):
                found, wanted = (frame.where(where).select(*columns) for frame in (made.to_spark(spark), plain))
                files_read(spark, found, wanted)
        files_read(spark, made.to_spark(spark).where("a = 100"), plain.where("a = 100"))
        # Of a file in which every row was dropped nothing is known.
        assert last_query(spark).objects_read == (1 if mode == "PERMISSIVE" else 2)


def test_bad_json_lines_and_the_column_of_what_was_bad(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    (data / "a.json").write_text('{"a": 1, "b": "x"}\n{"a": "no number", "b": "y"}\n{"a": 3, "b": \n')
    (data / "b.json").write_text('{"a": 10, "b": "z"}\n')
    schema = "a int, b string, _corrupt_record string"
    made = pond.index(data, format="json", schema=schema, indexes=["minmax:a", "values:b"], spark=spark)
    plain = spark.read.json(str(data), schema=schema)
    for where in ("a = 1", "a IS NULL", "b = 'y'", "b IS NULL", "a = 10", "a > 5 OR b = 'y'"):
        files_read(spark, made.to_spark(spark).where(where), plain.where(where))
    assert files_read(spark, made.to_spark(spark).where("a < 5"), plain.where("a < 5")) == (1, 2)
    with pytest.raises(millpond.errors.InvalidValue, match="_corrupt_record"):
        made.add_index("values:_corrupt_record", spark=spark)


def test_nan_infinity_and_negative_zero(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    for at, values in enumerate(([1.0, float("nan")], [float("inf"), 2.0], [-0.0, 0.0], [None, 5.0])):
        pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), data / f"{at}.parquet")
    made = pond.index(data, format="parquet", indexes=["minmax:x", "values:x", "bloom:x"], spark=spark)
    with session_setting(spark, "spark.sql.parquet.filterPushdown", "false"):
        plain = spark.read.parquet(str(data))
        for where in ("x > 3", "x = double('nan')", "x < 1", "x = 0", "x = -0.0D", "x IS NULL", "x = double('inf')"):
            files_read(spark, made.to_spark(spark).where(where), plain.where(where))
        assert files_read(spark, made.to_spark(spark).where("x < -1"), plain.where("x < -1"))[0] <= 1


@pytest.mark.parametrize("form", ["csv", "json"])
def test_times_are_those_of_the_zone_that_they_were_indexed_in(
    spark: SparkSession, pond: millpond.Pond, data: Path, form: str
) -> None:
    """A session in another zone reads the same moments: the zone is an option of the data set."""
    for at, hour in enumerate((1, 12)):
        text = f"2017-08-21 {hour:02d}:30:00"
        (data / f"{at}.{form}").write_text(json.dumps({"t": text}) + "\n" if form == "json" else text + "\n")
    made = pond.index(data, format=form, schema="t timestamp", indexes=["minmax:t"], spark=spark)
    where = "t < TIMESTAMP '2017-08-21 03:00:00 UTC'"
    assert made.to_spark(spark).where(where).count() == 1
    assert last_query(spark).objects_read == 1
    with session_setting(spark, "spark.sql.session.timeZone", PARIS):
        assert made.to_spark(spark).where(where).count() == 1
        assert last_query(spark).objects_read == 1
        assert made.refresh(spark).described == 0
        elsewhere = pond.index(data, format=form, name="paris", schema="t timestamp", indexes=["minmax:t"], spark=spark)
        plain = spark.read.format(form).schema("t timestamp").load(str(data))
        late = "t < TIMESTAMP '2017-08-21 00:00:00 UTC'"
        assert files_read(spark, elsewhere.to_spark(spark).where(late), plain.where(late)) == (1, 2)
        assert elsewhere.to_spark(spark).where(late).count() == 1
    assert elsewhere.to_spark(spark).where(late).count() == 1  # also in UTC it is read as Paris


def test_a_session_that_reads_otherwise_does_not_believe_the_index(
    spark: SparkSession, pond: millpond.Pond, data: Path
) -> None:
    (data / "a.json").write_text('{"a": ""}\n{"a": "1"}\n')
    (data / "b.json").write_text('{"a": "7"}\n')
    made = pond.index(data, format="json", schema="a string", indexes=["values:a"], spark=spark)
    assert made.to_spark(spark).where("a = '7'").count() == 1
    assert last_query(spark).objects_read == 1
    with session_setting(spark, "spark.sql.legacy.json.allowEmptyString.enabled", "true"):
        assert made.to_spark(spark).where("a = '7'").count() == 1
        assert (last_query(spark).objects_read, last_query(spark).undecided) == (2, 1)
        with pytest.raises(millpond.errors.InvalidValue, match=r"allowEmptyString"):
            made.refresh(spark)
        made.rebuild(spark)
        assert made.to_spark(spark).where("a = '7'").count() == 1
        assert last_query(spark).objects_read == 1
    assert made.to_spark(spark).where("a = '7'").count() == 1
    assert last_query(spark).undecided == 1


def test_a_schema_is_inferred_once_and_kept(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    numbers(data / "a.csv", 0, 5)
    made = pond.index(data, format="csv", options={**HEADER, "inferSchema": True}, indexes=["minmax:n"], spark=spark)
    assert made.to_spark(spark).schema.simpleString() == "struct<n:int,city:string>"
    (data / "b.csv").write_text("n,city\nnot a number,Nice\n3000000000,Nice\n")
    assert made.to_spark(spark).schema.simpleString() == "struct<n:int,city:string>"
    assert made.refresh(spark).added == 1
    assert made.to_spark(spark).where("n IS NULL").count() == 2
    assert last_query(spark).objects_read == 1


def test_types_of_every_sort(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    """Whatever has an order is indexed as Spark orders it; what has none is refused as an index, and read."""
    columns = (
        "CAST(id AS BYTE) AS byte, CAST(id AS SHORT) AS short, CAST(id AS INT) AS int, id AS long, "
        "CAST(id AS FLOAT) AS float, CAST(id AS DECIMAL(20, 3)) AS decimal, id % 2 = 0 AS flag, "
        "concat(repeat('ü', 80), id) AS text, CAST(concat('b', id) AS BINARY) AS binary, "
        "date_add(DATE '1900-01-01', CAST(id * 400 AS INT)) AS date, timestamp_micros(id * 86400000001) AS time, "
        "CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS ntz, array(id) AS list"
    )
    for at in range(3):
        rows = spark.range(50 * at, 50 * at + 10, numPartitions=1).selectExpr(*_split(columns))
        rows.write.parquet(str(data / f"p{at}"))
    ordered = ["byte", "short", "int", "long", "float", "decimal", "flag", "text", "binary", "date", "time"]
    made = pond.index(
        f"{data}/p*", format="parquet", name="types", indexes=[f"minmax:{name}" for name in ordered], spark=spark
    )
    plain = spark.read.parquet(f"{data}/p*")
    for name in ordered:
        assert files_read(spark, made.to_spark(spark).where(f"{name} IS NULL"), plain.where(f"{name} IS NULL")) == (
            0,
            3,
        )
        for low in (plain.selectExpr(f"min({name})").collect()[0][0], plain.selectExpr(f"max({name})").collect()[0][0]):
            wanted = col(name) == lit(low).cast(plain.schema[name].dataType)
            files_read(spark, made.to_spark(spark).where(wanted), plain.where(wanted))
        assert last_query(spark).objects_read == (3 if name in ("flag", "text") else 1)  # the texts begin alike
    assert files_read(spark, made.to_spark(spark).where("date < '1950-01-01'"), plain.where("date < '1950-01-01'")) == (
        1,
        3,
    )
    assert files_read(spark, made.to_spark(spark).where("decimal > 60.5"), plain.where("decimal > 60.5")) == (1, 3)
    assert files_read(spark, made.to_spark(spark).where("ntz IS NULL"), plain.where("ntz IS NULL")) == (3, 3)
    for name in ("ntz", "list"):
        with pytest.raises(millpond.errors.InvalidValue, match=name):
            made.add_index(f"minmax:{name}", spark=spark)


def _split(columns: str) -> list[str]:
    """At the commas that are not inside parentheses."""
    found, depth = [""], 0
    for letter in columns:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


class Initials(IndexKind):
    """A kind of a user's: which first letters a text has."""

    name = "initials"

    def __init__(self, column: str) -> None:
        super().__init__(column)

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("letters", pa.string())]

    def describe(self, rows: pa.Table) -> dict[str, Any]:
        return {"letters": "".join(sorted({text[:1] for text in rows.column(self.column).to_pylist() if text}))}

    def keep(self, term: Any, entries: Any) -> Any:
        from millpond.model.predicate import Compare

        if not isinstance(term, Compare) or term.op != "=" or not term.value:
            return None
        return np.array([term.value[0] in (letters or "") for letters in entries.column("letters").to_pylist()])


def test_a_kind_of_ones_own_describes_files_in_executors(spark: SparkSession, pond: millpond.Pond, data: Path) -> None:
    for at, cities in enumerate((("Antibes", "Zermatt"), ("Lyon", "Nice"))):
        (data / f"{at}.csv").write_text("".join(f"{city}\n" for city in cities))
    made = pond.index(data, format="csv", schema="city string", indexes=[Initials("city")], spark=spark)
    plain = spark.read.csv(str(data), schema="city string")
    assert files_read(spark, made.to_spark(spark).where("city = 'Mars'"), plain.where("city = 'Mars'")) == (0, 2)
    assert last_query(spark).skipped_by == {"initials(city)": 2}
    assert files_read(spark, made.to_spark(spark).where("city = 'Nice'"), plain.where("city = 'Nice'")) == (1, 2)


def test_executors_run_the_interpreter_of_the_driver(
    spark: SparkSession, pond: millpond.Pond, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment that is not activated: the `python3` that Spark finds has none of our packages."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON")
    for at in range(2):
        numbers(data / f"{at}.csv", 10 * at, 10 * at + 10)

    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    made = pond.index(
        data, format="csv", options=HEADER, schema="n int, city string", indexes=["minmax:n"], spark=spark
    )
    assert made.status().rows == 20

    made.to_spark(spark).where("n > 14").collect()
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    assert last_query(spark).accuracy == 0.5

    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    assert frame(spark, Readings(3, ORIGIN, timedelta(hours=1), timedelta(minutes=30))).count() == 6


@pytest.mark.parametrize("kind", ["values", "bloom", "minmax"])
def test_text_that_is_no_utf8_is_not_known(spark: SparkSession, pond: millpond.Pond, data: Path, kind: str) -> None:
    """Spark compares such text by its bytes, and matches what it decodes them to."""
    (data / "a.txt").write_bytes(b"a\xff\nab\n")
    (data / "b.txt").write_bytes(b"ab\nac\n")
    made = pond.index(data, format="text", indexes=[f"{kind}:value"], spark=spark)
    plain = spark.read.text(str(data))
    questions = (
        "value LIKE '_\ufffd'",
        "value = 'a\ufffd'",
        "value > 'ad'",
        "NOT (value LIKE 'a_')",
        "length(value) > 2",
    )
    for where in questions:
        files_read(spark, made.to_spark(spark).where(where), plain.where(where))
    assert made.to_spark(spark).where("value LIKE '_\ufffd'").count() == 1
    made.to_spark(spark).where("value > 'ad'").collect()
    assert last_query(spark).objects_read == 1
