"""Settling one stream: from the log to the archive, and only then out of the log.

The order is what makes it safe at every step: the journal is synced through what settles (I3), the archive makes the
records and the new boundary visible in one synced commit, and after that the log lets go. A failure leaves the records
where they were; the next attempt starts from whatever boundary the archive has. What consumer groups are about to read
stays a little longer (`pins`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from millpond.archive.settle import SettleReport
from millpond.archive.stream_archive import StreamArchive
from millpond.clock import Clock
from millpond.errors import InvalidValue, MillpondError, SettleFailed, Truncated
from millpond.log.engine import LogEngine
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange, ranges_between
from millpond.pond.pins import Pins
from millpond.settings import Settings
from millpond.telemetry import StreamTelemetry, Telemetry
from millpond.wire.status import SettleState

RETRY_SECONDS_FIRST = 1.0
# Between two looks at what is pinned: letting go looks through the journal's files.
UNPIN_SECONDS = 1.0


class Settling:
    """One stream's settling. Thread-safe; one settle of a stream at a time."""

    def __init__(
        self,
        definition: StreamDefinition,
        log: LogEngine,
        archive: StreamArchive,
        clock: Clock,
        settings: Settings,
        telemetry: Telemetry,
        own: StreamTelemetry,
        pins: Pins,
    ) -> None:
        """`own`: what is measured of this stream, beside `telemetry`, which is the pond's."""
        self._pins = pins
        self.merging_held: Callable[[], bool] = lambda: False
        self._telemetry, self._own = telemetry, own
        self.definition = definition
        self._log, self._archive, self._clock = log, archive, clock
        self._settings = settings
        self.alone = threading.Lock()  # whoever moves the boundary holds it
        self._settled_bytes = 0  # of those appended
        self._waiting_since: float | None = None
        self._retry_at = self._unpin_at = float("-inf")
        self.state = SettleState()

    def due(self) -> bool:
        """Whether it is time to settle by itself: enough bytes, or enough time since the first of them was noticed."""
        settle, now = self.definition.settle, self._clock.monotonic_seconds()
        waiting = self._log.appended_bytes(self.definition.id) - self._settled_bytes
        if settle is None or waiting <= 0:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if now < self._retry_at:
            return False
        return waiting >= settle.bytes_live or now - self._waiting_since >= settle.every_seconds

    def settle(self, *, background: bool = False) -> SettleReport | None:
        """Settle everything acknowledged up to now. None if there is nothing. `SettleFailed` leaves it live. In the
        background, objects are not smaller than they should be; otherwise every bucket of a layout becomes one."""
        if self.definition.settle is None:
            raise InvalidValue(
                f"{self.definition.name} is not archived", hint="create it with settle=millpond.Settle() to archive it"
            )
        with self.alone:
            appended, began = self._log.appended_bytes(self.definition.id), self._clock.monotonic_seconds()
            try:
                report = self._settle(self._settings.object_bytes_min if background else 0)
            except Truncated:
                report = None  # nothing is left of what was to settle
            except BaseException as error:
                self._failed(error)
                if isinstance(error, MillpondError) or not isinstance(error, Exception):
                    raise
                raise SettleFailed(
                    f"{self.definition.name} did not settle: {type(error).__name__}: {error}",
                    hint="the records stay live; it is tried again in the background, or call settle() again",
                ) from error
            self._settled_bytes, self._waiting_since = appended, None
            if report is not None:
                self._telemetry.settle_seconds.observe(self._clock.monotonic_seconds() - began)
            self._succeeded(report)
            return report

    def _settle(self, object_bytes_min: int) -> SettleReport | None:
        stream_id = self.definition.id
        settled = self._archive.snapshot(refresh=True)
        generation, heads = self._log.standing(stream_id)
        start = settled.boundary if settled.generation == generation else {}  # truncated a moment ago
        self._log.sync()
        ranges = ranges_between(start, heads)
        report = None
        if ranges:
            stop = {streamlet: offsets.stop for streamlet, offsets in ranges.items()}
            report = self._archive.settle(
                start,
                {**start, **stop},
                self._batches(generation, ranges),
                object_bytes=self._settings.block_bytes,
                object_bytes_min=object_bytes_min,
                generation=generation,
            )
        self._pins.settled(self._archive.snapshot().boundary)
        self._let_go()
        return report

    def truncated(self) -> None:
        """The stream was; whoever tells holds `alone`."""
        self._pins.truncated()

    def _let_go(self) -> None:
        """Of what has settled and is not pinned."""
        stream_id, settled = self.definition.id, self._archive.snapshot()
        floor = self._pins.floor(stream_id, settled.boundary)
        self._log.release(stream_id, floor, generation=settled.generation)

    def unpin(self) -> None:
        """Let go of what is no longer pinned, if it is time to look."""
        now = self._clock.monotonic_seconds()
        if self._pins.held and now >= self._unpin_at and self.alone.acquire(blocking=False):
            try:
                self._unpin_at = now + UNPIN_SECONDS
                self._let_go()
            finally:
                self.alone.release()

    def _batches(self, generation: int, ranges: dict[int, OffsetRange]) -> Iterator[pa.RecordBatch]:
        for streamlet, offsets in ranges.items():
            yield from self._log.read(self.definition.id, streamlet, offsets, generation=generation)

    def compact(self) -> None:
        """Merge small objects, if there are enough of them; not while somebody else rewrites them."""
        if self.merging_held():
            return
        began = self._clock.monotonic_seconds()
        try:
            report = self._archive.compact(
                small_bytes=self._settings.small_object_bytes, object_bytes_min=self._settings.object_bytes_min
            )
        except BaseException:
            self._own.merge_failures.add()
            raise
        if report is not None:
            self._telemetry.merge_seconds.observe(self._clock.monotonic_seconds() - began)
            self._own.merges.add()
            self.state = replace(self.state, compacted_bytes=self.state.compacted_bytes + report.bytes_after)

    def _failed(self, error: BaseException) -> None:
        self._own.settle_failures.add()
        failures = self.state.failures + 1
        pause = min(RETRY_SECONDS_FIRST * 2 ** (failures - 1), self._settings.retry_seconds_max)
        self._retry_at = self._clock.monotonic_seconds() + pause
        message = error.message if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}"
        self.state = replace(self.state, failures=failures, failure=message, retry_seconds=pause)

    def _succeeded(self, report: SettleReport | None) -> None:
        self._retry_at = float("-inf")
        state = replace(self.state, failures=0, failure="", retry_seconds=0.0)
        if report is not None:
            state = replace(
                state,
                settles=state.settles + 1,
                rows=state.rows + report.rows,
                bytes_written=state.bytes_written + report.bytes_written,
                last_micros=self._clock.now_micros(),
            )
        self.state = state
