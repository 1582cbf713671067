"""A record's whole way: every supported type, in every form, live and settled, read by us and by others (K1, B1)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidRecord, InvalidValue
from tests.pond.conftest import METERS, Ponds, rows, temps

EVERYTHING = pa.schema(
    [
        ("n", pa.int64()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("money", pa.decimal128(20, 4)),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.float64()), ("label", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("deep", pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int64())))]))),
    ]
)


def everything() -> list[dict[str, Any]]:
    full = {
        "i8": -128,
        "i16": 32767,
        "i32": -(2**31),
        "f32": 1.5,
        "f64": math.pi,
        "money": Decimal("1234567890123456.7890"),
        "yes": True,
        "text": 'é\u0000\U0001f600 "quoted", \n line',
        "blob": bytes(range(256)),
        "day": date(1900, 2, 28),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "tags": ["a", None, ""],
        "point": {"x": -0.0, "label": None},
        "counts": [("a", 1), ("b", None)],
        "deep": [{"m": [("k", [1, None, 2**62])]}, None, {"m": []}],
    }
    odd = {
        **dict.fromkeys(full, None),
        "f32": math.inf,
        "f64": math.nan,
        "text": "",
        "blob": b"",
        "tags": [],
        "counts": [],
        "deep": [],
    }
    low = {**full, "f64": -math.inf, "f32": math.nan, "yes": False, "at": datetime(1, 1, 1, tzinfo=UTC)}
    nothing = dict.fromkeys(full, None)
    return [{"n": n, **row} for n, row in enumerate([full, odd, low, nothing])]


def same(found: list[dict[str, Any]]) -> bool:
    """Equality under which NaN equals itself."""
    wanted = pa.Table.from_pylist(everything(), EVERYTHING).sort_by("n")
    return repr(sorted(found, key=lambda row: row["n"])) == repr(wanted.to_pylist())


@pytest.mark.parametrize("form", ["dicts", "one by one", "batch", "table", "chunked"])
def test_every_type_survives_the_whole_way(ponds: Ponds, form: str) -> None:
    table = pa.Table.from_pylist(everything(), EVERYTHING)
    with ponds() as pond:
        stream = pond.create_stream("all", EVERYTHING, streamlets=2, keys=["n"])
        if form == "dicts":
            stream.append(everything())
        elif form == "one by one":
            for row in everything():
                stream.append(row)
        elif form == "batch":
            stream.append(table.to_batches()[0])
        elif form == "table":
            stream.append(table)
        else:
            stream.append(pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)]))
        assert same(stream.scan().to_pylist()), "live"
        assert same([row for batch in stream.read(columns=EVERYTHING.names) for row in batch.to_pylist()])
    with ponds() as pond:
        stream = pond.stream("all")
        assert same(stream.scan().to_pylist()), "recovered"
        stream.settle()
        assert same(stream.scan().to_pylist()), "settled"
        assert stream.get(2).num_rows == 1
        root = stream.snapshot().settled.root
    ours = pl.read_delta(root).drop("_streamlet", "_offset", "_ingest_time").to_arrow()
    assert ours.num_rows == 4
    delta = deltalake.DeltaTable(root).to_pyarrow_table(columns=EVERYTHING.names)
    assert same(delta.cast(EVERYTHING).to_pylist()), "read by somebody else (B1)"
    assert sorted(ours["n"].to_pylist()) == [0, 1, 2, 3]
    assert sorted(map(str, ours["f64"].to_pylist())) == sorted(["3.141592653589793", "nan", "-inf", "None"])


def test_pandas_goes_in(pond: millpond.Pond) -> None:
    stream = pond.create_stream("s", METERS)
    stream.append(pd.DataFrame({"temp": [1.0, None, 3.0], "vid": ["a", "b", None], "city": ["x", "y", "z"]}))
    assert sorted(stream.scan().to_pylist(), key=str) == [
        {"vid": "a", "city": "x", "temp": 1.0},
        {"vid": "b", "city": "y", "temp": None},
        {"vid": None, "city": "z", "temp": 3.0},
    ]


def test_raw_events(pond: millpond.Pond) -> None:
    """C1, the embedded half: an event can be schemaless."""
    events = pond.create_stream("events")
    events.append({"body": b"\x00\xff", "headers": {"source": "t1"}})
    events.append({"body": "text"})
    found = events.scan().to_pylist()
    assert sorted(row["body"] for row in found) == [b"\x00\xff", b"text"]
    assert all(row["time"] is not None for row in found)
    events.settle()
    assert sorted(dict(row["headers"]).get("source", "") for row in events.scan().to_pylist()) == ["", "t1"]


def test_a_row_that_does_not_fit_is_named_and_nothing_is_kept(meters: millpond.Stream) -> None:
    bad = [*rows(0, 50), {"vid": "v", "temp": "warm"}, *rows(50, 60)]
    with pytest.raises(InvalidRecord, match=r"row 50, column 'temp'.*'warm'"):
        meters.append(bad)
    with pytest.raises(InvalidRecord, match=r"row 1, column 'colour'"):
        meters.append([{"vid": "a"}, {"colour": "red"}])
    table = pa.table({"vid": ["a", "b"], "temp": ["1.5", "warm"]})
    with pytest.raises(InvalidRecord, match="temp"):
        meters.append(table)
    assert meters.count() == 0
    assert meters.append([]).ranges == {}


def test_an_ack_names_durability_and_offsets(pond: millpond.Pond) -> None:
    stream = pond.create_stream("s", METERS, durability="os")
    ack = stream.append(rows(0, 3))
    assert (ack.durability, ack.ranges, ack.duplicate) == ("os", {0: millpond.OffsetRange(0, 3)}, False)
    assert stream.append(rows(3, 5), durability="disk").durability == "disk"
    assert stream.append(rows(5, 6), durability="memory").ranges == {0: millpond.OffsetRange(5, 6)}
    assert temps(stream) == [0, 1, 2, 3, 4, 5]


def test_retries_are_recognised_across_settles_and_restarts(ponds: Ponds) -> None:
    """I2: a retried append with the same producer and sequence gets the first one's offsets."""
    with ponds() as pond:
        stream = pond.create_stream("s", METERS, keys=["vid"], streamlets=3)
        first = stream.append(rows(0, 40), producer="p", sequence=7)
        again = stream.append(rows(0, 40), producer="p", sequence=7)
        assert again.duplicate
        assert again.ranges == first.ranges
        stream.settle()
        assert stream.append(rows(0, 40), producer="p", sequence=7).duplicate
    with ponds() as pond:
        stream = pond.stream("s")
        assert stream.append(rows(0, 40), producer="p", sequence=7).ranges == first.ranges
        assert not stream.append(rows(40, 50), producer="p", sequence=8).duplicate
        assert temps(stream) == list(range(50))
        with pytest.raises(InvalidValue, match="both"):
            stream.append(rows(0, 1), producer="p")


def test_reading_from_anywhere(meters: millpond.Stream) -> None:
    """C7: by offset and by time; settled and live without a seam."""
    meters.append(rows(0, 30))
    meters.settle()
    middle = datetime.now(UTC)
    meters.append(rows(30, 60))

    def read(start: Any) -> list[float]:
        found = meters.read(start, columns=["temp"])
        return sorted(temp for batch in found for temp in batch.column("temp").to_pylist())

    assert read("earliest") == list(range(60))
    assert read("latest") == []
    assert read(middle) == list(range(30, 60))
    assert read(middle.isoformat()) == list(range(30, 60))
    position = dict(meters.snapshot().boundary)
    assert read(position) == list(range(30, 60))
    with meters.read(batch_rows=7) as reader:
        first = next(reader)
        rest = [temp for batch in meters.read(reader.position) for temp in batch.column("temp").to_pylist()]
    assert sorted([*first.column("temp").to_pylist(), *rest]) == list(range(60))


def test_keys_find_records_in_both_halves_newest_first(meters: millpond.Stream) -> None:
    """K3, K6: by primary and by secondary key, without Spark."""
    for temp in range(5):
        meters.append({"vid": "v1", "city": "Nice", "temp": float(temp)})
        meters.append({"vid": "v2", "city": "Nice", "temp": float(temp) + 100})
        if temp == 2:
            meters.settle()
    assert meters.get("v1")["temp"].to_pylist() == [4, 3, 2, 1, 0]
    assert meters.get("v1", limit=3)["temp"].to_pylist() == [4, 3, 2]
    assert meters.get(city="Nice", limit=4)["temp"].to_pylist() == [104, 4, 103, 3]
    assert meters.get("nobody").num_rows == 0
    with pytest.raises(millpond.MillpondError, match="temp"):
        meters.get(temp=1.0)


def test_what_a_caller_does_with_its_arrays_afterwards_does_not_reach_the_pond(pond: millpond.Pond) -> None:
    numbers = np.arange(1_000, dtype=np.int64)
    stream = pond.create_stream("s", pa.schema([("n", pa.int64())]))
    stream.append(pa.table({"n": pa.array(numbers)}))
    numbers[:] = -1
    assert sorted(stream.scan()["n"].to_pylist()) == list(range(1_000))


@pytest.mark.parametrize("settled", [0, 40, 100])
def test_pages_of_a_read_add_up(meters: millpond.Stream, settled: int) -> None:
    """A limit ends a read where the next one goes on: nothing is left out, nothing comes twice."""
    meters.append(rows(0, settled))
    if settled:
        meters.settle()
    meters.append(rows(settled, 100))
    found: list[float] = []
    start: Any = "earliest"
    for _ in range(20):
        reader = meters.read(start, limit=7)
        page = [row["temp"] for batch in reader for row in batch.to_pylist()]
        assert len(page) <= 7
        found += page
        start = reader.position
    assert sorted(found) == [float(n) for n in range(100)]
    assert list(meters.read(limit=0)) == []
