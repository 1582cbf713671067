"""The embedded engine: journal, committer, live streams and keeper put together as one `LogEngine`.

On an append the caller's thread does the heavy part (see `appending`), the committer orders, writes, syncs and
publishes, the keeper tends what was published. One lock covers all that readers see; it is held for microseconds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.errors import InvalidValue
from millpond.log.embedded.appending import LogAppending
from millpond.log.embedded.cleaning import JournalCleaner
from millpond.log.embedded.committer import Committer
from millpond.log.embedded.journal import Journal, JournalFile
from millpond.log.embedded.recovery import (
    Recovered,
    recover,
    restore_stream,
)
from millpond.log.embedded.verify import verify_journal, verify_streams
from millpond.log.engine import (
    LogStatus,
    SegmentInfo,
    Standing,
    StreamFigures,
)
from millpond.log.keeper import Keeper, release_unused
from millpond.log.live import LiveStream
from millpond.log.producers import Producers
from millpond.log.segment import State
from millpond.log.spill import SpillFile
from millpond.model.definition import StreamDefinition
from millpond.model.findings import Finding
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Predicate
from millpond.settings import Settings
from millpond.storage import LocalStorage, Storage
from millpond.telemetry import LogTelemetry

NOTHING: Mapping[int, int] = MappingProxyType({})


def _no_progress(done: int, total: int) -> None:
    del done, total


class EmbeddedLog(LogAppending):
    """See `LogEngine`. Open with `EmbeddedLog.open`; one process at a time, which the pond's lock sees to."""

    def __init__(self, directory: str, storage: Storage, clock: Clock, settings: Settings, pond_id: bytes) -> None:
        super().__init__(clock, settings)
        self._storage = storage
        self._spill_directory = os.path.join(directory, "spill")
        self.telemetry = LogTelemetry()
        self._journal = Journal(
            storage,
            os.path.join(directory, "journal"),
            pond_id,
            clock,
            settings.journal_file_bytes,
            self.telemetry,
        )
        self._recovered = Recovered()
        self._directory = directory
        self._pond_id = pond_id

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        pond_id: bytes = bytes(16),
        progress: Callable[[int, int], None] = _no_progress,
    ) -> EmbeddedLog:
        """Recover the journal. Streams appear as they are added; `forget_unclaimed` ends recovery."""
        log = cls(directory, storage or LocalStorage(), clock or SystemClock(), settings or Settings(), pond_id)
        log._storage.make_directory(directory)
        began = log._clock.monotonic_seconds()
        log._recovered = recover(log._journal, progress)
        log.telemetry.recovery_seconds = log._clock.monotonic_seconds() - began
        log.telemetry.recovered_bytes = sum(file.bytes for file in log._journal.files)
        log._published.unclaimed, log._published.floors = log._recovered.states, log._recovered.floors
        # Spill files are memory, not records: the journal has all of it.
        log._storage.remove_tree(log._spill_directory)
        log._start()
        return log

    def _start(self) -> None:
        self._keeper = Keeper(
            self._lock,
            lambda: self._published.streams.values(),
            self._storage,
            self._spill_directory,
            self._settings.memory_bytes,
            self._clock,
            self.telemetry,
        )
        self._published.keeper = self._keeper
        self._committer = Committer(
            self._journal,
            self._published,
            self._settings,
            self._clock,
            lambda: self._storage.free_bytes(self._directory),
        )
        self._cleaner = JournalCleaner(
            self._journal,
            self._committer,
            self._keeper,
            lambda: self._published.streams,
            self._settings.journal_clean_ratio,
        )

    @property
    def dense(self) -> bool:
        return True

    # Streams.

    def add_stream(self, definition: StreamDefinition, boundary: Mapping[int, int] = NOTHING) -> None:
        self._refuse_closed()
        stream = LiveStream(definition, self._lock, self._settings.segment_bytes, self.telemetry.refused)
        producers = Producers(self._settings.producers_max)
        restore_stream(self._recovered, stream, producers, boundary)
        for streamlet in stream.streamlets:
            streamlet.release(boundary.get(streamlet.number, 0))
        stream.opened()
        with self._lock:
            if definition.id in self._published.streams:
                raise InvalidValue(f"stream id {definition.id} is there already", hint="ids are never re-used")
            self._published.add(stream, producers)

    def forget_unclaimed(self) -> None:
        """End of recovery: what belongs to no stream (it was dropped) may go."""
        self._recovered = Recovered()
        self._published.unclaimed = {}
        self._clean_journal()

    def alter_stream(self, definition: StreamDefinition) -> None:
        self._stream(definition.id).definition = definition

    def truncate_stream(self, definition: StreamDefinition) -> None:
        stream = self._stream(definition.id)

        def inside() -> Sequence[SpillFile]:
            """Between two groups: an append is in the one generation or in the other, as a whole."""
            with self._lock:
                now = stream.definition.generation
                if definition.generation <= now:
                    raise InvalidValue(
                        f"generation {definition.generation} of {definition.name} after {now}",
                        hint="a truncation raises the generation",
                    )
                return self._published.truncate(stream, definition)

        self._remove(self._committer.run_inside(inside))
        self._clean_journal()
        release_unused()

    def drop_stream(self, stream_id: int) -> None:
        stream = self._stream(stream_id)
        with self._lock:
            self._published.drop(stream_id)
            stream.dropped = True
            files = self._keeper.forget(stream, [s for x in stream.streamlets for s in x.segments])
            stream.grown.notify_all()
        self._remove(files)
        self._clean_journal()

    # Figures.

    def appended_bytes(self, stream_id: int) -> int:
        return self._stream(stream_id).appended_bytes

    def figures(self, stream_id: int, settled: Mapping[int, int] = NOTHING) -> StreamFigures:
        """A stream in numbers; `settled`: its boundary."""
        return self._stream(stream_id).figures(settled)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def waiting(self) -> int:
        """How many appends are queued."""
        return len(self._committer.queue)

    def free_bytes(self) -> int:
        """What is free on the disk under the log."""
        return self._storage.free_bytes(self._directory)

    # Reading.

    def heads(self, stream_id: int) -> dict[int, int]:
        return self._stream(stream_id).heads()

    def standing(self, stream_id: int) -> Standing:
        return self._stream(stream_id).standing()

    def starts(self, stream_id: int) -> dict[int, int]:
        return self._stream(stream_id).starts()

    def read(
        self,
        stream_id: int,
        streamlet: int,
        offsets: OffsetRange,
        *,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        loose: bool = False,
        generation: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return self._stream(stream_id).read(streamlet, offsets, columns, predicate, loose, generation)

    def find(
        self,
        stream_id: int,
        column: str,
        value: Any,
        *,
        streamlet: int | None,
        limit: int,
        below: Mapping[int, int],
        since_micros: int | None = None,
    ) -> list[pa.RecordBatch]:
        return self._stream(stream_id).find(column, value, streamlet, limit, below, since_micros)

    def segments(self, stream_id: int) -> list[SegmentInfo]:
        return self._stream(stream_id).infos()

    def bytes_live(self, stream_id: int) -> int:
        return sum(segment.bytes for segment in self._stream(stream_id).segments())

    def wait(self, stream_id: int, beyond: Mapping[int, int], timeout_seconds: float) -> bool:
        stream = self._stream(stream_id)
        generation = stream.definition.generation

        def grown() -> bool:
            return any(s.head > beyond.get(s.number, 0) for s in stream.streamlets)

        def over() -> bool:
            return self._closed or stream.dropped or stream.definition.generation != generation

        with self._lock:
            stream.grown.wait_for(lambda: grown() or over(), timeout_seconds)
            return grown()

    # Keeping.

    def sync(self) -> None:
        self._committer.sync_now()

    def release(self, stream_id: int, boundary: Mapping[int, int], *, generation: int | None = None) -> None:
        stream = self._stream(stream_id)
        with self._lock:
            if generation is not None and generation != stream.definition.generation:
                return
            gone = [s for streamlet in stream.streamlets for s in streamlet.release(boundary.get(streamlet.number, 0))]
            files = self._keeper.forget(stream, gone)
        self._remove(files)
        self._clean_journal()
        if gone:
            del gone
            release_unused()

    def _remove(self, files: Sequence[SpillFile]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                file.remove()

    def _clean_journal(self) -> None:
        """Let go of journal files that hold nothing live, and copy forward what keeps a mostly dead one."""
        self._cleaner.clean()

    def tend(self) -> None:
        """Wait until closed segments are sealed and memory is within its quotas."""
        self._keeper.drain()

    def seal(self, stream_id: int) -> None:
        """Close the growing segments of a stream, so that the keeper seals them."""
        stream = self._stream(stream_id)
        with self._lock:
            for streamlet in stream.streamlets:
                closed = streamlet.close_active()
                if closed is not None:
                    self._keeper.closed(stream, closed)

    def status(self) -> LogStatus:
        self._refuse_closed()
        with self._lock:
            segments = [s for x in self._published.streams.values() for y in x.streamlets for s in y.segments]
            spilled = sum(s.bytes for s in segments if s.state is State.SPILLED)
        files = list(self._journal.files)
        warnings = [f"a torn tail of the journal was cut and kept in {path}" for path in self._journal.torn]
        if self._keeper.failure:
            warnings.append(f"spilling fails: {self._keeper.failure}")
        if self._committer.write_failure:
            warnings.append(f"appends acknowledged at `memory` wait to be written: {self._committer.write_failure}")
        if self._cleaner.failure:
            warnings.append(f"journal files cannot be let go of: {self._cleaner.failure}")
        return LogStatus(
            memory_bytes=self._keeper.memory_bytes,
            memory_quota_bytes=self._settings.memory_bytes,
            spilled_bytes=spilled,
            journal_bytes=sum(f.bytes for f in files),
            journal_files=len(files),
            appended_bytes=self._committer.appended_bytes,
            journal_written_bytes=self._journal.written_bytes,
            spill_written_bytes=self._keeper.spill_written_bytes,
            syncs=self._journal.syncs,
            groups=self._committer.groups,
            refused=self._committer.refused,
            warnings=tuple(warnings),
        )

    def verify(self, progress: Callable[[int, int], None] = _no_progress) -> list[Finding]:
        """Check every frame of the journal and read every live record. Empty: all is well."""
        self._refuse_closed()

        def listed() -> list[JournalFile]:
            files: list[JournalFile] = self._committer.run_inside(lambda: list(self._journal.files))
            return files  # taken inside: no write and no removal is half done then

        found = list(verify_journal(self._storage, listed, self._pond_id, self._journal.torn, progress))
        return found + list(verify_streams(self._published.streams))

    def close(self) -> None:
        if self._closed:
            return
        try:
            self._committer.stop()
        finally:
            self._closed = True
            with self._lock:
                for stream in self._published.streams.values():
                    stream.grown.notify_all()
            self._keeper.stop()
