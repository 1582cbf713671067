"""B1: the archive is an open table. What other readers find in it is what was settled, for every supported type."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millpond.model.predicate import Compare, IsNull, Predicate
from millpond.model.schema import TIMESTAMP, stored_schema
from tests.archive.settled_stream import MIDNIGHT, SettledStream, define

NESTED = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("time", TIMESTAMP),
        ("list", pa.list_(pa.int64())),
        ("struct", NESTED),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("deep", pa.list_(pa.map_(pa.string(), NESTED))),
        pa.field("must", pa.int64(), nullable=False),
    ]
)
FULL: dict[str, Any] = {
    "i8": -128,
    "i16": 32_767,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f32": 1.5,
    "f64": math.pi,
    "small": Decimal("-1234567.89"),
    "large": Decimal("9999999999999999999999999999.0123456789"),
    "yes": True,
    "text": "naïve 🦆\n\u0000\U0010ffff",
    "bytes": b"\x00\xff\x10",
    "day": date(1, 1, 1),
    "time": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "list": [1, None, 3],
    "struct": {"a": 1, "b": ["x", None]},
    "map": [("k", 1.0), ("l", None)],
    "deep": [[("k", {"a": None, "b": []})], None],
    "must": 1,
}
EMPTY: dict[str, Any] = dict.fromkeys(FULL) | {"must": 2}
ODD: dict[str, Any] = FULL | {
    "f32": math.nan,
    "f64": -math.inf,
    "text": "",
    "bytes": b"",
    "day": date(9999, 12, 31),
    "time": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "list": [],
    "map": [],
    "deep": [],
    "struct": {"a": None, "b": None},
}
LONG: dict[str, Any] = EMPTY | {"text": "é" * 100, "bytes": b"\xff" * 100, "f64": math.nan, "f32": math.inf}
ROWS = [FULL, EMPTY, ODD, LONG, FULL | {"f64": -0.0, "i8": 0}]


@pytest.fixture
def typed(tmp_path: Path) -> SettledStream:
    """Rows of all types, one object per row: what is true of an object is true of its row."""
    stream = SettledStream(tmp_path, define(1, SCHEMA))
    for offset, row in enumerate(ROWS):
        stream.archive.settle({0: offset} if offset else {}, {0: offset + 1}, [batch(offset, [row])])
    return stream


def batch(offset: int, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    stamped = [
        row | {"_streamlet": 0, "_offset": offset + at, "_ingest_time": datetime.fromtimestamp(MIDNIGHT / 1e6, UTC)}
        for at, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(stamped, schema=stored_schema(SCHEMA))


def same(found: Any, wanted: Any) -> bool:
    """Equality in which NaN is itself and -0.0 is not 0.0."""
    if isinstance(wanted, float):
        return (
            isinstance(found, float) and (found == wanted or wanted != wanted != found) and repr(found) == repr(wanted)
        )
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    return bool(found == wanted)


def as_polars(value: Any, kind: pa.DataType) -> Any:
    """Maps are dicts in Polars."""
    if value is not None and pa.types.is_map(kind):
        return {key: as_polars(item, kind.item_type) for key, item in value}
    if value is not None and pa.types.is_list(kind):
        return [as_polars(item, kind.value_type) for item in value]
    return value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("_offset").select(SCHEMA.names).to_pylist()  # type: ignore[no-any-return]


def test_our_own_reader_gives_back_every_value(typed: SettledStream) -> None:
    found = pa.Table.from_batches(typed.reopen().read(), stored_schema(SCHEMA))
    assert found.schema.equals(stored_schema(SCHEMA))
    for one, wanted in zip(rows_of(found), ROWS, strict=True):
        assert same(one, wanted)
    assert not typed.archive.verify()


def test_deltalakes_own_reader_finds_the_same_rows(typed: SettledStream) -> None:
    """B1"""
    table = DeltaTable(typed.root)
    assert [field.name for field in table.schema().fields] == stored_schema(SCHEMA).names
    for one, wanted in zip(rows_of(table.to_pyarrow_table()), ROWS, strict=True):
        assert same(one, wanted)


def test_polars_finds_the_same_rows(typed: SettledStream) -> None:
    """B1"""
    found = pl.scan_delta(typed.root).sort("_offset").collect().to_dicts()
    for one, wanted in zip(found, ROWS, strict=True):
        for name in SCHEMA.names:
            assert same(one[name], as_polars(wanted[name], SCHEMA.field(name).type)), name


def test_a_compacted_table_is_still_the_same_to_others(typed: SettledStream) -> None:
    """B1, B7"""
    report = typed.archive.compact(least_objects=2)
    assert report is not None
    table = DeltaTable(typed.root)
    for one, wanted in zip(rows_of(table.to_pyarrow_table()), ROWS, strict=True):
        assert same(one, wanted)
    assert len(table.file_uris()) == 1
    assert not typed.archive.verify()


def test_others_find_all_rows_with_filters_that_use_our_statistics(typed: SettledStream) -> None:
    """B1, F5: what the add actions say never makes another engine skip a matching row."""
    table = DeltaTable(typed.root)
    for name, value in (("i64", 2**63 - 1), ("text", FULL["text"]), ("day", date(1, 1, 1)), ("must", 1)):
        found = table.to_pyarrow_table(filters=[(name, "=", value)])
        assert found.num_rows == sum(row[name] == value for row in ROWS), name
    seen = pl.scan_delta(typed.root).filter(pl.col("time") == FULL["time"]).collect()
    assert seen.height == 2
    assert pl.scan_delta(typed.root).filter(pl.col("f32").is_nan()).collect().height == 1
    assert pl.scan_delta(typed.root).filter(pl.col("small") == FULL["small"]).collect().height == 3
    assert pl.scan_delta(typed.root).filter(pl.col("large") == FULL["large"]).collect().height == 3


@pytest.mark.parametrize(
    ("predicate", "offsets"),
    [
        (Compare("=", "f32", math.nan), [2]),
        (Compare(">", "f64", 1e300), [3]),
        (Compare("<", "f64", 0.0), [2]),
        (Compare("=", "f64", 0.0), [4]),
        (Compare("=", "text", "é" * 100), [3]),
        (Compare(">", "text", "é" * 99), [3]),
        (Compare("=", "bytes", b"\xff" * 100), [3]),
        (Compare("=", "large", FULL["large"]), [0, 2, 4]),
        (Compare(">=", "time", ODD["time"]), [2]),
        (Compare("=", "yes", False), []),
        (IsNull("deep"), [1, 3]),
        (IsNull("i8"), [1, 3]),
    ],
)
def test_pruning_and_filtering_agree_on_odd_values(
    typed: SettledStream, predicate: Predicate, offsets: list[int]
) -> None:
    """I4, F5: NaN, infinities, cut text, nulls: no matching row is skipped."""
    snapshot = typed.reopen()
    found = [b.column("_offset").to_pylist() for b in snapshot.read(columns=["_offset"], predicate=predicate)]
    assert [offset for part in found for offset in part] == offsets
    keep = snapshot.objects.prune(predicate).keep
    assert all(keep[offset] for offset in offsets)
