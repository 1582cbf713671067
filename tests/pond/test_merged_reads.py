"""A stream of several writers, read in the order of time: embedded and connected alike."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidValue

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def events(numbers: range) -> list[dict[str, Any]]:
    return [{"n": n, "at": NOON + timedelta(milliseconds=n)} for n in numbers]


def test_writers_events_are_read_in_the_order_of_time(pond: Any) -> None:
    stream = pond.create_stream("grid/events", SCHEMA, event_time="at", streamlets=3)

    def write(first: int) -> None:
        for start in range(first, 600, 60):
            stream.append(events(range(start, start + 20)))

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 20, 40)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    stream.settle()
    stream.append(events(range(600, 620)))
    reader = stream.read(merge_within="30s", columns=["n"])
    assert reader.schema.names == ["n"]
    assert pa.Table.from_batches(list(reader))["n"].to_pylist() == list(range(620))
    assert sum(reader.position.values()) == 620


def test_a_follower_gets_them_once_they_have_waited(pond: Any) -> None:
    stream = pond.create_stream("grid/events", SCHEMA, event_time="at", streamlets=2)
    for first in (40, 0, 20):
        stream.append(events(range(first, first + 20)))
    found: list[int] = []
    with stream.read(follow=True, merge_within="1s", columns=["n"], limit=60) as reader:
        for batch in reader:
            found += batch.column("n").to_pylist()
    assert found == list(range(60))


def test_a_bound_that_makes_no_sense_is_refused(pond: Any) -> None:
    stream = pond.create_stream("grid/events", SCHEMA, event_time="at")
    for within in ("0s", "2d"):
        with pytest.raises(InvalidValue, match="merge_within"):
            stream.read(merge_within=within)
