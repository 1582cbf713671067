"""The segments of a stream, live and archived, as one list, and the records of any one of them (K6).

A live segment is listed until its last record has settled; a settled one is an object of the newest snapshot, known by
its path. A segment that settles between a listing and a read is found no more under its old id: list again. One whose
records have all expired is not listed any more, and of one that is, only the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millpond.archive.object_index import ObjectIndex
from millpond.errors import InvalidValue
from millpond.log.engine import SegmentInfo
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET
from millpond.query.halves import Halves
from millpond.query.projection import Projection, pieces
from millpond.query.snapshot import Snapshot


@dataclass(frozen=True)
class SegmentListing:
    """One segment. What an object's index entry does not tell is None; one of several streamlets has no `streamlet`,
    and its `offsets` span those of all."""

    id: str
    state: str  # "active", "sealed", "spilled" or "settled"
    streamlet: int | None
    offsets: OffsetRange | None
    rows: int | None
    bytes: int
    first_ingest_micros: int | None
    last_ingest_micros: int | None


def segments(halves: Halves) -> list[SegmentListing]:
    """The settled ones first, then the live ones, each by offset."""
    snapshot = halves.snapshot()
    live = _live_segments(halves, snapshot)
    while halves.generation != snapshot.generation:
        snapshot = halves.snapshot()
        live = _live_segments(halves, snapshot)
    objects = snapshot.settled.objects
    settled = [_settled(objects, at) for at in np.flatnonzero(~snapshot.expired_objects).tolist()]
    settled.sort(key=lambda found: (found.offsets.start if found.offsets else 0, found.id))
    return settled + [_live(info) for info in live]


def read_segment(halves: Halves, segment_id: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of one segment, with system columns unless `columns` says otherwise."""
    projection = Projection.of(halves.definition, columns, system=True)
    names = projection.schema.names
    snapshot = halves.snapshot()
    for info in _live_segments(halves, snapshot):
        if info.id == segment_id:
            found = halves.read_range(
                snapshot.generation, info.streamlet, info.offsets, names, cutoff_micros=snapshot.cutoff_micros
            )
            return _bounded(projection, found)
    chosen = np.array([path == segment_id for path in snapshot.settled.objects.paths], np.bool_)
    chosen &= ~snapshot.expired_objects
    if not chosen.any():
        raise InvalidValue(
            f"{halves.definition.name} has no segment {segment_id!r}", hint="it may have settled: list segments again"
        )
    return _bounded(projection, snapshot.settled.read(chosen, names, snapshot.unexpired))


def _bounded(projection: Projection, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from map(projection.apply, pieces(batch))


def _live_segments(halves: Halves, snapshot: Snapshot) -> list[SegmentInfo]:
    """Those with live records, without the part that has settled, so that no record is listed twice."""
    found = []
    for info in halves.log.segments(halves.definition.id):
        begin = max(snapshot.boundary.get(info.streamlet, 0), snapshot.floor.get(info.streamlet, 0))
        expired = snapshot.cutoff_micros is not None and info.last_ingest_micros < snapshot.cutoff_micros
        if info.offsets.stop > begin and not expired:
            found.append(replace(info, offsets=OffsetRange(max(info.offsets.start, begin), info.offsets.stop)))
    return sorted(found, key=lambda info: (info.streamlet, info.offsets))


def _live(info: SegmentInfo) -> SegmentListing:
    return SegmentListing(
        info.id,
        info.state,
        info.streamlet,
        info.offsets,
        len(info.offsets),
        info.bytes,
        info.first_ingest_micros,
        info.last_ingest_micros,
    )


def _settled(objects: ObjectIndex, at: int) -> SegmentListing:
    def bounds(column: str) -> tuple[int | None, int | None]:
        known = objects.stats.columns.get(column)
        if known is None:
            return None, None
        numbers = (bound[at].cast(pa.int64()).as_py() for bound in (known.mins, known.maxs))
        return next(numbers), next(numbers)

    first, last = bounds(OFFSET)
    low, high = bounds(STREAMLET)
    since, until = bounds(INGEST_TIME)
    return SegmentListing(
        objects.paths[at],
        "settled",
        low if low == high else None,
        None if first is None or last is None else OffsetRange(first, last + 1),
        int(objects.rows[at]) if objects.rows[at] >= 0 else None,
        int(objects.sizes[at]),
        since,
        until,
    )
