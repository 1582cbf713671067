"""The streamlet of loads: its offsets have gaps, and whoever goes by offsets goes by what objects hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.archive.load import ROW_BITS, LoadWriter
from millpond.consume.protocol import Strategy
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET, STREAMLET
from millpond.query.loads import loaded, reach, rows_between, skip_gap
from millpond.storage import LocalStorage

SCHEMA = pa.schema([("n", pa.int64())])
TASK = 1 << ROW_BITS


@pytest.fixture
def pond(pond_dir: Path) -> Iterator[millpond.Pond]:
    with millpond.open(str(pond_dir), background=False) as pond:
        yield pond


@pytest.fixture
def stream(pond: millpond.Pond) -> millpond.Stream:
    """Three tasks of 100 records were loaded, after 50 appends of which 20 have settled."""
    stream = pond.create_stream("s", SCHEMA)
    stream.append([{"n": n} for n in range(20)])
    stream.settle()
    stream.append([{"n": n} for n in range(20, 50)])
    load(stream, {0: range(100), 1: range(100, 200), 5: range(200, 300)})
    return stream


def load(stream: millpond.Stream, tasks: dict[int, range]) -> None:
    ticket = stream.bulk.begin_load("job")
    assert ticket is not None
    reports = []
    for task, numbers in tasks.items():
        with LoadWriter(
            LocalStorage(), ticket.root, stream.definition, ticket.load, task, ROW_BITS, object_bytes=1 << 20
        ) as writer:
            writer.add(pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA))
            reports.append(writer.finish())
    stream.bulk.commit_load(ticket.load, pa.concat_tables(reports))


def test_gaps_are_skipped(stream: millpond.Stream) -> None:
    settled, definition = stream.snapshot().settled, stream.definition
    head = 5 * TASK + 100
    assert loaded(settled, definition) == {1: head}
    for offset, wanted in [(0, 0), (99, 99), (100, TASK), (TASK + 100, 5 * TASK), (head - 1, head - 1), (head, head)]:
        assert skip_gap(settled, definition, offset) == wanted


def test_records_are_counted_not_offsets(stream: millpond.Stream) -> None:
    settled, definition = stream.snapshot().settled, stream.definition
    whole = [(0, 6 * TASK, 300), (0, TASK, 100), (5 * TASK, 6 * TASK, 100)]
    for start, stop, wanted in [*whole, (50, TASK, 50), (100, TASK, 0)]:
        assert rows_between(settled, definition, OffsetRange(start, stop)) == wanted


def test_so_many_records_reach_so_far(stream: millpond.Stream) -> None:
    settled, definition = stream.snapshot().settled, stream.definition
    at, seen = 0, []
    while at < 5 * TASK + 100:
        stop = reach(settled, definition, at, 70)
        assert stop > at
        seen.append(rows_between(settled, definition, OffsetRange(at, stop)))
        at = stop
    assert sum(seen) == 300
    assert max(seen) <= 70
    assert len(seen) <= 8


def test_a_read_gives_loads_in_the_order_of_offsets(stream: millpond.Stream) -> None:
    for _ in range(2):
        found: dict[int, list[int]] = {}
        numbers = []
        for batch in stream.read():
            numbers += batch.column("n").to_pylist()
            for streamlet, offset in zip(*(batch.column(c).to_pylist() for c in (STREAMLET, OFFSET)), strict=True):
                found.setdefault(streamlet, []).append(offset)
        assert all(offsets == sorted(set(offsets)) for offsets in found.values())
        assert len(found[1]) == 300
        assert sorted(numbers) == sorted([*range(50), *range(300)])
        stream.settle()
        stream.archive.compact(least_objects=2)


def test_reading_may_begin_in_the_middle_of_a_load(stream: millpond.Stream) -> None:
    rest = [n for batch in stream.read({0: 50, 1: TASK + 50}) for n in batch.column("n").to_pylist()]
    assert rest == [*range(150, 200), *range(200, 300)]


@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_a_group_is_given_loads_once(stream: millpond.Stream, pond: millpond.Pond, strategy: Strategy) -> None:
    with pond.consumer("s", group="g", strategy=strategy, by="n" if strategy == "hash" else None) as consumer:

        def polled() -> list[int]:
            found = [
                n for batch in consumer.poll(max_records=1_000, timeout="0s") for n in batch.column("n").to_pylist()
            ]
            consumer.commit()
            return sorted(found)

        assert polled() == sorted([*range(50), *range(300)])
        load(stream, {0: range(300, 310), 3: range(310, 320)})
        stream.append({"n": 999})
        assert polled() == [*range(300, 320), 999]
        assert polled() == []
