from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidValue
from millpond.query import get, parse_value
from tests.query.small_pond import Row, SmallPond, define, reading


def newest(pond: SmallPond, wanted: Callable[[Row], bool], limit: int) -> list[Row]:
    matching = [row for row in pond.rows if wanted(row)]
    return sorted(matching, key=lambda r: (r["_ingest_time"], r["_offset"], -r["_streamlet"]), reverse=True)[:limit]


@pytest.fixture
def pond(wide_pond: SmallPond) -> SmallPond:
    """Eighty rows of five keys and three cities: sixty settled in three commits, twenty live."""
    for _ in range(3):
        wide_pond.fill(20)
        wide_pond.settle()
    wide_pond.fill(20, batch=4)
    return wide_pond


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 8, 9, 15, 16, 17, 100])
def test_a_primary_key_is_found_newest_first_in_both_halves(pond: SmallPond, limit: int) -> None:
    """K6"""
    for vid in ("vid-0", "vid-3", "nobody"):
        found = get(pond.halves, vid, limit=limit)
        assert found.schema.names == [*pond.definition.schema.names, "_streamlet", "_offset", "_ingest_time"]
        assert found.to_pylist() == newest(pond, lambda row, v=vid: row["vid"] == v, limit)  # type: ignore[misc]
        assert get(pond.halves, limit=limit, secondary={"vid": vid}).equals(found)


@pytest.mark.parametrize("limit", [1, 5, 7, 8, 26, 27, 100])
def test_a_secondary_key_is_found_over_all_streamlets(pond: SmallPond, limit: int) -> None:
    """K6"""
    found = get(pond.halves, limit=limit, secondary={"city": "Nice"}).to_pylist()
    assert found == newest(pond, lambda row: row["city"] == "Nice", limit)


def test_a_key_that_is_only_settled_or_only_live(pond: SmallPond) -> None:
    pond.append({"vid": "new", "city": "Brest", "n": 80})
    assert [row["n"] for row in get(pond.halves, "new").to_pylist()] == [80]
    pond.settle()
    assert [row["n"] for row in get(pond.halves, "new").to_pylist()] == [80]
    assert [row["n"] for row in get(pond.halves, secondary={"city": "Brest"}).to_pylist()] == [80]


def test_enough_live_records_leave_the_archive_alone(pond: SmallPond, monkeypatch: pytest.MonkeyPatch) -> None:
    settled = pond.archive.snapshot()
    monkeypatch.setattr(type(settled), "read", lambda *_: pytest.fail("an object was read"))
    assert get(pond.halves, "vid-1", limit=2).num_rows == 2
    monkeypatch.undo()
    assert get(pond.halves, "vid-1", limit=20).num_rows == 16


def test_older_objects_are_left_alone_when_newer_ones_are_enough(
    pond: SmallPond, monkeypatch: pytest.MonkeyPatch
) -> None:
    pond.settle()
    read = type(pond.archive.snapshot()).read
    opened: list[int] = []

    def counted(settled: Any, keep: Any, *how: Any) -> Any:
        opened.append(int(keep.sum()))
        return read(settled, keep, *how)

    monkeypatch.setattr(type(pond.archive.snapshot()), "read", counted)
    for lookup in ({"vid": "vid-1"}, {"city": "Nice"}):
        opened.clear()
        assert get(pond.halves, limit=1, secondary=lookup).num_rows == 1
        assert sum(opened) <= 2, "one settle of two days has two objects"


def test_a_settle_between_the_steps_of_a_lookup_loses_and_doubles_nothing(
    pond: SmallPond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3: before and after the log is asked, with and without the release, and with appends in between."""
    log, find, heads = pond.log, pond.log.find, pond.log.heads

    def meanwhile() -> None:
        pond.fill(5)
        pond.commit()

    for before, after in [(meanwhile, pond.release), (pond.settle, meanwhile), (int, meanwhile), (meanwhile, int)]:
        expected = newest(pond, lambda row: row["city"] == "Nice", 1_000)
        last = max(expected, key=lambda row: row["n"])["n"]

        def asked(*args: Any, before: Any = before, after: Any = after, **how: Any) -> list[pa.RecordBatch]:
            monkeypatch.undo()
            before()
            found = find(*args, **how)
            after()
            return found

        monkeypatch.setattr(log, "find", asked)
        found = get(pond.halves, limit=1_000, secondary={"city": "Nice"}).to_pylist()
        assert found == expected
        assert found[0]["n"] == last
        assert heads(7) == log.heads(7)


def test_objects_with_old_and_new_records_are_not_passed_over(pond: SmallPond) -> None:
    """Objects of two days overlap in their offsets: newest first holds between records, not between objects."""
    for n in range(80, 110):
        pond.append(reading(n) | {"vid": "vid-2"})
    for _ in range(2):
        pond.settle()
        for limit in (1, 2, 3, 7, 18, 40, 100):
            found = get(pond.halves, "vid-2", limit=limit).to_pylist()
            assert found == newest(pond, lambda row: row["vid"] == "vid-2", limit)
        pond.archive.compact()
        pond.fill(10)


def test_a_lookup_that_cannot_be_is_told_how(pond: SmallPond, tmp_path: Path) -> None:
    halves = pond.halves
    with pytest.raises(InvalidValue, match=r"get needs the value of a key(.|\n)*'vid'"):
        get(halves)
    with pytest.raises(InvalidValue, match=r"by a null city(.|\n)*IS NULL"):
        get(halves, secondary={"city": None})
    with pytest.raises(InvalidValue, match="takes one key"):
        get(halves, "vid-1", secondary={"city": "Nice"})
    with pytest.raises(InvalidValue, match="takes one key"):
        get(halves, secondary={"city": "Nice", "vid": "vid-1"})
    with pytest.raises(InvalidValue, match=r"'temp' is not a key of grid/meters(.|\n)*keys: vid, city"):
        get(halves, secondary={"temp": 3.0})
    with pytest.raises(InvalidValue, match=r"17(.|\n)*'vid'(.|\n)*string"):
        get(halves, 17)
    for limit in (0, -1, True, 10**9, None):
        with pytest.raises(InvalidValue, match="limit"):
            get(halves, "vid-1", limit=limit)  # type: ignore[arg-type]
    keyless = SmallPond(tmp_path / "other", define(keys=()))
    with pytest.raises(InvalidValue, match=r"no keys(.|\n)*scan"):
        get(keyless.halves, "x")


KEYS = [
    (pa.int8(), -5, "-5", "x"),
    (pa.int64(), 2**60, str(2**60), "1.5"),
    (pa.float32(), 0.1, "0.1", "x"),
    (pa.float64(), float("inf"), "inf", "x"),
    (pa.decimal128(10, 2), Decimal("3.50"), "3.5", "3.501"),
    (pa.bool_(), True, "true", "1"),
    (pa.string(), "Zürich 🌊", "Zürich 🌊", None),
    (pa.binary(), b"\x00\xff", "AP8=", "no base64!"),
    (pa.date32(), date(2024, 2, 29), "2024-02-29", "2023-02-29"),
    (
        pa.timestamp("us", "UTC"),
        datetime(2024, 2, 29, 12, 0, 0, 7, tzinfo=UTC),
        "2024-02-29T12:00:00.000007Z",
        "noon",
    ),
]


@pytest.mark.parametrize(("kind", "value", "text", "wrong"), KEYS, ids=[str(key[0]) for key in KEYS])
def test_keys_of_every_type_are_found_in_both_halves(
    tmp_path: Path, kind: pa.DataType, value: Any, text: str, wrong: str | None
) -> None:
    schema = pa.schema([("key", kind), ("n", pa.int64())])
    pond = SmallPond(tmp_path, define(streamlets=4, keys=["key"], schema=schema))
    pond.append({"key": value, "n": 0}, {"key": None, "n": 1})
    pond.settle()
    pond.append({"key": value, "n": 2})
    assert [row["n"] for row in get(pond.halves, value).to_pylist()] == [2, 0]
    assert [row["n"] for row in get(pond.halves, parse_value(text, schema, "key")).to_pylist()] == [2, 0]
    if wrong is not None:
        with pytest.raises(InvalidValue, match="key"):
            parse_value(wrong, schema, "key")
