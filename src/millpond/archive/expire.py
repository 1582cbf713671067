"""Expiring: objects that hold nothing but expired records leave the table, by one commit that adds nothing.

The same commit may move the boundary over live records that have expired before they settled: those are never written.
A crash leaves the old table or the new one. Files stay where they are: older snapshots and running queries read them,
and `vacuum` removes them later.

The commit states how many records go, so that verification can tell them from records that were lost.

The streamlet of loads is not an expiry's business, as it is not a settle's: its boundary stays what it is in the newest
version, also if a load commits meanwhile.

Invariant (I4): an object goes only if its statistics prove that every record in it was ingested before the cutoff.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.archive.commit_log import Refused
from millpond.archive.ledger import Change, Ledger
from millpond.archive.object_index import ObjectIndex
from millpond.archive.settle import check_boundary
from millpond.archive.table import Removed
from millpond.errors import SettleConflict, SettleFailed
from millpond.model.offsets import Boundary
from millpond.model.schema import INGEST_TIME, STREAMLET

# What one commit removes at most: a removal is a line of it.
OBJECTS_MAX = 10_000


@dataclass(frozen=True)
class ExpiredObjects:
    """Objects of one version whose records have all expired. `loaded`: how many of those had been loaded."""

    objects: tuple[Removed, ...] = ()
    loaded: int = 0

    @property
    def rows(self) -> int:
        return sum(one.rows or 0 for one in self.objects)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.objects)


def expired_objects(objects: ObjectIndex, cutoff_micros: int, load_streamlet: int) -> ExpiredObjects:
    """Those with nothing ingested at the cutoff or later, the oldest first."""
    known, streamlets = (objects.stats.columns.get(name) for name in (INGEST_TIME, STREAMLET))
    if known is None or streamlets is None:
        return ExpiredObjects()
    # A table that does not say how many rows an object has cannot say what goes with it.
    places = np.flatnonzero((known.highs < cutoff_micros) & (objects.rows >= 0))[:OBJECTS_MAX].tolist()
    return ExpiredObjects(
        tuple(Removed(objects.paths[at], int(objects.sizes[at]), int(objects.rows[at])) for at in places),
        sum(int(objects.rows[at]) for at in places if streamlets.lows[at] == load_streamlet),
    )


def expire(ledger: Ledger, start: Boundary, stop: Boundary, expired: ExpiredObjects) -> None:
    """Remove these objects of the newest version, and move the boundary from `start` to `stop`, durably. Raises
    `SettleConflict` if another writer was first, `SettleFailed` if a step fails; nothing has changed then."""
    loads = ledger.definition.load_streamlet
    start, stop = ({s: offset for s, offset in one.items() if s != loads} for one in (start, stop))
    try:
        state = check_boundary(ledger, start)
        if state is None:
            state = ledger.create_table()
        live = sum(stop[streamlet] - start.get(streamlet, 0) for streamlet in stop)
        rows = live + expired.rows - expired.loaded
        ledger.commit(Change("expire", {**state.boundary, **stop}, removed=expired.objects, expired=rows))
    except Refused as error:
        raise SettleConflict(
            f"another writer committed to {ledger.definition.name} while expired records were dropped",
            hint="nothing has changed; it is tried again",
        ) from error
    except OSError as error:
        raise SettleFailed(
            f"expired records of {ledger.definition.name} could not be dropped: {error}",
            hint="nothing has changed; look at the archive's disk",
        ) from error
