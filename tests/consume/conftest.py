"""A pond whose time stands still, with one stream of numbered records of a few keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.consume.consumer import Consumer
from millpond.consume.protocol import GroupSpec, Join
from millpond.testing import ManualClock

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
IN, OUT = "grid/in", "grid/out"


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"key": f"k{n % 7}", "n": n} for n in range(start, stop)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reopen(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Any]]:
    """Opens the pond, after closing the one that was open before."""
    ponds: list[Any] = []

    def opened() -> Any:
        while ponds:
            ponds.pop().close()
        ponds.append(millpond.open(tmp_path / "pond", clock=clock, background=False))
        return ponds[0]

    yield opened
    for pond in ponds:
        pond.close()


@pytest.fixture
def pond(reopen: Callable[[], Any]) -> Any:
    found = reopen()
    found.create_stream(IN, SCHEMA, keys=["key"], streamlets=2)
    found.create_stream(OUT, SCHEMA)
    return found


def consumer(
    pond: Any, name: str = "a", *, group: str = "g", strategy: Any = "fifo", lease_seconds: float = 30.0, **how: Any
) -> Consumer:
    """One that has no heartbeat: the clock stands still."""
    spec = GroupSpec(IN, group, strategy, how.pop("by", None), how.pop("start", "earliest"))
    return Consumer(pond.group_desk(), Join(spec, name, lease_seconds, **how), heartbeat=False)


def taken(consumer: Consumer, **bounds: Any) -> list[int]:
    """What a poll gives."""
    return [n for batch in consumer.poll(timeout="0s", **bounds) for n in batch.column("n").to_pylist()]
