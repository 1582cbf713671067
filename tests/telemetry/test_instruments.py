"""Instruments count exactly, whoever looks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import DiskFull
from millpond.telemetry import (
    KINDS_MAX,
    OTHER,
    DoorCounters,
    Histogram,
    ReadTelemetry,
    RequestKind,
    SharedHistogram,
    Tally,
)

BOUNDS = (0.5, 1.0, 2.0)
values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 1e6]), max_size=60)


def test_a_value_on_a_bound_is_within_it() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.5, 0.6, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.read() == (BOUNDS, (1, 2, 3, 4), pytest.approx(5.2))


@given(values)
def test_many_values_count_as_each_of_them(seen: list[float]) -> None:
    one, many = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in seen:
        one.observe(value)
    many.observe_many(np.array(seen, dtype=np.float64))
    assert many.counts == one.counts
    assert many.sum == pytest.approx(one.sum)
    assert many.read().total == len(seen)


@given(values, st.integers(0, 5))
def test_values_with_counts_count_as_often(seen: list[float], often: int) -> None:
    one, many = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in seen:
        one.observe(value, often)
    many.observe_many(np.array(seen, dtype=np.float64), np.full(len(seen), often))
    assert many.counts == one.counts
    assert many.sum == pytest.approx(one.sum)


def test_one_value_so_many_times() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(1.5, 10)
    assert histogram.read().cumulative == (0, 0, 10, 10)
    assert histogram.sum == 15.0


def in_threads(count: int, work: object) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_several_threads_observe_is_all_there() -> None:
    shared, tally, doors = SharedHistogram(BOUNDS), Tally(), DoorCounters()

    def work() -> None:
        for _ in range(2_000):
            shared.observe(1.0)
            tally.add("full")
            doors.request("rest", "/v1", "GET", 200, 1.0, 3, 5)

    in_threads(4, work)
    assert shared.read().total == 8_000
    assert tally.read() == {"full": 8_000}
    assert doors.requests() == [(RequestKind("rest", "/v1", "GET", 200), 8_000, 24_000, 40_000)]
    assert doors.seconds()["rest", "/v1"].total == 8_000


def test_errors_are_counted_by_their_code() -> None:
    tally = Tally()
    tally.error(DiskFull("full"))
    tally.error(RuntimeError("a bug"))
    assert tally.read() == {"disk-full": 1, "internal": 1}


def test_a_route_has_one_duration_whatever_the_status() -> None:
    doors = DoorCounters()
    doors.request("rest", "/v1/status", "GET", 200, 0.001)
    doors.request("rest", "/v1/status", "GET", 403, 0.003)
    doors.request("flight", "DoGet", "", "ok", 0.5)
    assert {place: reading.total for place, reading in doors.seconds().items()} == {
        ("rest", "/v1/status"): 2,
        ("flight", "DoGet"): 1,
    }
    assert len(doors.requests()) == 3


def test_kinds_of_requests_and_words_are_bounded() -> None:
    doors, tally = DoorCounters(), Tally()
    for number in range(KINDS_MAX + 50):
        doors.request("rest", f"/{number}", "GET", 200, 0.001)
        tally.add(str(number))
    assert len(doors.requests()) == KINDS_MAX + 1
    assert sum(each.answered for each in doors.requests()) == KINDS_MAX + 50
    assert [each.answered for each in doors.requests() if each.kind.route == OTHER] == [50]
    assert tally.read()[OTHER] == 50
    assert len(tally.read()) == KINDS_MAX + 1


def test_connections_are_counted_when_somebody_asks() -> None:
    doors, there = DoorCounters(), [1, 2, 3]
    doors.watch("rest", lambda: len(there))
    assert doors.connections() == {"rest": 3}
    there.pop()
    assert doors.connections() == {"rest": 2}


class Someone:
    closed = False


def test_a_follower_counts_until_it_is_closed_or_forgotten() -> None:
    reading = ReadTelemetry()
    first, second = Someone(), Someone()
    reading.follow(first)
    reading.follow(second)
    assert reading.followers == 2
    first.closed = True
    assert reading.followers == 1
    del second
    assert reading.followers == 0
