"""Hashes of keys: one value by itself and a whole column must agree, now and in every later version."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.hashing import NULL_HASH, hash_bytes, hash_column, hash_value, streamlet_of, streamlets_of
from millpond.model.rows import codec_of
from millpond.model.schema import TIMESTAMP
from millpond.testing import strategies as millpond_strategies


@given(st.data())
def test_a_column_hashes_like_its_values(data: st.DataObject) -> None:
    """K3: routing (by column) and `get` (by value) must name the same streamlet, for every type a key may have."""
    kind = data.draw(millpond_strategies.key_types())
    values = data.draw(st.lists(st.none() | millpond_strategies.values(kind), max_size=30))
    column = pa.array(values, kind)
    assert hash_column(column).tolist() == [hash_value(value) for value in column.to_pylist()]
    start = data.draw(st.integers(0, len(values)))
    assert hash_column(column.slice(start)).tolist() == [hash_value(value) for value in column.to_pylist()[start:]]


@given(st.data())
def test_a_value_as_rows_hold_it_hashes_like_the_value(data: st.DataObject) -> None:
    """Single rows are routed by their plain form (microseconds, days, nearest float32)."""
    kind = data.draw(millpond_strategies.key_types())
    value = data.draw(millpond_strategies.values(kind))
    plain = codec_of(pa.schema([("key", kind)])).plain("key", value)
    assert hash_value(plain) == hash_column(pa.array([value], kind))[0]


@given(st.lists(st.binary(max_size=40), max_size=60))
def test_bytes_of_mixed_lengths(values: list[bytes]) -> None:
    assert hash_column(pa.array(values, pa.binary())).tolist() == [hash_bytes(value) for value in values]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 40])
def test_strings_of_one_length(length: int) -> None:
    values = [f"{number:0{length}d}"[:length] if length else "" for number in range(50)]
    assert hash_column(pa.array(values)).tolist() == [hash_value(value) for value in values]


def test_a_column_longer_than_one_step() -> None:
    values = [f"meter-{number}" for number in range(40_000)]
    hashes = hash_column(pa.array(values))
    assert [int(hashes[at]) for at in (0, 16_383, 16_384, 39_999)] == [
        hash_value(values[at]) for at in (0, 16_383, 16_384, 39_999)
    ]
    assert len(set(hashes.tolist())) == len(values)


def test_chunks_hash_like_one_array() -> None:
    chunked = pa.chunked_array([["a", "b"], [], [None, "c"]], pa.string())
    assert hash_column(chunked).tolist() == [hash_value(value) for value in ("a", "b", None, "c")]


def test_data_at_the_very_end_of_its_buffer() -> None:
    """The word at the last byte is read whole; a buffer without spare bytes must not be read past its end."""
    offsets = pa.py_buffer(np.array([0, 3, 4], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcd")])
    assert hash_column(column).tolist() == [hash_value("abc"), hash_value("d")]


def test_what_lies_under_a_null_does_not_matter() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), offsets, pa.py_buffer(b"abcxyz")])
    assert column.to_pylist() == ["abc", None]
    assert hash_column(column).tolist() == [hash_value("abc"), NULL_HASH]


@pytest.mark.parametrize("number", [0, 1, -1, 17, -128, 127])
def test_integers_hash_alike_whatever_their_width(number: int) -> None:
    widths = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    assert {int(hash_column(pa.array([number], kind))[0]) for kind in widths} == {hash_value(number)}


@pytest.mark.parametrize("number", [0.0, 1.5, -2.0, math.inf, -math.inf, math.nan])
def test_floats_hash_alike_whatever_their_width(number: float) -> None:
    widths = (pa.float32(), pa.float64())
    assert {int(hash_column(pa.array([number], kind))[0]) for kind in widths} == {hash_value(number)}


def test_equal_floats_hash_alike() -> None:
    assert hash_value(-0.0) == hash_value(0.0)
    other_nan = np.frombuffer(np.uint64(0xFFF8_0000_0000_0001).tobytes(), np.float64)
    assert hash_value(float(other_nan[0])) == hash_value(math.nan) == hash_column(pa.array(other_nan))[0]
    assert hash_column(pa.array([-0.0], pa.float32())).tolist() == [hash_value(0.0)]


@pytest.mark.parametrize(
    "values",
    [
        (Decimal("1.5"), Decimal("1.50"), Decimal("1.500")),
        (Decimal("0"), Decimal("-0.00"), Decimal("0E+3")),
        (Decimal("1E+3"), Decimal("1000"), Decimal("1000.0")),
        (Decimal("-12.30"), Decimal("-12.3")),
    ],
)
def test_equal_decimals_hash_alike_whatever_their_scale(values: tuple[Decimal, ...]) -> None:
    columns = [pa.array([value], pa.decimal128(20, scale)) for value in values for scale in (3, 5)]
    assert {int(hash_column(column)[0]) for column in columns} | {hash_value(v) for v in values} == {
        hash_value(values[0])
    }


def test_equal_moments_hash_alike_whatever_their_time_zone() -> None:
    moment = datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    naive = moment.replace(tzinfo=None)
    column = hash_column(pa.array([moment], TIMESTAMP))
    assert {hash_value(moment), hash_value(elsewhere), hash_value(naive), int(column[0])} == {hash_value(moment)}


@pytest.mark.parametrize(
    "values",
    [
        ["", "\0", "\0\0", "a", "a\0", "aa", "a" * 8, "a" * 8 + "\0", "a" * 9, None],
        [0, 1, -1, 2**31, 2**63 - 1, -(2**63), None],
        [0.0, 0.5, -0.5, 5e-324, math.inf, -math.inf, math.nan, None],
        [Decimal("0.1"), Decimal("1"), Decimal("10"), Decimal("-1"), None],
    ],
)
def test_values_of_a_type_that_differ_a_little_hash_apart(values: list[Any]) -> None:
    assert len({hash_value(value) for value in values}) == len(values)


def test_one_flipped_bit_changes_half_of_the_hash() -> None:
    key = b"meter-00000017"
    flipped = []
    for bit in range(len(key) * 8):
        other = bytearray(key)
        other[bit // 8] ^= 1 << bit % 8
        flipped.append((hash_bytes(key) ^ hash_bytes(bytes(other))).bit_count())
    assert 28 < sum(flipped) / len(flipped) < 36
    assert min(flipped) > 10


def test_hashes_never_change() -> None:
    """Journals, key indexes and the choice of streamlets outlive a version: these numbers are part of the format."""
    known = {
        "": 0x0000000000000000,
        "meter-1": 0x040881EDC53C16EA,
        "grid/meters/00000017": 0xDD9995FCD18AC6D2,
        0: 0x0000000000000000,
        17: 0xB66A80F74D0EBA06,
        -1: 0xE8D79B1DB302ED39,
        2.5: 0xA5710B18308DE6E7,
        Decimal("12.50"): 0x363E451B193EB515,
        date(2024, 2, 29): 0xA05B99BC3B49A3A5,
        datetime(2024, 2, 29, 12, tzinfo=UTC): 0xCDAC75CC07AA97A9,
    }
    assert {value: hash_value(value) for value in known} == known
    assert hash_value(None) == NULL_HASH == 0x9E3779B97F4A7C15


def test_no_hash_for_what_cannot_be_a_key() -> None:
    with pytest.raises(TypeError, match="no hash for a list"):
        hash_value([1])


@given(st.lists(st.text(max_size=12), min_size=1, max_size=50), st.integers(1, 1024))
def test_a_key_has_one_streamlet(keys: list[str], streamlets: int) -> None:
    """K2: ranges of the key's hash, the same by column and by value."""
    found = streamlets_of(hash_column(pa.array(keys)), streamlets).tolist()
    assert found == [streamlet_of(key, streamlets) for key in keys]
    assert all(0 <= number < streamlets for number in found)


def test_streamlets_are_ranges_of_the_hash() -> None:
    """K2: a streamlet is one range, so that two of them can be told apart by one comparison."""
    edges = np.array([0, 2**62 - 1, 2**62, 2**63, 2**64 - 1], np.uint64)
    assert streamlets_of(edges, 4).tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("streamlets", [2, 4, 7, 100])
def test_keys_are_spread_evenly(streamlets: int) -> None:
    hashes = hash_column(pa.array([f"meter-{number}" for number in range(100_000)]))
    counts = np.bincount(streamlets_of(hashes, streamlets).astype(np.int64), minlength=streamlets)
    fair = 100_000 / streamlets
    # Five standard deviations of a fair draw.
    assert np.abs(counts - fair).max() < 5 * math.sqrt(fair)
