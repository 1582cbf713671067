"""A settled stream with a layout, and what relaying it out takes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from millpond.archive.layout.kdtree import KdTree
from millpond.archive.layout.layout import Model
from millpond.archive.relayout import RelayoutReport, Unit, plan, rewrite
from millpond.archive.stream_archive import StreamArchive
from millpond.model.definition import StreamDefinition
from tests.archive.settled_stream import DAY_MICROS, MIDNIGHT, SettledStream, define, read_all, records

LAYOUT = KdTree("n", "temp", buckets=4)
PLAIN = define(partition_seconds=86_400, event_time="at")
LAID_OUT = replace(PLAIN, layout=LAYOUT.spec)


def days(boundary: dict[int, int], start: dict[int, int] | None = None) -> list[pa.RecordBatch]:
    """A day's records per twenty offsets."""
    return [
        records(streamlet, offset, offset + 1, at=MIDNIGHT + offset // 20 * DAY_MICROS)
        for streamlet, stop in sorted(boundary.items())
        for offset in range((start or {}).get(streamlet, 0), stop)
    ]


def settle_days(archive: StreamArchive, stop: dict[int, int]) -> None:
    start = dict(archive.snapshot().boundary)
    archive.settle(start, stop, days(stop, start))


def expected_days(boundary: dict[int, int]) -> pa.Table:
    return pa.Table.from_batches(days(boundary)).combine_chunks()


def model_of(archive: StreamArchive) -> Model:
    """The model that counts; a first one if there is none."""
    known = archive.model()
    return archive.put_model(LAYOUT.fit(read_all(archive.snapshot()))).model if known is None else known.model


def planned(archive: StreamArchive, definition: StreamDefinition = LAID_OUT) -> list[Unit]:
    return plan(archive.snapshot(refresh=True), definition, model_of(archive), object_bytes_min=0)


def rewritten(stream: SettledStream, unit: Unit, definition: StreamDefinition = LAID_OUT) -> list[pa.Table]:
    """The reports of all parts."""
    model, storage = model_of(stream.archive), stream.storage
    return [
        rewrite(storage, stream.root, definition, LAYOUT, model, unit, part, object_bytes_min=0)
        for part in range(unit.parts)
    ]


def relaid(stream: SettledStream) -> Iterator[RelayoutReport]:
    """Every unit, rewritten and committed."""
    for unit in planned(stream.archive):
        yield stream.archive.relayout(unit, rewritten(stream, unit))
