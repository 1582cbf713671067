"""Settled records in the order of their offsets, although objects are laid out for other queries.

A layout groups rows by place or by event time, so one object holds offsets from all over a block, and compaction widens
that. Reading goes by windows of offsets instead: a window takes every object whose `_offset` range meets it, keeps
the rows inside, sorts them and hands them out, one streamlet after the other.

Invariant: the windows partition the offsets asked for, so no record is missed or given twice, whatever the statistics
say; they only decide how wide a window is (memory) and where it is cut (an object's end, so that few are read twice).

A window is held until its reader has taken it. So the first ones are narrow, and only those who keep asking get wide
ones (`Pace`); and only a few are decoded at the same time, however many readers begin at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.snapshot import SettledSnapshot
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Predicate
from millpond.model.schema import OFFSET, STREAMLET
from millpond.query.objects import Spans, spans_of
from millpond.query.places import hull_of, inside, near
from millpond.query.terms import both

# What a window is meant to hold: half a million rows, or the rows of 64 MB of objects (about 256 MB decoded). Narrower
# windows decode an object more often, wider ones only cost memory.
WINDOW_ROWS = 524_288
WINDOW_BYTES = 64_000_000

# The first window of a reader holds this share of it: 4,096 rows, or half a megabyte of objects.
NARROWEST = 1 / 128


def _decoders() -> ThreadPoolExecutor:
    """Windows are decoded in a few threads of their own. More at once would not be quicker, each takes the memory of a
    window several times over, and Arrow's pool keeps what was freed for the thread that took it: with hundreds of
    readers, hundreds of times."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="millpond-decode")


_DECODERS = [_decoders()]
# A fork has none of these threads.
os.register_at_fork(after_in_child=lambda: _DECODERS.__setitem__(0, _decoders()))

Floats = npt.NDArray[np.float64]


class Pace:
    """How wide the next window of a reader is: narrow at first, then twice as wide each time, up to a whole one."""

    def __init__(self) -> None:
        self._share = NARROWEST

    def next_share(self) -> float:
        share, self._share = self._share, min(1.0, 2 * self._share)
        return share


def read_in_order(
    settled: SettledSnapshot,
    ranges: Mapping[int, OffsetRange],
    columns: Sequence[str],
    predicate: Predicate | None,
    pace: Pace | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The settled records in `ranges` that match, as (streamlet, batch); in offset order within a streamlet.

    `columns` are read, and `_streamlet` and `_offset` besides. Without a pace all windows are whole ones."""
    ranges = {streamlet: offsets for streamlet, offsets in ranges.items() if len(offsets)}
    if not ranges:
        return
    keep = settled.objects.prune(both(near(ranges), predicate)).keep
    reading = [*columns, *(name for name in (STREAMLET, OFFSET) if name not in columns)]
    spans = spans_of(settled.objects, keep)
    for window in windows(spans, hull_of(ranges), pace):
        part = {streamlet: offsets.intersect(window) for streamlet, offsets in ranges.items()}
        part = {streamlet: offsets for streamlet, offsets in part.items() if len(offsets)}
        if part:
            wanted = both(near(part), predicate)
            table = _DECODERS[0].submit(_decoded, settled, spans.meeting(window), reading, wanted, part).result()
            if table is not None:
                yield from _by_streamlet(table)


def _decoded(
    settled: SettledSnapshot,
    objects: npt.NDArray[np.bool_],
    columns: Sequence[str],
    wanted: Predicate | None,
    part: Mapping[int, OffsetRange],
) -> pa.Table | None:
    """The records of a window, sorted; None if there are none. In memory of the system's: it is held for long, and what
    is freed can be given back from any thread."""
    batches = [cut for batch in settled.read(objects, columns, wanted) if (cut := inside(batch, part)).num_rows]
    if not batches:
        return None
    table = pa.Table.from_batches(batches).combine_chunks()
    order = pc.sort_indices(table, sort_keys=[(STREAMLET, "ascending"), (OFFSET, "ascending")])
    return pc.take(table, order, memory_pool=pa.system_memory_pool())


def _by_streamlet(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    numbers = table.column(STREAMLET).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, stop in pairwise(edges):
        for batch in table.slice(start, stop - start).to_batches():
            yield int(numbers[start]), batch


def windows(spans: Spans, whole: OffsetRange, pace: Pace | None = None) -> Iterator[OffsetRange]:
    """`whole` cut into windows that hold about as many rows and bytes as one may; stretches without objects are
    left out."""
    weight = np.maximum(spans.rows / WINDOW_ROWS, spans.bytes / WINDOW_BYTES)
    at = whole.start
    while at < whole.stop:
        ahead = spans.stop > at
        if not ahead.any():
            return
        at = max(at, int(spans.start[ahead].min()))
        if at >= whole.stop:
            return
        share = 1.0 if pace is None else pace.next_share()
        stop = _cut(spans.start[ahead], spans.stop[ahead], weight[ahead] / share, at, whole.stop)
        yield OffsetRange(at, stop)
        at = stop


def _cut(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], weight: Floats, at: int, end: int) -> int:
    """Where the window that begins at `at` ends: as far as its weight stays within one, if rows lie evenly."""

    def held(stop: int) -> float:
        inside = np.minimum(stops, stop) - np.maximum(starts, at)
        return float((weight * np.clip(inside, 0, None) / (stops - starts)).sum())

    if held(end) <= 1:
        return end
    low, high = at + 1, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) <= 1 else (low, middle)
    # An object's end is a better place if it does not make the window much narrower.
    ends = stops[(stops > at + (low - at) // 2) & (stops <= low)]
    return int(ends.max()) if len(ends) else low
