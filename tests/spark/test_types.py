"""Every type a stream may hold, through Spark, from both halves."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.archive import objects
from millpond.model.schema import TIMESTAMP
from tests.spark.conftest import METERS, readings

EVERYTHING = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("list", pa.list_(pa.int32())),
        ("strict", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("struct", pa.struct([("x", pa.float64()), pa.field("y", pa.string(), nullable=False)])),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("deep", pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.decimal128(5, 1))))]))),
    ]
)


def rows() -> list[dict[str, Any]]:
    full = {
        "i8": -128,
        "i16": -32768,
        "i32": 2**31 - 1,
        "f32": 0.5,
        "f64": math.inf,
        "small": Decimal("-1234567.89"),
        "large": Decimal("9" * 28 + ".0123456789"),
        "flag": True,
        "text": "a\u0000\u007f ß 水 🌊 \n\t'\"",
        "data": bytes(range(256)),
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "list": [1, None, -3],
        "strict": ["", "x"],
        "struct": {"x": None, "y": "y"},
        "map": {"k": 1, "": None},
        "deep": [{"m": {1: [Decimal("1.5"), None], 2: None}}, None],
    }
    other = full | {
        "i8": 127,
        "f32": math.nan,
        "f64": -0.0,
        "day": date(9999, 12, 31),
        "at": datetime(1582, 10, 4, 1, 2, 3, 456789, tzinfo=UTC),
        "list": [],
        "struct": {"x": math.nan, "y": ""},
        "map": {},
        "deep": [],
        "text": "",
        "data": b"",
        "flag": False,
    }
    nothing: dict[str, Any] = dict.fromkeys(full)
    return [{"id": n, **row} for n, row in enumerate((full, other, nothing))]


def plain(value: Any) -> Any:
    """What Spark or Arrow returned, in a form that can be compared: NaN equal to itself, times in UTC."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return sorted((plain(k), plain(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def of_arrow(table: pa.Table) -> list[Any]:
    found = []
    for row in table.sort_by("id").to_pylist():
        row["map"] = None if row["map"] is None else dict(row["map"])
        row["struct"] = None if row["struct"] is None else list(row["struct"].values())
        deep = row["deep"]
        row["deep"] = deep and [item and [item["m"] and dict(item["m"])] for item in deep]
        found.append({name: plain(value) for name, value in row.items()})
    return found


def of_spark(collected: list[Any]) -> list[Any]:
    return [{name: plain(row[name]) for name in row.__fields__} for row in sorted(collected, key=lambda row: row["id"])]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    ("half", "live_way"),
    [("live", "held by the driver"), ("live", "fetched by tasks"), ("settled", "fetched by tasks")],
    indirect=["live_way"],
)
@pytest.mark.usefixtures("live_way")
def test_every_type_comes_back_the_same(spark: SparkSession, pond: millpond.Pond, half: str, zone: str) -> None:
    """Times go through Arrow on one way and Parquet on the other: neither may shift them."""
    stream = pond.create_stream("all", schema=EVERYTHING)
    stream.append(rows())
    if half == "settled":
        stream.settle()
    expected = of_arrow(stream.scan(columns=[*EVERYTHING.names, "_streamlet", "_offset", "_ingest_time"]))
    assert [row["id"] for row in expected] == [0, 1, 2]
    micros = "unix_micros(at) AS at, unix_micros(_ingest_time) AS _ingest_time, unix_date(day) AS day"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        names = [name for name in stream.to_spark(spark).columns if name not in ("at", "_ingest_time", "day")]
        found = of_spark(stream.to_spark(spark).selectExpr(*names, *micros.split(", ")).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for row in expected:
        for name in ("at", "_ingest_time"):
            delta = row[name] and row[name] - datetime(1970, 1, 1)
            row[name] = delta and delta // timedelta(microseconds=1)
        row["day"] = row["day"] and (row["day"] - date(1970, 1, 1)).days
    assert found == expected


def test_spark_sees_the_users_columns_then_the_systems(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    assert frame.dtypes == [
        ("vid", "string"),
        ("city", "string"),
        ("lat", "double"),
        ("n", "bigint"),
        ("_streamlet", "int"),
        ("_offset", "bigint"),
        ("_ingest_time", "timestamp"),
    ]


def test_objects_from_before_a_column_was_added_read_as_null(spark: SparkSession, pond: millpond.Pond) -> None:
    stream = pond.create_stream("grow", schema=METERS)
    stream.append(readings(0, 10))
    stream.settle()
    stream.append(readings(10, 15))
    early = stream.to_spark(spark)
    pond.alter_stream("grow", schema=METERS.append(pa.field("note", pa.struct([("x", pa.int32())]))))
    stream.append([{**row, "note": {"x": row["n"]}} for row in readings(15, 20)])
    late = stream.to_spark(spark)

    def check() -> None:
        assert sorted(row["n"] for row in early.select("n", "city").collect()) == list(range(20))
        assert "note" not in early.columns
        found = sorted((row["n"], row["x"]) for row in late.selectExpr("n", "note.x AS x").collect())
        assert found == [(n, None if n < 15 else n) for n in range(20)]
        assert late.where("note IS NULL").count() == 15
        assert late.where("note.x >= 17").count() == 3

    check()
    stream.settle()
    check()


def test_any_path_may_hold_a_pond(spark: SparkSession, tmp_path: Path) -> None:
    # Left out: control characters, "%" and "\\", which deltalake cannot have in a path.
    odd = tmp_path / "a b+d#e?f&g=h,i;j'k\"l{n}o[p]q*r:s@t!u$v~w^x`y|ß水"
    with millpond.open(str(odd), background=False) as pond:
        stream = pond.create_stream("grid/meters.v-1", schema=METERS)
        stream.append(readings(0, 10))
        stream.settle()
        stream.append(readings(10, 12))
        assert stream.to_spark(spark).where("n > 5").count() == 6


def test_a_stream_without_a_schema_is_a_table_of_events(spark: SparkSession, pond: millpond.Pond) -> None:
    stream = pond.create_stream("raw")
    now = datetime(2024, 2, 29, 12, tzinfo=UTC)
    stream.append({"time": now, "headers": {"kind": "a"}, "body": b"\x00\xff"})
    stream.settle()
    stream.append({"time": now, "headers": {"kind": "b"}, "body": b""})
    found = stream.to_spark(spark).selectExpr("headers['kind'] AS kind", "length(body) AS size").collect()
    assert sorted(map(tuple, found)) == [("a", 2), ("b", 0)]


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, pond: millpond.Pond) -> None:
    frame = pond.create_stream("empty", schema=METERS).to_spark(spark)
    assert frame.collect() == []
    assert frame.count() == 0
    assert frame.groupBy("city").count().collect() == []


ZEROS = [
    "g = 0", "g = -0.0D", "g <=> 0D", "g >= 0", "g <= 0", "g <= -0.0D", "NOT (g > 0)", "NOT (g < 0 OR g = 5)",
    "g IN (0D, 7D)", "g IN (-0.0D)", "g IN (0D, 10D, 11D, 12D, 13D, 14D, 15D, 16D, 17D, 18D, 19D, 20D)",
    "f = 0", "f >= -0.0F", "f IN (CAST(-0.0 AS FLOAT), 7F)", "g = 0 AND n >= 0",
]  # fmt: skip


@pytest.mark.parametrize("dictionaries", ["as written", "everywhere"])
def test_zeros_of_both_signs_are_one_number(
    spark: SparkSession, pond: millpond.Pond, dictionaries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet has two of them, and Spark's reader skips row groups by what their dictionaries hold."""
    if dictionaries == "everywhere":  # as objects were once written
        monkeypatch.setattr(objects, "_has_negative_zero", lambda column: False)
    schema = pa.schema([("n", pa.int64()), ("g", pa.float64()), ("f", pa.float32())])
    stream = pond.create_stream("zeros", schema=schema)
    for start, zero in ((0, -0.0), (40, 0.0)):
        stream.append([{"n": n, "g": (zero, 5.0)[n % 2], "f": (zero, 5.0)[n % 2]} for n in range(start, start + 40)])
        stream.settle()
    frame = stream.to_spark(spark)
    for clause in ZEROS:
        expected = sum(bool(row[0]) for row in frame.selectExpr(clause).collect())
        assert expected >= 40, clause
        assert frame.where(clause).count() == expected, clause
        assert stream.count(where=clause) == expected, clause
    if dictionaries == "as written":
        settled = stream.archive.snapshot()
        plain = spark.read.parquet(*(f"{settled.root}/{path}" for path in settled.objects.paths))
        assert plain.where("g = 0").count() == plain.where("f >= 0 AND f < 1").count() == 40
