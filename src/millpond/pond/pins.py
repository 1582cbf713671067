"""Settled records that stay in memory for a while: consumer groups are about to read them (K9).

After a settle the log could let go of everything. It keeps what some group has not processed, because reading that from
objects again costs more than keeping it for a moment. It is a favour, not a promise: it ends when the records have been
settled for `pin_seconds`, or when memory is half full. The group then reads objects, by the same call and without
noticing. So a group that is slow or dead never makes memory grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from millpond.clock import Clock
from millpond.log.engine import LogEngine
from millpond.model.offsets import Boundary
from millpond.settings import Settings

# What every consumer group of a stream has processed, per streamlet; None if it has no groups.
Processed = Callable[[int], Mapping[int, int] | None]
# The same for records that have no other home: by stream, generation and where its streamlets begin, up to where they
# were given to some group and are wanted by none.
Given = Callable[[int, int, Mapping[int, int]], Mapping[int, int]]
# Of the memory quota; beyond, room for what is live comes first.
SHARE_MAX = 0.5


class Pins:
    """Of one stream. Not thread-safe: whoever settles or lets go of the stream holds its lock."""

    def __init__(self, log: LogEngine, clock: Clock, settings: Settings, processed: Processed) -> None:
        self._log, self._clock, self._processed = log, clock, processed
        self._seconds = settings.pin_seconds
        self._settles: deque[tuple[float, Boundary]] = deque()  # when, and up to where
        self._expired: Boundary = {}
        self.held = False

    def settled(self, boundary: Boundary) -> None:
        """The records under the boundary have settled."""
        if self._seconds:
            self._settles.append((self._clock.monotonic_seconds(), dict(boundary)))

    def truncated(self) -> None:
        """Whatever had settled is gone, and offsets begin anew."""
        self._settles.clear()
        self._expired, self.held = {}, False

    def floor(self, stream_id: int, boundary: Boundary) -> dict[int, int]:
        """Up to where the log may let go."""
        whole = dict(boundary)
        self.held = False
        while self._settles and self._settles[0][0] <= self._clock.monotonic_seconds() - self._seconds:
            self._expired = self._settles.popleft()[1]
        processed = self._processed(stream_id) if self._settles else None
        if processed is None:
            return whole
        status = self._log.status()
        if status.memory_bytes >= status.memory_quota_bytes * SHARE_MAX:
            return whole
        pinned = {s: min(end, max(processed.get(s, end), self._expired.get(s, 0))) for s, end in whole.items()}
        self.held = pinned != whole
        return pinned
