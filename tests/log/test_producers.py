"""Retries are recognised, stale sequences are refused, and memory of producers is bounded (I2, I8)."""

from __future__ import annotations

import pytest

from millpond.errors import StaleSequence
from millpond.log.producers import WINDOW, Producers
from millpond.model.offsets import OffsetRange


def test_a_retry_gets_the_first_offsets() -> None:
    producers = Producers(10)
    assert producers.find("p", 7) is None
    producers.record("p", 7, {0: OffsetRange(0, 5)})
    assert producers.find("p", 7) == {0: OffsetRange(0, 5)}
    assert producers.find("p", 8) is None
    assert producers.find("q", 7) is None


def test_a_sequence_that_nobody_remembers_is_refused_not_guessed() -> None:
    producers = Producers(10)
    for sequence in range(WINDOW + 5):
        producers.record("p", sequence, {0: OffsetRange(sequence, sequence + 1)})
    assert producers.find("p", 5) == {0: OffsetRange(5, 6)}
    with pytest.raises(StaleSequence, match="sequence 4 after 36"):
        producers.find("p", 4)


def test_a_sequence_left_out_is_refused_later() -> None:
    producers = Producers(10)
    producers.record("p", 1, {0: OffsetRange(0, 1)})
    producers.record("p", 3, {0: OffsetRange(1, 2)})
    with pytest.raises(StaleSequence):
        producers.find("p", 2)


def test_the_longest_idle_producer_is_forgotten_first() -> None:
    producers = Producers(2)
    for name in ("a", "b", "a", "c"):
        producers.record(name, len(name), {0: OffsetRange(0, 1)})
    assert producers.find("a", 1) is not None
    assert producers.find("b", 1) is None


def test_state_restores_everything_in_order() -> None:
    producers = Producers(10)
    for sequence in (3, 5, 9):
        producers.record("p", sequence, {0: OffsetRange(sequence, sequence + 1), 2: OffsetRange(0, 4)})
    copy = Producers(10)
    copy.restore(producers.state())
    copy.restore(producers.state())  # journals repeat their state in every file
    assert copy.state() == producers.state()
    assert copy.find("p", 5) == {0: OffsetRange(5, 6), 2: OffsetRange(0, 4)}


def test_a_burst_of_keys_does_not_make_a_stream_forget_its_producers() -> None:
    """A key is a producer that appends once."""
    producers = Producers(10)
    for sequence in (1, 2):
        producers.record("steady", sequence, {0: OffsetRange(sequence, sequence + 1)})
    for number in range(100):
        producers.record(f"key:{number}", 0, {0: OffsetRange(number + 3, number + 4)})
    assert producers.find("steady", 2) == {0: OffsetRange(2, 3)}
    assert [n for n in range(100) if producers.find(f"key:{n}", 0)] == list(range(91, 100))


def test_producers_that_go_on_leave_half_of_the_room_to_keys() -> None:
    producers = Producers(10)
    for number in range(20):
        producers.record(f"key:{number}", 0, {0: OffsetRange(0, 1)})
    for name, sequence in ((f"steady-{n}", s) for n in range(20) for s in (1, 2)):
        producers.record(name, sequence, {0: OffsetRange(0, 1)})
    # A newcomer's first append took the fifth place.
    assert [n for n in range(20) if producers.find(f"key:{n}", 0)] == list(range(16, 20))
    assert [n for n in range(20) if producers.find(f"steady-{n}", 2)] == list(range(14, 20))
    copy = Producers(10)
    copy.restore(producers.state())
    assert copy.state() == producers.state()
