"""Rows: whatever is accepted becomes Arrow unchanged, and what is not is refused with its place and its value."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from millpond.errors import Damaged, InvalidRecord, InvalidValue
from millpond.log.piece import upgrade
from millpond.model.hashing import hash_column, hash_value
from millpond.model.rows import RowCodec, codec_of
from millpond.model.schema import TIMESTAMP
from millpond.testing import strategies as ponds

METERS = pa.schema(
    [
        pa.field("vid", pa.string(), nullable=False),
        pa.field("temp", pa.float64()),
        pa.field("small", pa.float32()),
        pa.field("count", pa.int16()),
        pa.field("at", TIMESTAMP),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(5, 2)),
        pa.field("ok", pa.bool_()),
        pa.field("blob", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("pos", pa.struct([pa.field("lat", pa.float64(), nullable=False), ("name", pa.string())])),
        pa.field("attrs", pa.map_(pa.string(), pa.int8())),
    ]
)


def through(codec: RowCodec, rows: list[Any]) -> pa.RecordBatch:
    return codec.decode([codec.encode(codec.validate(rows))])


def one(value: Any, column: str, schema: pa.Schema = METERS) -> Any:
    """What becomes of one value in a row."""
    row = {"vid": "m1", column: value}
    return through(codec_of(schema), [row]).to_pylist()[0][column]


@given(st.data())
def test_encoded_rows_decode_to_what_arrow_would_have_made_of_them(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    rows = data.draw(ponds.rows(schema))
    codec = RowCodec(schema)
    checked = codec.validate(rows)
    direct = pa.RecordBatch.from_pylist(rows, schema=schema)
    ponds.assert_same_rows(codec.decode([codec.encode(checked)]), direct)
    ponds.assert_same_rows(codec.to_batch(checked), direct)
    ponds.assert_same_rows(codec.decode([codec.encode([row]) for row in checked]), direct)
    for row in rows:
        assert codec.validate_one(row) == codec.validate([row])[0] or row != row or _has_nan(row)


def _has_nan(value: Any) -> bool:
    return "nan" in repr(ponds.comparable(value))


@given(st.data())
def test_columns_that_may_be_null_may_be_left_out(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    rows = data.draw(ponds.rows(schema))
    sparse = [{name: value for name, value in row.items() if value is not None} for row in rows]
    ponds.assert_same_rows(through(RowCodec(schema), sparse), pa.RecordBatch.from_pylist(rows, schema=schema))


@given(st.data())
def test_rows_of_an_older_schema_have_null_in_newer_columns(data: st.DataObject) -> None:
    old = data.draw(ponds.schemas(most=3))
    rows = data.draw(ponds.rows(old, least=1))
    new = pa.schema([*old, pa.field("added", data.draw(ponds.types())), pa.field("more", pa.int8())])
    blob = RowCodec(old).encode(RowCodec(old).validate(rows))
    found = upgrade(RowCodec(old).decode([blob]), new)
    ponds.assert_same_rows(found, pa.RecordBatch.from_pylist(rows, schema=new))


def test_no_blobs_are_no_rows() -> None:
    assert codec_of(METERS).decode([]).equals(pa.RecordBatch.from_pylist([], schema=METERS))


def test_the_example_in_the_docs_of_the_format() -> None:
    """Journals keep these bytes: a change here is a change of format."""
    codec = RowCodec(pa.schema([("vid", pa.string()), ("temp", pa.float64()), ("date", TIMESTAMP)]))
    row = codec.validate_one({"vid": "m1", "date": datetime(2024, 1, 1, tzinfo=UTC)})
    assert codec.encode([row]).hex(" ") == "91 93 a2 6d 31 c0 cf 00 06 0d d7 10 21 20 00"


def test_every_type_has_one_encoded_form() -> None:
    row = {
        "vid": "m",
        "temp": 1.5,
        "small": 0.1,
        "count": -3,
        "at": datetime(1970, 1, 1, 0, 0, 1),
        "day": date(1970, 1, 3),
        "price": Decimal("1.5"),
        "ok": True,
        "blob": b"\xff",
        "tags": ["a", None],
        "pos": {"lat": 1.0},
        "attrs": {"x": 1},
    }
    nearest = float(np.float32(0.1))
    expected = (
        "m",
        1.5,
        nearest,
        -3,
        1_000_000,
        2,
        Decimal("1.50"),
        True,
        b"\xff",
        ["a", None],
        (1.0, None),
        [("x", 1)],
    )
    assert codec_of(METERS).validate_one(row) == expected


def test_a_thousand_columns() -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(1000)])
    batch = through(RowCodec(schema), [{"c7": 7, "c999": 9}])
    assert batch.column("c7").to_pylist() == [7]
    assert batch.column("c999").to_pylist() == [9]


def test_names_that_are_not_python_names() -> None:
    schema = pa.schema([("class", pa.int8()), ("a-b/c", pa.int8()), ("c0", pa.int8()), ("é", pa.int8())])
    row = {"class": 1, "a-b/c": 2, "c0": 3, "é": 4}
    assert through(RowCodec(schema), [row]).to_pylist() == [row]


@pytest.mark.parametrize(
    ("column", "value", "becomes"),
    [
        ("temp", 3, 3.0),
        ("temp", math.inf, math.inf),
        ("temp", Decimal("1.5"), 1.5),
        ("small", Decimal("1.5"), 1.5),
        ("small", 16777217, 16777216.0),
        ("temp", np.float64(2.5), 2.5),
        ("temp", np.float32(2.5), 2.5),
        ("temp", np.int64(2), 2.0),
        ("small", 0.1, float(np.float32(0.1))),
        ("count", np.int8(-5), -5),
        ("count", enum.IntEnum("Level", ["LOW"]).LOW, 1),  # type: ignore[attr-defined]
        ("vid", np.str_("m2"), "m2"),
        ("vid", enum.StrEnum("City", {"NICE": "Nice"}).NICE, "Nice"),  # type: ignore[attr-defined]
        ("ok", np.True_, True),
        ("blob", bytearray(b"ab"), b"ab"),
        ("blob", memoryview(b"ab"), b"ab"),
        ("blob", np.bytes_(b"ab"), b"ab"),
        ("price", 7, Decimal("7.00")),
        ("price", Decimal("1.500"), Decimal("1.50")),
        ("price", Decimal("1E+2"), Decimal("100.00")),
        ("price", Decimal("-0"), Decimal("0.00")),
        ("tags", ("a", "b"), ["a", "b"]),
        ("tags", np.array(["a", "b"]), ["a", "b"]),
        ("attrs", {"a": 1}, [("a", 1)]),
        ("attrs", [("a", 1), ("b", None)], [("a", 1), ("b", None)]),
        ("attrs", [["a", 1]], [("a", 1)]),
        ("attrs", {}, []),
        ("pos", {"lat": 1}, {"lat": 1.0, "name": None}),
        ("pos", MappingProxyType({"lat": np.float64(1)}), {"lat": 1.0, "name": None}),
        ("at", pd.NaT, None),
        ("count", pd.NA, None),
    ],
)
def test_what_is_taken_for_a_value(column: str, value: Any, becomes: Any) -> None:
    assert one(value, column) == becomes


UTC_NOON = datetime(2024, 5, 1, 12, 0, 0, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        UTC_NOON,
        UTC_NOON.replace(tzinfo=None),
        UTC_NOON.astimezone(timezone(timedelta(hours=-3, minutes=-30))),
        pd.Timestamp(UTC_NOON),
        pd.Timestamp(UTC_NOON).tz_convert("Europe/Paris"),
        np.datetime64("2024-05-01T12:00:00.000017"),
        np.datetime64("2024-05-01T12:00:00.000017000", "ns"),
    ],
)
def test_moments_are_taken_in_any_time_zone_and_without_one_as_utc(value: Any) -> None:
    assert one(value, "at") == UTC_NOON


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("vid", None, "None, but the column may not be null"),
        ("vid", 17, "17 is not a string: expected str, got int"),
        ("vid", b"m", "b'm' is not a string: expected str, got bytes"),
        ("vid", "a\ud800", "a lone surrogate at 1 is not Unicode text"),
        ("temp", "1.5", "'1.5' is not a double: expected float | null, got str"),
        ("temp", True, "True is not a double: expected float | null, got bool"),
        ("temp", 10**400, "is not a double: number out of range"),
        ("small", 1e39, "1e+39 is not a float: too large for a float32"),
        ("small", "x", "'x' is not a float: expected a float, got str"),
        ("count", 2**15, "32768 is not an int16: expected int <= 32767"),
        ("count", -(2**15) - 1, "-32769 is not an int16: expected int >= -32768"),
        ("count", 2**80, "is not an int16: expected int <= 32767"),
        ("count", True, "True is not an int16: expected int | null, got bool"),
        ("count", np.True_, "np.True_ is not an int16"),
        ("count", 1.0, "1.0 is not an int16: expected int | null, got float"),
        ("count", "1", "'1' is not an int16"),
        ("at", "2024-01-01", "'2024-01-01' is not a timestamp[us, tz=UTC]: expected a datetime, got str"),
        ("at", date(2024, 1, 1), "expected a datetime, got date"),
        ("at", 1_700_000_000, "expected a datetime, got int"),
        ("at", pd.Timestamp(1, unit="ns"), "not a whole number of microseconds"),
        ("at", np.datetime64(1, "ns"), "expected a datetime, got datetime64"),
        ("at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "outside the years 1 to 9999 in UTC"),
        ("at", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), "outside the years 1 to 9999 in UTC"),
        ("day", datetime(2024, 1, 1), "expected a date, got datetime"),
        ("day", "2024-01-01", "expected a date, got str"),
        ("price", 1.5, "1.5 is not a decimal128(5, 2): expected a Decimal, got float"),
        ("price", True, "expected a Decimal, got bool"),
        ("price", "1.5", "expected a Decimal, got str"),
        ("price", Decimal("1.555"), "does not fit decimal128(5, 2) exactly"),
        ("price", Decimal("1000"), "does not fit decimal128(5, 2) exactly"),
        ("price", Decimal("1E+1000000"), "does not fit decimal128(5, 2) exactly"),
        ("price", Decimal("NaN"), "not a finite number"),
        ("price", Decimal("-Infinity"), "not a finite number"),
        ("ok", 1, "1 is not a bool: expected bool | null, got int"),
        ("blob", "text", "'text' is not a binary: expected bytes | null, got str"),
        ("tags", "abc", "'abc' is not a list<item: string>: expected array | null, got str"),
        ("tags", ["a", 1], "['a', 1] is not a list<item: string>: expected str | null, got int at [1]"),
        ("tags", ["a", "\udfff"], "a lone surrogate at 0 is not Unicode text"),
        ("pos", {"name": "x"}, "object missing required field lat"),
        ("pos", {"lat": None}, "expected float, got null at lat"),
        ("pos", {"lat": 1.0, "lon": 2.0}, "object contains unknown field lon"),
        ("pos", [1.0, "x"], "expected a dict, got list"),
        ("attrs", {"a": 300}, "expected int <= 127 at [0][1]"),
        ("attrs", {1: 1}, "expected str, got int at [0][0]"),
        ("attrs", {None: 1}, "expected str, got null at [0][0]"),
        ("attrs", [("a",)], "expected array of length 2, got 1 at [0]"),
        ("attrs", 5, "expected a dict or a list of pairs, got int"),
    ],
)
def test_what_is_refused_is_named(column: str, value: Any, reason: str) -> None:
    good = {"vid": "m1"}
    for count in (0, 3):
        with pytest.raises(InvalidRecord) as failure:
            through(codec_of(METERS), [good] * count + [{"vid": "m1", column: value}, good])
        message = failure.value.message
        assert message.startswith(f"row {count}, column {column!r}: "), message
        assert reason in message
        assert failure.value.hint


def test_the_same_is_refused_on_the_way_to_arrow() -> None:
    codec = codec_of(METERS)
    rows = codec.validate([{"vid": "a"}, {"vid": "\ud800"}])
    with pytest.raises(InvalidRecord, match=r"row 1, column 'vid'.*lone surrogate"):
        codec.to_batch(rows)


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        ({"temp": 1.0}, "row 0, column 'vid': missing, and the column may not be null", "append again"),
        ({"vid": "a", "tmep": 1.0}, "row 0, column 'tmep': the stream has no such column", "did you mean 'temp'?"),
        ({"vid": "a", 5: 1.0}, "row 0, column 5: the stream has no such column", "columns: vid, temp"),
        ({"vid": "a", "_offset": 1}, "row 0, column '_offset': set by Millpond", "leave out _streamlet, _offset"),
        ("text", "row 0 is not a dict: 'text'", "a row is a dict"),
        (None, "row 0 is not a dict: None", "a row is a dict"),
        ([("vid", "a")], "row 0 is not a dict: [('vid', 'a')]", "a row is a dict"),
    ],
)
def test_rows_of_another_shape_are_named(row: Any, message: str, hint: str) -> None:
    for check in (codec_of(METERS).validate_one, lambda found: codec_of(METERS).validate([found])):
        with pytest.raises(InvalidRecord) as failure:
            check(row)
        assert failure.value.message.startswith(message)
        assert hint in failure.value.hint


def test_long_values_are_cut() -> None:
    with pytest.raises(InvalidRecord) as failure:
        codec_of(METERS).validate([{"vid": "a", "temp": "x" * 10_000}])
    assert "x" * 70 in failure.value.message
    assert len(failure.value.message) < 200


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        return iter(["vid"])

    def __len__(self) -> int:
        return 1


def holding_itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "row",
    [Unshowable(), Unreadable(), {"vid": Unshowable()}, {"vid": "a", "tags": holding_itself()}, {"vid": object()}],
)
def test_objects_that_cannot_even_be_shown_are_refused_like_others(row: Any) -> None:
    with pytest.raises(InvalidRecord):
        codec_of(METERS).validate([row])


def test_mappings_of_any_kind_are_rows() -> None:
    rows = [collections.OrderedDict(vid="a"), collections.UserDict(vid="b"), MappingProxyType({"vid": "c"})]
    assert through(codec_of(METERS), rows).column("vid").to_pylist() == ["a", "b", "c"]


garbage = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.binary(max_size=5)
    | st.decimals()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.complex_numbers()
    | st.sampled_from([object(), int, pd.NaT, pd.NA, np.float32(1), np.datetime64(1, "ns"), pd.Timestamp(1)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=6,
)


@given(st.data())
def test_garbage_is_taken_whole_or_refused_with_an_error_of_ours(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas(most=3))
    keys = st.sampled_from([*schema.names, "other"])
    rows = data.draw(st.lists(garbage | st.dictionaries(keys, garbage, max_size=4), min_size=1, max_size=4))
    codec = RowCodec(schema)
    try:
        checked = codec.validate(rows)
        blob = codec.encode(checked)
    except InvalidRecord as error:
        event(error.message.split(":")[-1])
        return
    ponds.assert_same_rows(codec.decode([blob]), codec.to_batch(checked))


@given(st.data())
def test_one_wrong_value_is_found_wherever_it_is(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    rows = data.draw(ponds.rows(schema, least=1, most=5))
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(schema.names))
    rows[at] = rows[at] | {column: object()}
    with pytest.raises(InvalidRecord) as failure:
        RowCodec(schema).validate(rows)
    assert failure.value.message.startswith(f"row {at}, column {column!r}: <object object")


def test_blobs_that_are_not_rows_are_damage() -> None:
    with pytest.raises(Damaged):
        codec_of(METERS).decode([b"\x91\x91\x01"])
    with pytest.raises(Damaged):
        codec_of(METERS).decode([b"\xc1"])


@given(st.data())
def test_a_value_to_look_for_is_brought_into_the_form_rows_have(data: st.DataObject) -> None:
    kind = data.draw(ponds.key_types())
    value = data.draw(ponds.values(kind))
    codec = RowCodec(pa.schema([("key", kind)]))
    plain = codec.plain("key", value)
    assert hash_value(plain) == hash_column(pa.array([value], kind))[0]
    assert ponds.comparable(plain) == ponds.comparable(codec.validate([{"key": value}])[0][codec.column("key")])


def test_a_value_that_cannot_be_in_a_column_cannot_be_looked_for() -> None:
    assert codec_of(METERS).plain("vid", None) is None
    assert codec_of(METERS).plain("count", np.int64(3)) == 3
    with pytest.raises(InvalidValue, match="17 cannot be in column 'vid'") as failure:
        codec_of(METERS).plain("vid", 17)
    assert failure.value.hint == "it is string"


def test_codecs_are_built_once_per_schema() -> None:
    same = pa.schema(list(METERS))
    assert codec_of(METERS) is codec_of(same)
    assert codec_of(METERS) is not codec_of(METERS.remove(0))
