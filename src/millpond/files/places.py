"""Where the bytes of a file are, found by what the headers of its events say. Bodies are never looked at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import Damaged
from millpond.files.protocol import FilePlace
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET
from millpond.query import Halves, Snapshot
from millpond.query.positions import resolve

HEADERS, BODY = "headers", "body"
POSITION, END = "position", "end"

# So many events are looked at together: their headers take less time than one more step of the search.
_WINDOW = 1_024

_Numbers = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Which bytes events hold, in the order of their offsets."""

    offsets: _Numbers
    starts: _Numbers
    ends: _Numbers


def headers_of(position: int, length: int) -> dict[str, str]:
    """The headers of an event that holds `length` bytes from `position` on."""
    return {POSITION: str(position), END: str(position + length)}


def numbers_in(headers: pa.MapArray, key: str, name: str) -> _Numbers:
    """What the headers of events say under a key."""
    found = pc.map_lookup(headers, key, "first")
    if found.null_count:
        raise Damaged(f"{name} has an event that does not say which bytes it holds", hint="is it a file?")
    return np.asarray(pc.cast(found, pa.int64()))


def spans_in(halves: Halves, generation: int, offsets: OffsetRange) -> Spans:
    """Of the events of a range that are kept."""
    name = halves.definition.name
    read = [
        (
            np.asarray(batch.column(OFFSET)),
            *(numbers_in(batch.column(HEADERS), key, name) for key in (POSITION, END)),
        )
        for batch in halves.read_range(generation, 0, offsets, [HEADERS, OFFSET])
    ]
    nothing = (np.empty(0, np.int64),) * 3
    return Spans(*(np.concatenate(each) for each in zip(nothing, *read, strict=True)))


def end_of(halves: Halves, generation: int, offset: int) -> int | None:
    """The position behind an event; None if it is not kept."""
    ends = spans_in(halves, generation, OffsetRange(offset, offset + 1)).ends
    return int(ends[0]) if len(ends) else None


def place_of(halves: Halves, position: int | None) -> FilePlace:
    """The event that holds a byte; None, or a byte behind the end: where the next event goes."""
    snapshot = halves.snapshot()
    first, head = resolve(halves, snapshot, "earliest")[0], snapshot.heads[0]
    size = 0 if first == head else end_of(halves, snapshot.generation, head - 1) or 0
    start = _start(halves, snapshot, OffsetRange(first, head), size)
    if position is None or position >= size:
        return FilePlace(head, size, start, size)
    spans = _around(halves, snapshot, OffsetRange(first, head), position)
    at = max(0, int(np.searchsorted(spans.starts, position, side="right")) - 1)
    return FilePlace(int(spans.offsets[at]), int(spans.starts[at]), start, size)


def _start(halves: Halves, snapshot: Snapshot, kept: OffsetRange, size: int) -> int:
    for at in range(kept.start, kept.stop, _WINDOW):
        starts = spans_in(halves, snapshot.generation, OffsetRange(at, min(at + 1, kept.stop))).starts
        if len(starts):
            return int(starts[0])
        starts = spans_in(halves, snapshot.generation, OffsetRange(at, min(at + _WINDOW, kept.stop))).starts
        if len(starts):
            return int(starts[0])
    return size


def _around(halves: Halves, snapshot: Snapshot, kept: OffsetRange, position: int) -> Spans:
    """The spans of few events, among them the one that holds the byte, or the first if it lies before all of them."""
    low, high = kept.start, kept.stop
    while high - low > _WINDOW:
        middle = (low + high) // 2
        starts = spans_in(halves, snapshot.generation, OffsetRange(middle, middle + 1)).starts
        if not len(starts):  # no longer kept, and neither is what lies before it
            low = middle + 1
        elif starts[0] <= position:
            low = middle
        else:
            high = middle
    return spans_in(halves, snapshot.generation, OffsetRange(low, high))
