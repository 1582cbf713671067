"""Producers at their edges, embedded and connected alike."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import millpond
from millpond.errors import StreamNotFound
from tests.pond.conftest import METERS, rows


@pytest.mark.timeout(60)
def test_nothing_is_appended_at_once(meters: millpond.Stream) -> None:
    """No batch is ever made of no records, so nobody may wait for one."""
    with meters.producer() as producer:
        for nothing in ([], pa.RecordBatch.from_pylist([], schema=METERS), METERS.empty_table()):
            assert producer.append(nothing).result(timeout=0).ranges == {}
        producer.append(rows(0, 1))
        producer.flush()
    assert meters.count() == 1


@pytest.mark.timeout(60)
def test_a_future_cannot_be_called_off(meters: millpond.Stream) -> None:
    """It is that of a whole batch: who loses patience must not take the others' answers with them."""
    with meters.producer(linger="50ms") as producer:
        first = producer.append(rows(0, 1))
        second = producer.append(rows(1, 2))
        assert not first.cancel()
        assert second.result(timeout=30).durability == "disk"
        assert producer.append(rows(2, 3)).result(timeout=30).ranges
    assert meters.count() == 3


@pytest.mark.timeout(60)
def test_a_failed_batch_ends_its_futures_and_not_the_producer(pond: millpond.Pond) -> None:
    stream = pond.create_stream("gone", METERS)
    producer = stream.producer(linger="1ms")
    producer.append(rows(0, 1)).result(timeout=30)
    pond.drop_stream("gone")

    def append() -> None:
        failed = producer.append(rows(1, 2))
        failed.cancel()
        failed.result(timeout=30)

    with pytest.raises(StreamNotFound):
        append()
    with contextlib.suppress(StreamNotFound):  # said again, if it was not refused before it was taken
        producer.close()
