"""What may leave memory: what has settled and every group has processed; a pin ends, and nobody notices (K4, K9)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millpond.testing.manual_clock import ManualClock
from tests.pond.conftest import METERS, Ponds, rows, temps

pytestmark = pytest.mark.embedded


def batch(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows(start, stop), schema=METERS)


def taken(consumer: Any, count: int) -> list[float]:
    found: list[float] = []
    for each in consumer.poll(max_records=count, timeout="5s"):
        found += each["temp"].to_pylist()
        if len(found) >= count:
            break
    return found


def test_what_a_group_has_not_processed_stays_in_memory_until_it_has(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock, segment_bytes=64_000) as pond:
        stream = pond.create_stream("s", METERS)
        consumer = pond.consumer("s", group="g")
        stream.append(batch(0, 3_000))
        stream.append(batch(3_000, 6_000))
        stream.settle()
        status = stream.status()
        assert (status.rows_live, status.rows_settled, status.bytes_live) == (0, 6_000, 0)
        assert status.bytes_pinned > 0
        assert pond.log.starts(stream.definition.id) == {0: 0}
        assert temps(stream) == list(range(6_000)), "each once"
        assert len(stream.segments()) == status.objects
        assert taken(consumer, 3_000) == list(range(3_000))
        consumer.commit()
        clock.advance("2s")
        stream.settling.unpin()
        assert pond.log.starts(stream.definition.id) == {0: 3_000}
        assert taken(consumer, 3_000) == list(range(3_000, 6_000))
        consumer.commit()
        clock.advance("2s")
        stream.settling.unpin()
        assert stream.status().bytes_pinned == 0
        consumer.close()


def test_a_pin_expires_and_the_group_reads_on_without_noticing(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock, pin_seconds=10.0) as pond:
        stream = pond.create_stream("s", METERS)
        consumer = pond.consumer("s", group="g", lease="1h")
        stream.append(batch(0, 1_000))
        assert taken(consumer, 500) == list(range(500))
        stream.settle()
        clock.advance("9s")
        stream.append(batch(1_000, 2_000))
        stream.settle()
        assert pond.log.starts(stream.definition.id) == {0: 0}
        clock.advance("1s")
        stream.settling.unpin()
        assert pond.log.starts(stream.definition.id) == {0: 1_000}, "the younger half is pinned still"
        clock.advance("9s")
        stream.settling.unpin()
        assert pond.log.starts(stream.definition.id) == {0: 2_000}
        assert stream.status().bytes_pinned == 0
        assert taken(consumer, 1_500) == list(range(500, 2_000))
        consumer.close()


@pytest.mark.parametrize("seconds", [0.0, 300.0])
def test_without_groups_or_without_time_nothing_is_pinned(ponds: Ponds, seconds: float) -> None:
    with ponds(pin_seconds=seconds) as pond:
        stream = pond.create_stream("s", METERS)
        if not seconds:
            pond.consumer("s", group="g").close()
        stream.append(batch(0, 1_000))
        stream.settle()
        assert stream.status().bytes_pinned == 0
        assert pond.log.starts(stream.definition.id) == {0: 1_000}


def test_a_group_that_never_commits_does_not_make_memory_grow(ponds: Ponds) -> None:
    """Ten times what memory may hold; pins end at half of it, and the group reads everything by the same call."""
    quota = 16_000_000
    with ponds(memory_bytes=quota, segment_bytes=256_000) as pond:
        stream = pond.create_stream("s", pa.schema([("n", pa.int64()), ("pad", pa.binary())]))
        consumer = pond.consumer("s", group="g", lease="1h")
        pad, pinned = b"x" * 10_000, []
        for turn in range(40):
            numbers = range(turn * 400, turn * 400 + 400)
            stream.append(pa.RecordBatch.from_pylist([{"n": n, "pad": pad} for n in numbers], schema=stream.schema))
            stream.settle()
            assert pond.log.status().memory_bytes <= quota
            pinned.append(stream.status().bytes_pinned)
        assert 0 < max(pinned) <= quota
        found: list[int] = []
        for each in consumer.poll(max_bytes="1GB", timeout="5s"):
            found += each["n"].to_pylist()
            consumer.commit()
            if len(found) == 16_000:
                break
        assert found == list(range(16_000))
        consumer.close()


def test_records_stay_right_while_pins_come_and_go(ponds: Ponds) -> None:
    clock = ManualClock()
    with ponds(clock=clock, pin_seconds=5.0) as pond:
        stream = pond.create_stream("s", METERS, keys=["vid"], streamlets=2)
        consumer = pond.consumer("s", group="g", lease="1h")
        for turn in range(12):
            stream.append(rows(turn * 10, turn * 10 + 10))
            if turn % 3 == 0:
                stream.settle()
            if turn % 5 == 0:
                taken(consumer, 7)
                consumer.commit()
            clock.advance("2s")
            stream.settling.unpin()
            assert temps(stream) == list(range(turn * 10 + 10))
            assert stream.count() == turn * 10 + 10
            assert stream.get(f"v{turn * 10}").num_rows == 1
            assert sum(b.num_rows for b in stream.read()) == turn * 10 + 10
            assert sum(len(s.offsets or ()) for s in stream.segments() if s.state != "settled") == (
                stream.status().rows_live
            )
        assert pond.verify().ok
        consumer.close()
    with ponds() as pond:
        assert temps(pond.stream("s")) == list(range(120))
