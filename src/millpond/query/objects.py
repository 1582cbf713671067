"""Where settled objects lie: the offsets and ingest times that each spans, as far as its index entry tells.

An entry that does not tell counts as spanning everything, so that its object is read, never missed (I4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.archive.object_index import ObjectIndex
from millpond.model.offsets import OFFSET_END, OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Spans:
    """Some objects of an index, side by side. `at` is each one's place in the index."""

    at: Ints
    start: Ints
    stop: Ints
    newest: Ints  # the latest `_ingest_time`, in microseconds
    rows: Ints
    bytes: Ints
    total: int

    def only(self, places: Sequence[int] | Ints | Mask) -> Mask:
        """A mask over the whole index of some of these objects."""
        mask = np.zeros(self.total, np.bool_)
        mask[self.at[places]] = True
        return mask

    def meeting(self, window: OffsetRange) -> Mask:
        """A mask over the whole index of those that may hold an offset in `window`."""
        return self.only((self.start < window.stop) & (self.stop > window.start))


def ingest_spans(objects: ObjectIndex) -> tuple[Ints, Ints]:
    """The earliest and the latest `_ingest_time` of each object, in microseconds."""
    known = objects.stats.columns.get(INGEST_TIME)
    if known is None:
        limits = np.iinfo(np.int64)
        return np.full(len(objects), limits.min), np.full(len(objects), limits.max)
    return known.lows, known.highs


def spans_of(objects: ObjectIndex, keep: Mask) -> Spans:
    """The spans of the objects in `keep`."""
    at = np.flatnonzero(keep)
    columns = objects.stats.columns
    offsets = columns.get(OFFSET)
    size = len(at)
    start = np.zeros(size, np.int64) if offsets is None else np.clip(offsets.lows[at], 0, OFFSET_END - 1)
    last = np.full(size, OFFSET_END) if offsets is None else np.clip(offsets.highs[at], 0, OFFSET_END - 1)
    newest = ingest_spans(objects)[1][at]
    return Spans(at, start, last + 1, newest, np.maximum(objects.rows[at], 0), objects.sizes[at], len(objects))
