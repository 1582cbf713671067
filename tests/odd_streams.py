"""Streams of odd rows under every layout and with every kind of index, for tests that nothing is lost by skipping."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

import millpond
from millpond.testing.odd_rows import SCHEMA

LAYOUTS = {
    "none": None,
    "grid": millpond.Grid("lat", "lon", precision=0, buckets=4),
    "kdtree": millpond.KdTree("lat", "lon", "at", "double", buckets=4),
}
INDEXES = [
    millpond.MinMax("big"),
    millpond.Boxes("lat", "lon", boxes=4),
    millpond.Boxes("tiny", "double", boxes=3),
    millpond.Values("city"),
    millpond.Values("single", limit=30),
    millpond.Values("note", words=True),
    millpond.Values("money"),
    millpond.Bloom("text"),
    millpond.Bloom("double", rate=0.05),
    millpond.Bloom("at"),
    millpond.Bloom("huge"),
]


def settled_stream(pond: millpond.Pond, layout: str, blocks: Sequence[pa.Table]) -> millpond.Stream:
    """A stream in which each block has settled on its own."""
    stream = pond.create_stream(f"odd/{layout}", schema=SCHEMA, indexes=INDEXES, layout=LAYOUTS[layout])
    for block in blocks:
        stream.append(block)
        stream.settle()
    return stream
