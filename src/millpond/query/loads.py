"""Records that were loaded straight into the archive: a streamlet that only it has, whose offsets have wide gaps.

Each task of a load gives out offsets from a range of its own, so that between two tasks' records lie offsets that were
never given out. Whoever goes by offsets (so many at a time, how far behind) goes by what objects hold instead.
"""

from __future__ import annotations

import numpy as np

from millpond.archive.snapshot import SettledSnapshot
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OFFSET_END, OffsetRange
from millpond.model.predicate import Compare
from millpond.model.schema import STREAMLET
from millpond.query.objects import Spans, spans_of


def loaded(settled: SettledSnapshot, definition: StreamDefinition) -> dict[int, int]:
    """The streamlet of loads and its head, which is its boundary; nothing if nothing was loaded."""
    streamlet = definition.load_streamlet
    head = settled.boundary.get(streamlet, 0)
    return {streamlet: head} if head else {}


def skip_gap(settled: SettledSnapshot, definition: StreamDefinition, offset: int) -> int:
    """The first offset of the streamlet of loads, from this one on, that may be a record's; its head if none is."""
    spans = _spans(settled, definition)
    head = settled.boundary.get(definition.load_streamlet, 0)
    ahead = spans.start[spans.stop > offset]
    return min(head, max(offset, int(ahead.min()))) if len(ahead) else head


def rows_between(settled: SettledSnapshot, definition: StreamDefinition, offsets: OffsetRange) -> int:
    """About how many records of the streamlet of loads lie in a range: exact for whole objects, else in proportion."""
    spans = _spans(settled, definition)
    inside = np.minimum(spans.stop, offsets.stop) - np.maximum(spans.start, offsets.start)
    share = np.clip(inside, 0, None) / (spans.stop - spans.start)
    return round(float((share * spans.rows).sum()))


def reach(settled: SettledSnapshot, definition: StreamDefinition, offset: int, rows: int) -> int:
    """How far a reader of the streamlet of loads comes from `offset` with about so many records: an offset behind it,
    unless there is nothing more."""
    spans = _spans(settled, definition)
    head = settled.boundary.get(definition.load_streamlet, 0)
    at = skip_gap(settled, definition, offset)
    while at < head and rows > 0:
        here = (spans.start <= at) & (spans.stop > at)
        dense = float((spans.rows[here] / (spans.stop[here] - spans.start[here])).sum())
        edges = np.concatenate((spans.start[spans.start > at], spans.stop[spans.stop > at]))
        edge = int(edges.min()) if len(edges) else OFFSET_END
        room = edge - at if dense <= 0 else min(edge - at, max(1, int(rows / dense)))
        rows -= max(1, round(room * dense))
        at = skip_gap(settled, definition, at + room) if rows > 0 else at + room
    return min(at, head)


def _spans(settled: SettledSnapshot, definition: StreamDefinition) -> Spans:
    objects = settled.objects
    return spans_of(objects, objects.prune(Compare("=", STREAMLET, definition.load_streamlet)).keep)
