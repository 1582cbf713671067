"""A stream with a layout, as users have it: created, refused, altered, settled by itself and on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidInput
from tests.pond.conftest import Ponds

SCHEMA = pa.schema([("n", pa.int64()), ("lat", pa.float64()), ("lon", pa.float64()), ("tags", pa.list_(pa.string()))])
TREE = millpond.KdTree("lat", "lon", buckets=16)


def scattered(start: int, stop: int) -> pa.Table:
    rng = np.random.default_rng(start)
    count = stop - start
    columns = [np.arange(start, stop), rng.uniform(42, 51, count), rng.uniform(-4, 8, count), [None] * count]
    return pa.table(columns, schema=SCHEMA)


def buckets(stream: millpond.Stream) -> list[int | None]:
    found: list[int | None] = stream.snapshot().settled.objects.entries.column("buckets").to_pylist()
    return found


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that another thread does."""
    end, waiting = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        waiting.wait(0.01)


def test_settle_honours_the_buckets(pond: millpond.Pond) -> None:
    stream = pond.create_stream("s", SCHEMA, layout=TREE)
    assert stream.definition.layout == TREE.spec
    stream.append(scattered(0, 5_000))
    report = stream.settle()
    assert report is not None
    assert report.objects == 16
    assert stream.count() == 5_000
    assert sorted(stream.scan("lat < 44.5 AND lon > 2", columns=["n"]).column("n").to_pylist()) == sorted(
        row["n"] for row in scattered(0, 5_000).to_pylist() if row["lat"] < 44.5 and row["lon"] > 2
    )


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (lambda: millpond.KdTree("lat", "nowhere"), "nowhere"),
        (lambda: millpond.KdTree("lat", "tags"), "tags"),
        (lambda: millpond.KdTree("lat", buckets=0), "buckets"),
        (lambda: "kdtree:lat,buckets=0", "buckets"),
        (lambda: "kdtree:lat,lon,depth=4", "depth"),
        (lambda: "kdtree:lat,lat", "lat"),
        (lambda: "spiral:lat", "spiral"),
        (lambda: millpond.Grid("tags"), "tags"),
        (lambda: {"kind": "grid", "columns": ["lat"], "precision": "much"}, "precision"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(pond: millpond.Pond, layout: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pond.create_stream("s", SCHEMA, layout=layout())
    assert pond.streams() == []


def test_a_stream_gets_a_layout_later(pond: millpond.Pond) -> None:
    stream = pond.create_stream("s", SCHEMA)
    stream.append(scattered(0, 1_000))
    stream.settle()
    pond.alter_stream("s", layout="kdtree:lat,lon,buckets=4")
    stream.append(scattered(1_000, 2_000))
    stream.settle()
    pond.alter_stream("s", layout=None)
    stream.append(scattered(2_000, 3_000))
    stream.settle()
    assert buckets(stream) == [None, 4, 4, 4, 4, None]
    with pytest.raises(InvalidInput, match="tags"):
        pond.alter_stream("s", layout=millpond.KdTree("tags"))
    assert stream.count() == 3_000


@pytest.mark.embedded
def test_in_the_background_objects_are_not_tiny(ponds: Ponds) -> None:
    """The same records, settled by time: one bucket, because sixteen would be too small."""
    settle = millpond.Settle(every="10ms", bytes="1GB")
    stream = ponds(background=True).create_stream("s", SCHEMA, layout=TREE, settle=settle)
    stream.append(scattered(0, 5_000))
    until(lambda: stream.status().rows_settled == 5_000)
    assert set(buckets(stream)) == {1}


@pytest.mark.embedded
def test_a_layout_survives_a_reopen(ponds: Ponds) -> None:
    pond = ponds()
    stream = pond.create_stream("s", SCHEMA, layout=TREE)
    stream.append(scattered(0, 5_000))
    stream.settle()
    before = stream.archive.model()
    pond.close()
    stream = ponds().stream("s")
    assert stream.definition.layout == TREE.spec
    stream.append(scattered(5_000, 9_000))
    stream.settle()
    after = stream.archive.model()
    assert before is not None
    assert after is not None
    assert after.model.id == before.model.id
    assert set(stream.snapshot().settled.objects.entries.column("model").to_pylist()) == {before.model.id}
    assert pond.path == stream.archive.root.partition("/archive/")[0]
