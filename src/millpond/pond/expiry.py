"""Letting go of what has expired: whole objects, and whole segments that expired before they settled.

Reads leave expired records out from the moment they expire, so this only makes room. A stream that is archived drops
objects and moves its boundary over expired live records by one commit; then the log lets go. One that is never archived
drops its oldest segments: those that have expired, and those that consumer groups were given and none wants any more;
the log remembers where it begins then. Nothing else has those records, so what no group was ever given stays: a group
that begins at the end of a stream says nothing about what lies before.

What goes is on record in `_pond/audit` before it goes (I6). A failure after that leaves everything as it was, and the
next attempt, which has a record of its own, drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from millpond.archive.expire import ExpiredObjects
from millpond.clock import Clock
from millpond.errors import MillpondError
from millpond.log.engine import LogEngine, SegmentInfo
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange, ranges_between
from millpond.pond.pins import Given
from millpond.pond.settling import Settling
from millpond.query import Halves
from millpond.wire.status import DropState

# Between two looks at a stream: what has expired is hidden meanwhile, and each drop is a commit.
LOOK_SECONDS_MAX = 60.0
# A short ttl is looked at so many times within it.
LOOKS_PER_TTL = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A cutoff after every time: what was dropped for another reason had not expired.
_NEVER = 2**62

# Puts a discard on record: action and detail.
Record = Callable[[str, str], None]


class Expiry:
    """One stream's drops. Thread-safe; takes turns with its settling."""

    def __init__(self, halves: Halves, settling: Settling, clock: Clock, record: Record, given: Given) -> None:
        self._halves, self._settling, self._clock = halves, settling, clock
        self._record, self._given = record, given
        self._look_at = float("-inf")
        self.state = DropState()

    def drop_if_due(self) -> bool:
        """Look for what can go, if it is time to; whether anything went."""
        definition, now = self._halves.definition, self._clock.monotonic_seconds()
        if now < self._look_at:
            return False
        ttl = definition.ttl_seconds
        pause = LOOK_SECONDS_MAX if ttl is None else min(LOOK_SECONDS_MAX, ttl / LOOKS_PER_TTL)
        self._look_at = now + pause
        return self.drop()

    def look_soon(self) -> None:
        """The ttl has changed: the next look is not far."""
        self._look_at = float("-inf")

    def drop(self) -> bool:
        """Let go of what can go now; whether there was anything."""
        if not _loses(self._halves.definition):
            return False
        with self._settling.alone:
            definition = self._halves.definition  # of the generation that stays while this is held
            if not _loses(definition):
                return False
            try:
                dropped = self._drop_live(definition) if definition.settle is None else self._drop(definition)
            except MillpondError as error:
                self.state = self.state.failed(error.message)
                raise
        return dropped

    def _drop(self, definition: StreamDefinition) -> bool:
        """Of a stream that is archived."""
        cutoff = definition.cutoff_micros(self._clock.now_micros())
        assert cutoff is not None
        log, archive = self._halves.log, self._halves.archive
        start = archive.snapshot(refresh=True).boundary
        live, size = _prefix(log, definition, start, lambda info: info.last_ingest_micros < cutoff)
        if live:
            log.sync()
        going: list[ExpiredObjects] = []

        def before(objects: ExpiredObjects) -> None:
            going.append(objects)
            self._record("expire", _detail(definition, live, size, objects, cutoff))
            self._halves.note_dropped(live, cutoff)

        stop = {**start, **{streamlet: offsets.stop for streamlet, offsets in live.items()}}
        archive.expire(cutoff, start, stop, before)
        if not going:
            return False
        if live:
            log.release(definition.id, archive.snapshot().boundary, generation=definition.generation)
        rows = sum(map(len, live.values())) + going[0].rows
        self.state = self.state.dropped(rows, size + going[0].bytes, len(going[0].objects), self._clock.now_micros())
        return True

    def _drop_live(self, definition: StreamDefinition) -> bool:
        """Of a stream that is never archived."""
        log = self._halves.log
        cutoff = definition.cutoff_micros(self._clock.now_micros())
        generation, starts = definition.generation, log.starts(definition.id)
        processed = self._given(definition.id, generation, starts)
        early = False  # whether something goes that has not expired

        def gone(info: SegmentInfo) -> bool:
            nonlocal early
            if cutoff is not None and info.last_ingest_micros < cutoff:
                return True
            # One that still grows is not worth a record: it may be the next moment's.
            done = info.state != "active" and info.offsets.stop <= processed.get(info.streamlet, 0)
            early = early or done
            return done

        live, size = _prefix(log, definition, starts, gone)
        if not live:
            return False
        self._record("processed" if early else "expire", _detail(definition, live, size, ExpiredObjects(), cutoff))
        self._halves.note_dropped(live, _NEVER if early or cutoff is None else cutoff)
        log.release(
            definition.id, {streamlet: offsets.stop for streamlet, offsets in live.items()}, generation=generation
        )
        self.state = self.state.dropped(sum(map(len, live.values())), size, 0, self._clock.now_micros())
        return True


def _loses(definition: StreamDefinition) -> bool:
    """Whether such a stream ever drops something."""
    return definition.ttl_seconds is not None or definition.settle is None


def _prefix(
    log: LogEngine, definition: StreamDefinition, start: Mapping[int, int], gone: Callable[[SegmentInfo], bool]
) -> tuple[dict[int, OffsetRange], int]:
    """Per streamlet the live records from `start` on that lie in segments which may go, up to the first that may not;
    and their bytes."""
    stop, size = dict(start), 0
    stuck: set[int] = set()
    for info in sorted(log.segments(definition.id), key=lambda each: each.offsets):
        if info.offsets.stop <= start.get(info.streamlet, 0) or info.streamlet in stuck:
            continue
        if gone(info):
            stop[info.streamlet] = info.offsets.stop
            size += info.bytes
        else:
            stuck.add(info.streamlet)
    return ranges_between(start, stop), size


def _detail(
    definition: StreamDefinition,
    live: Mapping[int, OffsetRange],
    size: int,
    objects: ExpiredObjects,
    cutoff_micros: int | None,
) -> str:
    ranges = ",".join(f"{streamlet}:{offsets.start}-{offsets.stop}" for streamlet, offsets in live.items())
    parts = [
        f"rows_live={sum(map(len, live.values()))} rows_settled={objects.rows} id={definition.id}",
        f"generation={definition.generation} bytes_live={size} bytes_settled={objects.bytes}",
        f"objects={len(objects.objects)} offsets={ranges or '-'}",
    ]
    if cutoff_micros is not None:
        parts.append(f"before={(_EPOCH + timedelta(microseconds=cutoff_micros)).isoformat()}")
    return " ".join(parts)
