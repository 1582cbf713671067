from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.archive.partition import PARTITIONS_MAX, Partitioner
from millpond.model.schema import INGEST_TIME, TIMESTAMP

DAY = 86_400
INGESTED = 1_700_000_000_000_000


def batch(times: list[Any], kind: pa.DataType = TIMESTAMP) -> pa.RecordBatch:
    size = len(times)
    return pa.RecordBatch.from_arrays(
        [pa.array(times, kind), pa.array([INGESTED] * size, TIMESTAMP), pa.array(range(size))],
        names=["at", INGEST_TIME, "n"],
    )


def split(times: list[Any], kind: pa.DataType = TIMESTAMP, event_time: str | None = "at") -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for start, part in Partitioner(event_time, DAY).split(batch(times, kind)):
        assert start not in found
        found[start] = part.column("n").to_pylist()
    return found


def micros(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("time", "start"),
    [
        (0, 0),
        (DAY * 1_000_000 - 1, 0),
        (DAY * 1_000_000, DAY),
        (-1, -DAY),
        (-DAY * 1_000_000, -DAY),
        (-DAY * 1_000_000 - 1, -2 * DAY),
        (micros(2014, 5, 30, 12), 1_401_408_000),
    ],
)
def test_a_partition_starts_at_a_multiple_of_its_length(time: int, start: int) -> None:
    """C2: before 1970, too."""
    assert split([time]) == {start: [0]}


def test_rows_of_several_partitions_keep_their_order_within_each() -> None:
    day = DAY * 1_000_000
    assert split([day, 0, day + 1, 5, 2 * day]) == {0: [1, 3], DAY: [0, 2], 2 * DAY: [4]}


def test_without_an_event_time_the_time_of_ingestion_decides() -> None:
    today = INGESTED // 1_000_000 // DAY * DAY
    assert split([0, None], event_time=None) == {today: [0, 1]}
    assert split([0, None]) == {0: [0], today: [1]}


def test_a_date_is_an_event_time() -> None:
    assert split([1, -1, None], pa.date32()) == {DAY: [0], -DAY: [1], INGESTED // 1_000_000 // DAY * DAY: [2]}


def test_scattered_times_make_a_bounded_number_of_partitions() -> None:
    """I8: a producer's clock must not be able to make an object per row."""
    partitioner = Partitioner("at", DAY)
    starts, rows = set(), 0
    for first in range(0, 2_000, 500):
        for start, part in partitioner.split(batch([n * DAY * 1_000_000 for n in range(first, first + 500)])):
            starts.add(start)
            rows += part.num_rows
    assert rows == 2_000
    assert len(starts) <= PARTITIONS_MAX + 1


@given(st.lists(st.none() | st.integers(-(2**53), 2**53), max_size=40))
def test_splitting_keeps_every_row_once_and_in_its_partition(times: list[int | None]) -> None:
    found = split(times)
    assert sorted(n for part in found.values() for n in part) == list(range(len(times)))
    for start, part in found.items():
        assert part == sorted(part)
        for n in part:
            time = times[n]
            assert start <= (INGESTED if time is None else time) // 1_000_000 < start + DAY
