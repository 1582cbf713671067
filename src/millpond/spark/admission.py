"""How far a micro-batch goes: to the heads, or as far as its limits allow.

Every streamlet gets the share of the limit that it has of what waits, so that none is starved. Offsets of a log are
dense: a record each. Those of loads have wide gaps: there objects are counted, and the limit holds about.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.query.loads import reach, rows_between
from millpond.query.snapshot import Snapshot


def waiting(snapshot: Snapshot, definition: StreamDefinition, ranges: Mapping[int, OffsetRange]) -> dict[int, int]:
    """How many records each range has."""
    return {
        streamlet: rows_between(snapshot.settled, definition, offsets)
        if streamlet == definition.load_streamlet
        else len(offsets)
        for streamlet, offsets in ranges.items()
    }


def ends_within(
    records_max: int, snapshot: Snapshot, definition: StreamDefinition, ranges: Mapping[int, OffsetRange]
) -> dict[int, int]:
    """Where a batch ends, per streamlet, if it may hold so many records."""
    waits = waiting(snapshot, definition, ranges)
    ends = {streamlet: offsets.stop for streamlet, offsets in ranges.items()}
    if sum(waits.values()) <= records_max:
        return ends
    for streamlet, records in shares(waits, records_max).items():
        start = ranges[streamlet].start
        if not records:
            ends[streamlet] = start
        elif streamlet == definition.load_streamlet:
            ends[streamlet] = min(ends[streamlet], reach(snapshot.settled, definition, start, records))
        else:
            ends[streamlet] = start + records
    return ends


def shares(waits: Mapping[int, int], records_max: int) -> dict[int, int]:
    """The limit, dealt out in proportion to what waits: exactly all of it."""
    total = sum(waits.values())
    granted = {streamlet: records * records_max // total for streamlet, records in waits.items()}
    left = records_max - sum(granted.values())
    # What rounding left goes to those that lost most by it; so every limit, also of one record, makes progress.
    for streamlet in sorted(waits, key=lambda s: (-(waits[s] * records_max % total), s))[:left]:
        granted[streamlet] += 1
    return granted


def records_of_bytes(bytes_max: int, settled: int, settled_bytes_each: float, live_bytes_each: float) -> int:
    """About how many records have so many bytes, the `settled` ones first; never none."""
    settled_bytes = settled * settled_bytes_each
    if bytes_max < settled_bytes:
        return max(1, int(bytes_max / settled_bytes_each))
    return max(1, settled + int((bytes_max - settled_bytes) / max(1.0, live_bytes_each)))
