"""K14: from ingestion until a consumer has a record, and until it is done with it, for every consumer that follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.pond.desk import PondDesk
from millpond.pond.gate import OpenGate
from millpond.telemetry import ReadTelemetry
from millpond.testing import ManualClock
from millpond.wire.access import ANYONE
from millpond.wire.requests import Read

SCHEMA = pa.schema([("n", pa.int64())])


class Followed:
    """A stream, its time, and what is measured of it."""

    def __init__(self, pond: millpond.Pond, clock: ManualClock) -> None:
        self.pond, self.clock = pond, clock
        self.stream = pond.create_stream("numbers", SCHEMA)

    def append(self, count: int, **options: Any) -> None:
        self.stream.append([{"n": n} for n in range(count)], **options)

    @property
    def measured(self) -> ReadTelemetry:
        return self.stream.telemetry.reading

    def seen(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """How many records were buffered and processed, and the seconds that took in all."""
        found = [stage.read() for stage in (self.measured.buffered, self.measured.processed)]
        return (found[0].total, round(found[0].sum, 9)), (found[1].total, round(found[1].sum, 9))

    def at_most(self, seconds: float) -> int:
        """How many records were buffered within that time."""
        found = self.measured.buffered.read()
        return found.cumulative[found.bounds.index(seconds)]


@pytest.fixture
def numbers(pond_dir: Path) -> Iterator[Followed]:
    clock = ManualClock()
    with millpond.open(pond_dir, clock=clock, background=False) as pond:
        yield Followed(pond, clock)


def test_a_follower_measures_both_stages_exactly(numbers: Followed) -> None:
    with numbers.stream.read("latest", follow=True) as reader:
        numbers.append(3)
        numbers.clock.advance("200ms")
        assert next(reader).num_rows == 3
        assert numbers.seen() == ((3, 0.6), (0, 0))
        numbers.clock.advance("300ms")
        numbers.append(1)
        assert next(reader).num_rows == 1
        assert numbers.seen() == ((4, 0.6), (3, 1.5))
        numbers.clock.advance("1s")
        assert reader.poll() is None
        assert numbers.seen() == ((4, 0.6), (4, 2.5))
    assert (numbers.at_most(0.1), numbers.at_most(0.25)) == (1, 4)


def test_records_of_one_batch_have_each_their_own_latency(numbers: Followed) -> None:
    with numbers.stream.read("latest", follow=True) as reader:
        for _ in range(40):
            numbers.append(2)
            numbers.clock.advance("1s")
        assert next(reader).num_rows == 80
        assert numbers.seen()[0] == (80, 2 * sum(range(1, 41)))
        assert numbers.at_most(30) == 60


def test_what_was_there_before_is_a_backlog_and_no_latency(numbers: Followed) -> None:
    numbers.append(5)
    numbers.clock.advance("1h")
    with numbers.stream.read("earliest", follow=True) as reader:
        assert next(reader).num_rows == 5
        numbers.append(2)
        numbers.clock.advance("1s")
        assert next(reader).num_rows == 2
        assert numbers.seen()[0] == (2, 2.0)


def test_a_follower_that_fell_behind_is_measured_although_its_records_have_settled(numbers: Followed) -> None:
    with numbers.stream.read("latest", follow=True) as reader:
        numbers.append(4)
        numbers.clock.advance("1m")
        numbers.stream.settle()
        assert next(reader).num_rows == 4
        assert numbers.seen()[0] == (4, 240.0)


@pytest.mark.parametrize("columns", [["n"], ["_offset"], ["_ingest_time", "n"]])
def test_measuring_changes_nothing_that_is_read(numbers: Followed, columns: list[str]) -> None:
    with numbers.stream.read("latest", follow=True, columns=columns) as reader:
        numbers.append(2)
        numbers.clock.advance("1s")
        assert next(reader).schema.names == columns
        assert numbers.seen()[0] == (2, 2.0)


def test_a_clock_that_is_set_back_gives_no_negative_latency(numbers: Followed) -> None:
    with numbers.stream.read("latest", follow=True) as reader:
        numbers.clock.advance("1h")
        numbers.append(2)
        numbers.clock.set_wall(numbers.clock.now_micros() - 60_000_000)
        assert next(reader).num_rows == 2
        assert numbers.seen()[0] == (2, 0.0)


def test_a_read_that_ends_is_counted_but_has_no_latency(numbers: Followed) -> None:
    numbers.append(7)
    batches = list(numbers.stream.read(batch_rows=3))
    assert [batch.num_rows for batch in batches] == [3, 3, 1]
    assert numbers.seen() == ((0, 0), (0, 0))
    assert numbers.measured.batches.value == 3
    assert numbers.measured.rows.value == 7
    assert numbers.measured.bytes.value == sum(batch.nbytes for batch in batches)
    assert numbers.measured.followers == 0


def test_followers_are_counted_while_they_follow(numbers: Followed) -> None:
    first = numbers.stream.read("latest", follow=True)
    with numbers.stream.read("latest", follow=True):
        assert numbers.measured.followers == 2
    assert numbers.measured.followers == 1
    first.close()
    assert numbers.measured.followers == 0


def test_what_the_doors_follow_is_measured_as_well(numbers: Followed) -> None:
    desk = PondDesk(numbers.pond, OpenGate())
    reader = desk.read(ANYONE, Read("numbers", start="latest", follow=True))
    numbers.append(3)
    numbers.clock.advance("2s")
    found = reader.poll()
    assert found is not None
    assert found.num_rows == 3
    assert reader.poll() is None
    assert numbers.seen() == ((3, 6.0), (3, 6.0))
    reader.close()
