"""A producer: many small appends, batched, in order, each record once; what does not fit fails alone."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import (
    Backpressure,
    DiskFull,
    InvalidRecord,
    InvalidValue,
    PondClosed,
    StaleSequence,
    StreamNotFound,
    TooLarge,
    Unavailable,
)
from tests.pond.conftest import METERS, Ponds, rows, temps


@pytest.fixture
def stream(pond: millpond.Pond) -> millpond.Stream:
    return pond.create_stream("s", METERS)


def in_order(stream: millpond.Stream) -> list[float]:
    return [temp for batch in stream.read(columns=["temp"]) for temp in batch.column("temp").to_pylist()]


def test_records_are_batched_and_keep_their_order(stream: millpond.Stream) -> None:
    with stream.producer(batch_bytes="10KB", linger="10s") as producer:
        futures = [producer.append(row) for row in rows(0, 1_000)]
    assert in_order(stream) == [float(n) for n in range(1_000)]
    batches = len(set(futures))
    assert 5 < batches < 50, "by bytes: the time was never up"
    assert producer.figures.batches_acknowledged == batches
    assert producer.figures.records_acknowledged == 1_000
    assert sum(len(future.result().ranges[0]) for future in set(futures)) == 1_000


def test_a_lone_record_goes_when_its_time_is_up(stream: millpond.Stream) -> None:
    with stream.producer(batch_bytes="1MB", linger="1ms") as producer:
        assert producer.append(rows(0, 1)[0]).result(30).ranges == {0: millpond.OffsetRange(0, 1)}
        assert stream.count() == 1


def test_every_form_of_rows_goes_into_one_order(stream: millpond.Stream) -> None:
    with stream.producer(linger="10s") as producer:
        producer.append(rows(0, 1)[0])
        producer.append(rows(1, 4))
        producer.append(pa.Table.from_pylist(rows(4, 8), METERS))
        producer.append(rows(8, 100))
        producer.append(rows(100, 101)[0])
    assert in_order(stream) == [float(n) for n in range(101)]
    assert producer.figures.batches_acknowledged == 1


def test_raw_events_get_their_time(pond: millpond.Pond) -> None:
    events = pond.create_stream("events")
    with events.producer() as producer:
        producer.append("one")
        producer.append({"body": b"two", "headers": {"a": "b"}})
    found = events.scan().to_pylist()
    assert sorted(row["body"] for row in found) == [b"one", b"two"]
    assert all(row["time"] is not None for row in found)


def test_a_record_that_does_not_fit_fails_alone(stream: millpond.Stream) -> None:
    with stream.producer(linger="10s") as producer:
        producer.append(rows(0, 1))
        with pytest.raises(InvalidRecord, match=r"column 'temp'.*'warm'"):
            producer.append({"vid": "a", "temp": "warm"})
        with pytest.raises(InvalidRecord, match="row 1, column 'colour'"):
            producer.append([{"vid": "a"}, {"colour": "red"}])
        producer.append(rows(1, 2))
    assert temps(stream) == [0, 1]


def test_a_column_that_was_added_meanwhile_is_taken(stream: millpond.Stream, pond: millpond.Pond) -> None:
    with stream.producer(linger="10s") as producer:
        producer.append({"vid": "before"})
        pond.alter_stream("s", METERS.append(pa.field("load", pa.int32())))
        producer.append({"vid": "after", "load": 7})
    assert sorted((row["vid"], row["load"]) for row in stream.scan().to_pylist()) == [("after", 7), ("before", None)]


def test_a_full_buffer_holds_the_caller_up_and_then_refuses(stream: millpond.Stream) -> None:
    """K10: a producer sees that there is no room."""
    with stream.producer(batch_bytes="1KB", buffer="1KB", linger="10s", wait="0s") as producer:
        with pytest.raises(TooLarge, match="into a buffer of"):
            producer.append(rows(0, 1_000))
        refused = 0
        for n in range(2_000):
            try:
                producer.append(rows(n, n + 1))
            except Backpressure:
                refused += 1
                producer.flush()
                producer.append(rows(n, n + 1))
        assert refused > 0
    assert temps(stream) == list(range(2_000))


def test_a_caller_that_waits_for_room_gets_it(stream: millpond.Stream) -> None:
    with stream.producer(batch_bytes="1KB", buffer="2KB", linger="10s", wait="60s") as producer:
        for row in rows(0, 2_000):
            producer.append(row)
            assert producer.figures.bytes_pending <= 2_000
    assert temps(stream) == list(range(2_000))


def test_what_the_stream_refuses_fails_its_futures_and_the_flush(stream: millpond.Stream, pond: millpond.Pond) -> None:
    told: list[tuple[str, int]] = []
    producer = stream.producer(linger="10s", on_error=lambda error, count: told.append((error.code, count)))
    waiting = producer.append(rows(0, 3))
    pond.drop_stream("s")
    with pytest.raises(StreamNotFound):
        producer.flush()
    with pytest.raises(StreamNotFound):
        waiting.result(0)
    assert told == [("stream-not-found", 3)]
    producer.flush()  # an error is raised once
    producer.close()


def test_two_producers_of_one_name_are_found_out(stream: millpond.Stream) -> None:
    with stream.producer("p") as first:
        number = first._sequence
        first.append(rows(0, 1)).result(30)
    second = stream.producer("p")
    second._sequence = number
    waiting = second.append(rows(1, 3))
    with pytest.raises(InvalidValue, match="was taken by"):
        waiting.result(30)
    with pytest.raises(InvalidValue, match="was taken by"):
        second.close()
    with stream.producer("p") as third:
        assert not third.append(rows(1, 2)).result(30).duplicate, "later numbers are free"
    assert temps(stream) == [0, 1]


def test_a_clock_that_was_set_back_does_not_stop_a_producer_with_a_name(stream: millpond.Stream) -> None:
    with stream.producer("p") as before:
        before.append(rows(0, 1))
    with stream.producer("p", batch_bytes="1KB", linger="10s") as producer:
        producer._sequence -= 10_000_000  # as if it had begun ten seconds earlier
        for row in rows(1, 500):
            producer.append(row)
    assert producer.figures.batches_acknowledged > 5
    assert in_order(stream) == [float(n) for n in range(500)]


def test_who_is_overtaken_by_another_of_its_name_is_told(stream: millpond.Stream) -> None:
    first, second = stream.producer("p"), stream.producer("p")
    first.append(rows(0, 1)).result(30)
    second._sequence = first._sequence + 1_000
    second.append(rows(1, 2)).result(30)
    assert isinstance(first.append(rows(2, 3)).exception(30), StaleSequence)
    with pytest.raises(StaleSequence):
        first.close()
    second.close()
    assert temps(stream) == [0, 1]


def test_a_closed_producer_says_so(stream: millpond.Stream) -> None:
    with stream.producer() as producer:
        producer.append(rows(0, 2))
    producer.close()
    with pytest.raises(PondClosed, match="the producer is closed"):
        producer.append(rows(2, 3))
    assert temps(stream) == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_in_flight": 33}, "max_in_flight=33"),
        ({"max_in_flight": 0}, "max_in_flight=0"),
        ({"batch_bytes": "0B"}, "batches of 0 B"),
        ({"batch_bytes": "2MB", "buffer": "1MB"}, "in a buffer of 1.0 MB"),
        ({"linger": 5}, "has no unit"),
        ({"durability": "paper"}, "no durability 'paper'"),
    ],
)
def test_options_out_of_range_are_refused(stream: millpond.Stream, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        stream.producer(**options)


def test_flush_waits_no_longer_than_asked(stream: millpond.Stream) -> None:
    busy, gate = threading.Event(), threading.Event()
    with stream.producer(linger="1ms") as producer:
        # Who is told of an acknowledgement, and takes his time, holds up those behind it.
        producer.append(rows(0, 1)).add_done_callback(lambda future: (busy.set(), gate.wait(30)))
        assert busy.wait(30)
        producer.append(rows(1, 2))
        with pytest.raises(Unavailable, match="records are not acknowledged yet"):
            producer.flush("50ms")
        gate.set()
    assert temps(stream) == [0, 1]


def test_a_stream_that_has_no_room_is_tried_until_it_is_given_up(ponds: Ponds) -> None:
    """K10: nothing is kept of what was refused, and whoever waits is told."""
    with ponds() as pond:
        pond.create_stream("s", METERS)
    stream = ponds(disk_reserve_bytes=10**15).stream("s")
    producer = stream.producer(linger="1ms", give_up="200ms")
    waiting = producer.append(rows(0, 5))
    with pytest.raises(DiskFull, match="5 records were not acknowledged"):
        producer.close()
    assert isinstance(waiting.exception(0), DiskFull)
    assert producer.figures.retries > 0
    assert stream.count() == 0


@pytest.mark.embedded
def test_closing_the_pond_finishes_every_producer_although_one_fails(pond: millpond.Pond, ponds: Ponds) -> None:
    gone, stays = pond.create_stream("gone", METERS), pond.create_stream("stays", METERS)
    waiting = [each.producer(linger="1h").append(rows(0, 1)) for each in (gone, stays)]
    pond.drop_stream("gone")
    with pytest.raises(StreamNotFound):
        pond.close()
    assert isinstance(waiting[0].exception(0), StreamNotFound)
    assert waiting[1].result(0).durability == "disk"
    assert ponds().stream("stays").count() == 1
