"""Durations and sizes: written with a unit, refused without one."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidValue
from millpond.model.units import Bytes, Seconds, format_bytes, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60.0),
        ("1.5s", 1.5),
        ("10ms", 0.01),
        ("250us", 0.00025),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("1d", 86_400.0),
        ("2w", 1_209_600.0),
        (" 5 s ", 5.0),
        ("0s", 0.0),
        ("0.1s", 0.1),
        (timedelta(minutes=1, microseconds=1), 60.000001),
        (Seconds(2.5), 2.5),
        (Seconds("1.5m"), 90.0),
    ],
)
def test_durations(text: Any, seconds: float) -> None:
    assert parse_seconds(text) == seconds
    assert type(parse_seconds(text)) is float


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0B", 0),
        ("1B", 1),
        ("2KB", 2_000),
        ("128MB", 128_000_000),
        ("1.5GB", 1_500_000_000),
        ("1TB", 10**12),
        ("1KiB", 1_024),
        ("64MiB", 64 * 2**20),
        ("1GiB", 2**30),
        ("2TiB", 2**41),
        (" 8 MB ", 8_000_000),
        ("0.1B", 0),
        ("0.3KB", 300),
        (Bytes(7), 7),
        (Bytes("64MB"), 64_000_000),
    ],
)
def test_sizes(text: Any, count: int) -> None:
    assert parse_bytes(text) == count
    assert type(parse_bytes(text)) is int


@pytest.mark.parametrize("value", [60, 1.5, True, None, [], b"60s", math.nan])
def test_bare_numbers_have_no_unit(value: Any) -> None:
    for parse, what in ((parse_seconds, "duration"), (parse_bytes, "size")):
        with pytest.raises(InvalidValue) as failure:
            parse(value)
        assert failure.value.message == f"{value!r} is not a {what}: it has no unit"
        assert failure.value.hint.startswith("write a number and a unit, e.g. '")


@pytest.mark.parametrize(
    "text", ["", "s", "60", "-5s", "1e3s", "1,5s", "60s1", "60 s s", "٦٠s", "0x10s", "1.s", ".5s", "inf"]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(InvalidValue) as failure:
        parse_seconds(text)
    assert failure.value.message == f"{text!r} is not a duration"
    assert failure.value.hint == "write a number and a unit, e.g. '60s'; units: us, ms, s, m, min, h, d, w"
    with pytest.raises(InvalidValue, match="is not a size") as failure:
        parse_bytes(text)
    assert failure.value.hint == "write a number and a unit, e.g. '128MB'; units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"


@pytest.mark.parametrize(
    ("text", "unit"), [("5 parsecs", "parsecs"), ("5S", "S"), ("5MB", "MB"), ("5M", "M"), ("5sec", "sec")]
)
def test_units_of_time_that_do_not_exist(text: str, unit: str) -> None:
    with pytest.raises(InvalidValue) as failure:
        parse_seconds(text)
    assert failure.value.message == f"{text!r}: no unit of time {unit!r}"
    assert "min" in failure.value.hint


@pytest.mark.parametrize(
    ("text", "unit"), [("5mb", "mb"), ("5kB", "kB"), ("5s", "s"), ("5PB", "PB"), ("5bytes", "bytes")]
)
def test_units_of_size_that_do_not_exist(text: str, unit: str) -> None:
    with pytest.raises(InvalidValue) as failure:
        parse_bytes(text)
    assert failure.value.message == f"{text!r}: no unit of size {unit!r}"
    assert "KiB" in failure.value.hint


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, True, None, "x", "9" * 400 + "s"])
def test_seconds_are_a_number_from_zero_on(value: Any) -> None:
    with pytest.raises(InvalidValue):
        Seconds(value)


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "x", "-1MB"])
def test_bytes_are_a_whole_number_from_zero_on(value: Any) -> None:
    with pytest.raises(InvalidValue):
        Bytes(value)


def test_durations_do_not_run_backwards() -> None:
    with pytest.raises(InvalidValue, match=r"-1\.0 is not a number of seconds"):
        parse_seconds(timedelta(seconds=-1))


def test_typed_values_are_numbers() -> None:
    assert Seconds(1.5) * 2 == 3.0
    assert Bytes("1KB") + 1 == 1_001
    assert Bytes(Bytes(5)) == 5


@given(st.integers(0, 10**9), st.sampled_from(["us", "ms", "s", "m", "h", "d", "w"]))
def test_whole_numbers_are_exact(count: int, unit: str) -> None:
    per_unit = {
        "us": 1,
        "ms": 10**3,
        "s": 10**6,
        "m": 60 * 10**6,
        "h": 3600 * 10**6,
        "d": 86_400 * 10**6,
        "w": 604_800 * 10**6,
    }
    assert parse_seconds(f"{count}{unit}") == count * per_unit[unit] / 10**6


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1_000, "1.0 KB"),
        (1_536, "1.5 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (999_999, "1.0 MB"),
        (128_000_000, "128.0 MB"),
        (10**12 - 1, "1.0 TB"),
        (5 * 10**15, "5000.0 TB"),
        (-1_500, "-1.5 KB"),
    ],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert format_bytes(count) == text
