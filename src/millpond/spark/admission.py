"""How far a micro-batch goes: to the heads, or as far as its limits allow.

Every streamlet gets the share of the limit that it has of what waits, so that none is starved. Offsets of a log are
dense: a record each. Those of the streamlet that exists in the archive alone are not, because a load leaves gaps, so
there objects are counted, and a batch ends between two of them; one is always taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from millpond.archive.snapshot import SettledSnapshot
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET, STREAMLET


@dataclass(frozen=True)
class Waiting:
    """What one streamlet has waiting: `records` in `offsets`. `stops` are the only places where it may be cut, each
    with the records before it; None if it may be cut anywhere."""

    offsets: OffsetRange
    records: int
    stops: tuple[tuple[int, int], ...] | None = None

    def cut(self, records: int) -> int:
        """The end of the first `records` records."""
        if records >= self.records:
            return self.offsets.stop
        if self.stops is None:
            return self.offsets.start + records
        fitting = [stop for stop, before in self.stops if before <= records]
        return fitting[-1] if fitting else self.stops[0][0]


def waiting(settled: SettledSnapshot, streamlets: int, ranges: Mapping[int, OffsetRange]) -> dict[int, Waiting]:
    """What waits in each range; streamlets from `streamlets` on exist in the archive alone."""
    return {
        streamlet: Waiting(offsets, len(offsets)) if streamlet < streamlets else _loaded(settled, streamlet, offsets)
        for streamlet, offsets in ranges.items()
    }


def _loaded(settled: SettledSnapshot, streamlet: int, offsets: OffsetRange) -> Waiting:
    objects = settled.objects
    numbers, places = objects.stats.columns[STREAMLET], objects.stats.columns[OFFSET]
    own = np.flatnonzero((numbers.lows == streamlet) & (numbers.highs == streamlet) & (places.highs >= offsets.start))
    ordered = own[np.argsort(places.lows[own], kind="stable")]
    before = np.cumsum(np.maximum(objects.rows[ordered], 0))
    ends = [*(int(low) for low in places.lows[ordered[1:]]), offsets.stop]
    stops = tuple(zip(ends, (int(count) for count in before), strict=True))[: len(ordered)]
    return Waiting(offsets, int(before[-1]) if len(before) else 0, stops or ((offsets.stop, 0),))


def shares(waits: Mapping[int, Waiting], records_max: int) -> dict[int, int]:
    """Where the batch ends, per streamlet, if it may hold so many records."""
    total = sum(wait.records for wait in waits.values())
    if total <= records_max:
        return {streamlet: wait.offsets.stop for streamlet, wait in waits.items()}
    granted = {streamlet: wait.records * records_max // total for streamlet, wait in waits.items()}
    left = records_max - sum(granted.values())
    # What rounding left goes to those that lost most by it; so every limit, also one record, makes progress.
    for streamlet in sorted(waits, key=lambda s: (-(waits[s].records * records_max % total), s))[:left]:
        granted[streamlet] += 1
    return {
        streamlet: wait.cut(granted[streamlet]) if granted[streamlet] else wait.offsets.start
        for streamlet, wait in waits.items()
    }


def records_of_bytes(bytes_max: int, records_settled: int, settled_bytes_each: float, live_bytes_each: float) -> int:
    """About how many records have so many bytes, those that have settled first; never none."""
    settled_bytes = records_settled * settled_bytes_each
    if bytes_max <= settled_bytes:
        return max(1, int(bytes_max / settled_bytes_each))
    return max(1, records_settled + int((bytes_max - settled_bytes) / max(1.0, live_bytes_each)))
