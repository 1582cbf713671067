"""From which offset on a stream still has its records. What lies before has expired; who wanted it is told.

Objects tell the least offset they hold, not of which streamlet it is. So the answer is a bound: nothing that is there
lies before it, and of what is gone a part may lie behind it.
"""

from __future__ import annotations

import numpy as np

from millpond.model.definition import StreamDefinition
from millpond.model.schema import STREAMLET
from millpond.query.objects import spans_of
from millpond.query.snapshot import Snapshot


def kept_from(snapshot: Snapshot, definition: StreamDefinition) -> dict[int, int]:
    """Per streamlet. Loads are left at 0: their offsets have gaps that tell nothing."""
    objects = snapshot.settled.objects
    keep = ~snapshot.expired_objects
    streamlets = objects.stats.columns.get(STREAMLET)
    if streamlets is not None:
        keep &= streamlets.lows < definition.load_streamlet
    first = spans_of(objects, keep).start
    settled_from = int(first.min()) if len(first) else int(np.iinfo(np.int64).max)
    return {
        streamlet: 0
        if streamlet == definition.load_streamlet
        else max(snapshot.floor.get(streamlet, 0), min(settled_from, snapshot.boundary.get(streamlet, 0)))
        for streamlet in snapshot.heads
    }
