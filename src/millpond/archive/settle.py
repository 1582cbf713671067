"""Settling: a range of offsets moves from the log into objects, with one commit that carries the new boundary.

Steps: look at the newest table and compare its boundary with the range's start (another settler may have moved it);
check and write the rows; commit; make the commit durable. A crash before the commit leaves the old boundary and
objects that nobody names; a crash after it leaves the new boundary and the new rows. There is nothing in between.

Invariant (I3): a commit adds rows of exactly [start, stop) per streamlet, each offset at most once, and moves the
boundary from start to stop. Ranges without rows (discarded ones) move it as well. The streamlet of loads is not a
settle's business: its boundary stays what it is, also if a load commits meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.archive.commit_log import Refused
from millpond.archive.layout.arranging import Arranging
from millpond.archive.ledger import Change, Ledger
from millpond.archive.shape import conform
from millpond.archive.state import TableState
from millpond.archive.writing import OBJECT_BYTES, ObjectWriter, WrittenObjects
from millpond.errors import InvalidInput, SettleConflict, SettleFailed
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import Boundary, OffsetRange
from millpond.model.schema import OFFSET, STREAMLET, stored_schema
from millpond.storage.protocol import Storage

# Commits of other writers that leave the boundary alone (a compaction, say) only mean: try again on top of them.
_COMMIT_TRIES = 5


@dataclass(frozen=True)
class SettleReport:
    """What one settle did. `boundary` is the whole one after it; bytes in are Arrow's, bytes written are Parquet."""

    version: int
    objects: int
    rows: int
    bytes_in: int
    bytes_written: int
    boundary: Mapping[int, int]
    partitions: int


def settle(
    storage: Storage,
    ledger: Ledger,
    start: Boundary,
    stop: Boundary,
    batches: Iterable[pa.RecordBatch],
    *,
    object_bytes: int = OBJECT_BYTES,
    arranging: Arranging | None = None,
) -> SettleReport:
    """Raises `SettleConflict` if the boundary is not `start`, `SettleFailed` if a step fails; nothing is lost then."""
    loads = ledger.definition.load_streamlet
    if stop.get(loads, start.get(loads, 0)) == start.get(loads, 0):
        start, stop = ({s: offset for s, offset in one.items() if s != loads} for one in (start, stop))
    ranges = _ranges(ledger.definition, start, stop)
    try:
        check_boundary(ledger, start)
        if ledger.state is None:
            ledger.create_table()
        block = add_columns(ledger).version + 1
        with ObjectWriter(
            storage, ledger.root, ledger.definition, block, object_bytes=object_bytes, arranging=arranging
        ) as writer:
            try:
                written = _write(writer, ledger.definition, ranges, batches)
            except Exception:
                writer.discard()
                raise
            try:
                return _commit(ledger, start, stop, written)
            except (SettleConflict, OSError):
                writer.discard()  # the commit was refused, or not even tried: nothing can name the objects any more
                raise
    except OSError as error:
        raise SettleFailed(
            f"{ledger.definition.name} could not settle: {error}",
            hint="the records stay live and nothing is lost; look at the archive's disk, then settle again",
        ) from error


def _commit(ledger: Ledger, start: Boundary, stop: Boundary, written: WrittenObjects) -> SettleReport:
    for _ in range(_COMMIT_TRIES):
        state = check_boundary(ledger, start)
        boundary = {**({} if state is None else state.boundary), **stop}
        try:
            after = ledger.commit(Change("settle", boundary, written.added, entries=written.entries))
        except Refused:
            continue
        return SettleReport(
            after.version,
            len(written.added),
            written.rows,
            written.bytes_in,
            written.bytes_written,
            boundary,
            written.partitions,
        )
    raise SettleConflict(
        f"other writers committed to {ledger.definition.name} {_COMMIT_TRIES} times meanwhile",
        hint="the records stay live; settle again",
    )


def check_boundary(ledger: Ledger, start: Boundary) -> TableState | None:
    """The newest state, whose boundary is `start`."""
    state = ledger.refresh()
    boundary = {} if state is None else state.boundary
    for streamlet in sorted({*boundary, *start} - {ledger.definition.load_streamlet}):
        there, expected = boundary.get(streamlet, 0), start.get(streamlet, 0)
        if there != expected:
            raise SettleConflict(
                f"streamlet {streamlet} of {ledger.definition.name} has settled up to {there}, expected {expected}",
                hint="another settler was first and its commit stands: go on from the newest snapshot",
            )
    return state


def add_columns(ledger: Ledger) -> TableState:
    """The table gets the columns that the stream has and it lacks; the state that this leads to."""
    try:
        return ledger.add_missing_columns()
    except Refused as error:
        raise SettleConflict(
            f"another writer committed to {ledger.definition.name} while columns were added",
            hint="the records stay live; settle again",
        ) from error


def _ranges(definition: StreamDefinition, start: Boundary, stop: Boundary) -> dict[int, OffsetRange]:
    ranges = {}
    for streamlet in {*start, *stop}:
        low = start.get(streamlet, 0)
        high = stop.get(streamlet, low)
        if not 0 <= streamlet < definition.streamlets or not 0 <= low <= high:
            raise InvalidInput(
                f"{definition.name} cannot settle [{low}, {high}) of streamlet {streamlet}",
                hint=f"streamlets are 0 to {definition.streamlets - 1}, and a boundary only moves forward",
            )
        ranges[streamlet] = OffsetRange(low, high)
    return ranges


def _write(
    writer: ObjectWriter,
    definition: StreamDefinition,
    ranges: Mapping[int, OffsetRange],
    batches: Iterable[pa.RecordBatch],
) -> WrittenObjects:
    schema = stored_schema(definition.schema)
    # Per streamlet, where the next row may be at the earliest.
    reached = {streamlet: offsets.start for streamlet, offsets in ranges.items()}
    for batch in batches:
        if batch.num_rows:
            ready = conform(batch, schema)
            _check_offsets(ready, ranges, reached)
            writer.add(ready)
    return writer.finish()


def _check_offsets(batch: pa.RecordBatch, ranges: Mapping[int, OffsetRange], reached: dict[int, int]) -> None:
    streamlets, offsets = batch.column(STREAMLET).to_numpy(), batch.column(OFFSET).to_numpy()
    first = int(streamlets[0])
    found = [first] if bool((streamlets == first).all()) else np.unique(streamlets).tolist()
    for streamlet in found:
        own = offsets if len(found) == 1 else offsets[streamlets == streamlet]
        allowed = ranges.get(streamlet, OffsetRange(0, 0))
        low, high = int(own[0]), int(own[-1])
        if low < reached.get(streamlet, 0) or high >= allowed.stop or not bool((np.diff(own) > 0).all()):
            raise InvalidInput(
                f"offsets {low} to {high} of streamlet {streamlet} are not the next ones of {allowed}",
                hint="a settle takes each record of its range once, in the order of offsets",
            )
        reached[streamlet] = high + 1
