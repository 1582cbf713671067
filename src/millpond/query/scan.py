"""Scan and count: the records that match, live ∪ settled, of one exact snapshot; and what a scan would have to read.

Objects that cannot match are never opened; segments that cannot match are never looked at (the log does that). Both
halves get the columns and the predicate, so what does not match is dropped where it lies (K13). The order of
rows is not promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidValue, Truncated
from millpond.model.predicate import TRUE, Predicate
from millpond.model.prune import Mask
from millpond.model.query_note import QueryNote
from millpond.model.schema import OFFSET
from millpond.query.halves import Halves
from millpond.query.object_map import ObjectMap, map_columns, object_map
from millpond.query.projection import Projection, pieces
from millpond.query.snapshot import Snapshot
from millpond.query.terms import Where, both, is_never, ready

T = TypeVar("T")


@dataclass(frozen=True)
class QueryReport:
    """What answering a query takes. Rows are upper bounds: those of the objects and ranges that must be looked at,
    as far as they are known."""

    objects_read: int
    objects_total: int
    bytes_read: int
    bytes_total: int
    skipped_by: Mapping[str, int]
    rows_settled: int
    rows_live: int
    version: int
    boundary: Mapping[int, int]
    requests: int = 0
    """Objects to open."""
    deciding_seconds: float = 0.0
    """How long it took to find out."""
    failures: Mapping[str, str] = field(default_factory=dict)  # indexes and filters that failed, and how


def scan(
    halves: Halves, where: Where = None, columns: Sequence[str] | None = None, limit: int | None = None
) -> pa.Table:
    """The records that match, as one table: the user's columns, or those named (system columns among them)."""

    def once() -> pa.Table:
        schema, batches = open_scan(halves, where, columns, limit)
        return pa.Table.from_batches(list(batches), schema)

    return _of_one_generation(halves, once)


def _of_one_generation(halves: Halves, ask: Callable[[], T]) -> T:
    """An answer that is given as a whole is found anew if the stream was truncated meanwhile."""
    while True:
        generation = halves.generation
        try:
            return ask()
        except Truncated:
            if halves.generation == generation:
                raise


def scan_batches(
    halves: Halves, where: Where = None, columns: Sequence[str] | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """As `scan`, in batches of bounded size. The snapshot is that of the call, not of the first batch."""
    return open_scan(halves, where, columns, limit)[1]


def open_scan(
    halves: Halves, where: Where, columns: Sequence[str] | None, limit: int | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """As `scan_batches`, with the schema of the batches."""
    if limit is not None and limit < 0:
        raise InvalidValue(f"a limit of {limit}", hint="0 or more rows; leave it out for all")
    definition = halves.definition
    projection = Projection.of(definition, columns)
    predicate = ready(where, definition.schema)
    snapshot = halves.snapshot()
    matching = iter(()) if limit == 0 else _matching(halves, snapshot, projection, predicate)
    return projection.schema, _limited(matching, limit)


def _matching(
    halves: Halves, snapshot: Snapshot, projection: Projection, predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    if is_never(predicate):
        return
    names = projection.schema.names
    wanted = both(predicate, snapshot.unexpired)
    keep = snapshot.settled.prune(wanted).keep
    _note(halves, snapshot, predicate, keep)
    for batch in snapshot.settled.read(keep, names, wanted):
        yield from map(projection.apply, pieces(batch))
    for batch in _live(halves, snapshot, names, predicate):
        yield from map(projection.apply, pieces(batch))


def _note(halves: Halves, snapshot: Snapshot, predicate: Predicate | None, keep: Mask) -> None:
    """Leave a note of what is asked, for the history of queries."""
    if halves.note_query is not None:
        sizes = snapshot.settled.objects.sizes
        read = int(np.count_nonzero(keep)), int(sizes[keep].sum())
        halves.note_query(QueryNote(predicate or TRUE, read[0], len(sizes), read[1], int(sizes.sum())))


def _live(
    halves: Halves, snapshot: Snapshot, columns: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    for streamlet, offsets in snapshot.live.items():
        yield from halves.read_range(
            snapshot.generation, streamlet, offsets, columns, predicate, cutoff_micros=snapshot.cutoff_micros
        )


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def count(halves: Halves, where: Where = None) -> int:
    """How many records match. Without a predicate the settled half answers from its index, unread."""
    return _of_one_generation(halves, lambda: _count(halves, ready(where, halves.definition.schema)))


def _count(halves: Halves, predicate: Predicate | None) -> int:
    snapshot = halves.snapshot()
    if is_never(predicate):
        return 0
    objects = snapshot.settled.objects
    wanted = both(predicate, snapshot.unexpired)
    found, keep = 0, snapshot.settled.prune(wanted).keep
    if predicate is not None:
        _note(halves, snapshot, predicate, keep)
    if predicate is None:  # the few are left to read whose number of rows the table does not tell
        unread = (objects.rows >= 0) & ~snapshot.mixed_objects
        found, keep = int(objects.rows[unread & ~snapshot.expired_objects].sum()), keep & ~unread
    for batch in snapshot.settled.read(keep, [OFFSET], wanted):
        found += int(batch.num_rows)
    # Offsets may have gaps in a replicated log, so that live records are counted, not subtracted.
    for batch in _live(halves, snapshot, [OFFSET], predicate):
        found += int(batch.num_rows)
    return found


def plan(halves: Halves, where: Where = None) -> QueryReport:
    """What a scan with this predicate would read and skip, without reading it."""
    predicate = ready(where, halves.definition.schema)
    snapshot = halves.snapshot()
    objects = snapshot.settled.objects
    began = time.perf_counter()
    pruning = snapshot.settled.prune(both(predicate, snapshot.unexpired))
    deciding = time.perf_counter() - began
    return QueryReport(
        objects_read=int(pruning.keep.sum()),
        objects_total=len(objects),
        bytes_read=int(objects.sizes[pruning.keep].sum()),
        bytes_total=int(objects.sizes.sum()),
        skipped_by=dict(pruning.skipped_by),
        rows_settled=int(np.maximum(objects.rows[pruning.keep], 0).sum()),
        rows_live=0 if is_never(predicate) else sum(map(len, snapshot.live.values())),
        version=snapshot.version,
        boundary=dict(snapshot.boundary),
        requests=int(pruning.keep.sum()),
        deciding_seconds=deciding,
        failures=dict(pruning.failures),
    )


def draw(halves: Halves, where: Where = None, axes: Sequence[str] | None = None) -> ObjectMap:
    """Where the settled objects lie along two columns, and which a scan with this predicate would read."""
    definition = halves.definition
    x, y = map_columns(definition, axes)
    predicate = ready(where, definition.schema)
    snapshot = halves.snapshot()
    objects = snapshot.settled.objects
    keep = snapshot.settled.prune(both(predicate, snapshot.unexpired)).keep
    return object_map(objects, keep, predicate, snapshot.settled.schema, x, y)
