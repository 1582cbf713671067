"""Where the bytes of a file are, found by what the headers of its events say. Bodies are never looked at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import Damaged, OffsetGone
from millpond.files.protocol import FilePlace
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET
from millpond.query import Halves
from millpond.query.positions import resolve

HEADERS, BODY = "headers", "body"
POSITION, END = "position", "end"

# So many events are looked at together: their headers take less time than one more step of the search.
_WINDOW = 1_024
# Blocks of events whose places are remembered, 24 KB each.
_BLOCKS_KEPT = 16

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


class Places:
    """Finds bytes, and remembers what it came across: what an event holds never changes. Events are looked at in blocks
    of `_WINDOW` offsets; the search goes over their first events. Thread-safe."""

    def __init__(self, halves: Halves) -> None:
        self._halves = halves
        self._lock = threading.Lock()
        self._forget(0)

    def _forget(self, generation: int) -> None:
        self._generation = generation
        self._starts: dict[int, int] = {}  # of a block, by the offset at which it begins
        self._blocks: OrderedDict[OffsetRange, Spans] = OrderedDict()
        self._end = (0, 0)  # the head, and the size there

    def place(self, position: int | None) -> FilePlace:
        """The event that holds a byte; None, or a byte behind the end: where the next event goes."""
        with self._lock:
            snapshot = self._halves.snapshot()
            if snapshot.generation != self._generation:
                self._forget(snapshot.generation)
            kept = OffsetRange(resolve(self._halves, snapshot, "earliest")[0], snapshot.heads[0])
            size = self._size(kept)
            start = self._start(kept.start) if len(kept) else size
            if position is None or position >= size:
                return FilePlace(kept.stop, size, start, size)
            spans = self._spans(self._block_with(position, kept))
            at = max(0, int(np.searchsorted(spans.starts, position, side="right")) - 1)
            return FilePlace(int(spans.offsets[at]), int(spans.starts[at]), start, size)

    def _size(self, kept: OffsetRange) -> int:
        if not len(kept):
            return 0
        if self._end[0] != kept.stop:
            self._end = (kept.stop, end_of(self._halves, self._generation, kept.stop - 1) or 0)
        return self._end[1]

    def _start(self, offset: int) -> int:
        """The first byte of the event at an offset."""
        if offset not in self._starts:
            spans = spans_in(self._halves, self._generation, OffsetRange(offset, offset + 1))
            if not len(spans.starts):
                raise OffsetGone(f"event {offset} of {self._halves.definition.name} is gone", hint="seek again")
            self._starts[offset] = int(spans.starts[0])
        return self._starts[offset]

    def _block_with(self, position: int, kept: OffsetRange) -> OffsetRange:
        """The last block that begins at or before a byte; the first if none does."""
        low, high = kept.start // _WINDOW, (kept.stop - 1) // _WINDOW
        while low < high:
            middle = (low + high + 1) // 2
            if self._start(middle * _WINDOW) <= position:
                low = middle
            else:
                high = middle - 1
        return OffsetRange(low * _WINDOW, (low + 1) * _WINDOW).intersect(kept)

    def _spans(self, block: OffsetRange) -> Spans:
        known = self._blocks.pop(block, None) or spans_in(self._halves, self._generation, block)
        self._blocks[block] = known
        if len(self._blocks) > _BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return known
