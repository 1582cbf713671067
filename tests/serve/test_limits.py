"""Rates: what a bucket lets through, what it tells the refused, and that it stays small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import Backpressure, InvalidValue, MemoryFull, TooManyRequests
from millpond.model.units import Seconds
from millpond.serve.limits import RateLimiter
from millpond.testing import ManualClock


def let_through(limiter: RateLimiter, caller: str, attempts: int) -> int:
    passed = 0
    for _ in range(attempts):
        try:
            limiter.check(caller)
            passed += 1
        except TooManyRequests:
            pass
    return passed


def test_a_burst_then_the_rate() -> None:
    clock = ManualClock()
    limiter = RateLimiter(10, 5, clock=clock)
    assert let_through(limiter, "a", 20) == 5
    clock.advance("100ms")
    assert let_through(limiter, "a", 20) == 1
    clock.advance("300ms")
    assert let_through(limiter, "a", 20) == 3
    clock.advance("1h")
    assert let_through(limiter, "a", 20) == 5


def test_callers_do_not_pay_for_each_other() -> None:
    limiter = RateLimiter(1, 2, clock=ManualClock())
    assert let_through(limiter, "a", 10) == 2
    assert let_through(limiter, "b", 10) == 2


def test_a_burst_of_nought_is_a_seconds_worth() -> None:
    assert let_through(RateLimiter(7, clock=ManualClock()), "a", 100) == 7
    assert let_through(RateLimiter(0.25, clock=ManualClock()), "a", 100) == 1


def test_no_rate_is_no_bound() -> None:
    assert let_through(RateLimiter(0, clock=ManualClock()), "a", 10_000) == 10_000


def test_the_refused_are_told_how_long_to_wait_and_then_it_works() -> None:
    clock = ManualClock()
    limiter = RateLimiter(0.5, 1, clock=clock)
    limiter.check("a")
    clock.advance("500ms")
    with pytest.raises(TooManyRequests) as caught:
        limiter.check("a")
    assert caught.value.retry_after_seconds == pytest.approx(1.5)
    clock.advance("1500ms")
    limiter.check("a")


def test_every_backpressure_says_when_to_try_again() -> None:
    assert Backpressure("x").retry_after_seconds == 1.0
    assert MemoryFull("x", hint="y", retry_after_seconds=3).retry_after_seconds == 3


def test_it_remembers_only_so_many_callers() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1, 1, callers_max=100, clock=clock)
    for number in range(10_000):
        limiter.check(f"caller-{number}")
    assert len(limiter._full_at) == 100
    assert let_through(limiter, "caller-9999", 1) == 0


def test_threads_together_get_no_more_than_the_burst() -> None:
    limiter = RateLimiter(1, 500, clock=ManualClock())
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: let_through(limiter, "a", 200), range(8))) == 500


@given(
    rate=st.floats(0.1, 1_000),
    burst=st.integers(1, 50),
    pauses=st.lists(st.floats(0, 2), min_size=1, max_size=60),
)
def test_no_stretch_of_time_gets_more_than_burst_and_rate(rate: float, burst: int, pauses: list[float]) -> None:
    clock = ManualClock()
    limiter = RateLimiter(rate, burst, clock=clock)
    passed: list[float] = []
    for pause in pauses:
        clock.advance(Seconds(pause))
        passed += [clock.monotonic_seconds()] * let_through(limiter, "a", 3)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + rate * (passed[last] - passed[first]) + 1e-3


@pytest.mark.parametrize(("rate", "burst"), [(-1, 1), (float("nan"), 1), (float("inf"), 1), (1, -1)])
def test_a_rate_that_is_none_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(InvalidValue):
        RateLimiter(rate, burst)
