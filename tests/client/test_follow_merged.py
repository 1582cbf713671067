"""A follower that merges streamlets by time gives every record once, also when its node is started again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.client.conftest import Served

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
NOW = datetime.now(UTC)


@pytest.mark.parametrize("columns", [None, ["n"]])
def test_a_lost_connection_gives_nothing_twice(served: Served, columns: list[str] | None) -> None:
    stream = served.pond.create_stream("grid/events", SCHEMA, event_time="at", streamlets=2)
    # Of each streamlet the first record is the latest: it is held back while all others overtake it.
    for later in (3_600, 3_601):
        stream.append([{"n": -later, "at": NOW + timedelta(seconds=later)}])
    for n in range(40):
        stream.append([{"n": n, "at": NOW + timedelta(milliseconds=n)}])
    remote = served.connect().stream("grid/events")
    found: list[int] = []

    def take(reader: Any, count: int) -> None:
        while len(found) < count:
            batch = reader.poll()
            found.extend([] if batch is None else batch.column("n").to_pylist())

    with remote.read(follow=True, merge_within="1h", columns=columns, batch_rows=10) as reader:
        assert reader.schema.names == (columns or ["n", "at", "_streamlet", "_offset", "_ingest_time"])
        served.pond.stream("grid/events").append(
            [{"n": 100 + n, "at": NOW + timedelta(seconds=3_700 + n)} for n in range(2)]
        )
        served.pond.stream("grid/events").append(
            [{"n": 102 + n, "at": NOW + timedelta(seconds=3_700 + n)} for n in range(2)]
        )
        take(reader, 40)
        assert sorted(found) == list(range(40))
        assert reader.position == {0: 0, 1: 0}  # the first of each is still held back
        served.stop()
        served.start()
        # An hour behind the held ones, and every streamlet has passed them.
        served.pond.stream("grid/events").append([{"n": 104, "at": NOW + timedelta(seconds=8_000)}])
        served.pond.stream("grid/events").append([{"n": 105, "at": NOW + timedelta(seconds=8_000)}])
        take(reader, 46)
    assert sorted(found) == sorted([*range(40), -3_600, -3_601, *range(100, 104)])
