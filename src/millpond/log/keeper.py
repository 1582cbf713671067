"""The keeper: the thread that tends segments behind the appends' back: joins row tails, seals, packs, spills.

Nothing waits for it but memory: when the live records outgrow a quota, the oldest segments leave memory, whole streams
over their own quota first. Segments whose pieces are large in the journal are simply let go of (the journal is read in
place); the others are written to a spill file. Appends wait only when even that does not keep up.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable

import pyarrow as pa

from millpond.clock import Clock
from millpond.log.live import LiveStream
from millpond.log.piece import Piece, join, load
from millpond.log.sealed import Sealed, system_ranges
from millpond.log.segment import Segment, State
from millpond.log.spill import SpillFile, spill_name
from millpond.model.offsets import OffsetRange
from millpond.model.stats import collect_stats
from millpond.storage import Storage
from millpond.telemetry import LogTelemetry

logger = logging.getLogger(__name__)

# Small appends are kept encoded until there are this many: an Arrow batch of one row takes 4 KB.
TAIL_APPENDS = 1_024
# What appends and packing free serves the next appends; once there are none for a while, the system gets it.
RELEASE_AFTER_SECONDS = 0.5
# While appends come in, sealing rests for so many times as long as it took.
REST_RATIO = 4.0
# How many segments may wait for their turn before those are looked for that need none any more.
STALE_FROM = 256
# Journal pieces at least this large on average are read in place; smaller ones are worth a file of their own.
PLACE_BYTES_MIN = 16_384


class Keeper:
    """One per log. `lock` is the log's; `streams` gives the streams of the moment (called with the lock held)."""

    def __init__(
        self,
        lock: threading.Lock,
        streams: Callable[[], Iterable[LiveStream]],
        storage: Storage,
        spill_directory: str,
        memory_quota_bytes: int,
        clock: Clock,
        telemetry: LogTelemetry | None = None,
    ) -> None:
        self._telemetry = telemetry or LogTelemetry()
        self._lock, self._streams, self._clock = lock, streams, clock
        self._storage, self._spill_directory = storage, spill_directory
        self._quota = memory_quota_bytes
        self._closed: deque[tuple[LiveStream, Segment]] = deque()
        self._tails: deque[tuple[LiveStream, Segment]] = deque()
        self._work = threading.Condition(lock)
        self.room = threading.Condition(lock)
        self._stopping = False
        self._busy = False
        self._unpacked: deque[tuple[LiveStream, Segment]] = deque()
        self._let_go = False  # memory was freed that the system should have back
        self._quiet = False  # no appends for a while
        self._stale_from = STALE_FROM
        self._draining = 0
        self._arrived_bytes = 0
        self._rest_until = float("-inf")
        self.memory_bytes = 0
        self.tight = False  # whether anything may be over its quota: one look, where `full` is several
        self.spill_written_bytes = 0
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="millpond-keeper", daemon=True)
        self._thread.start()

    # Called by the committer, with the lock held.

    def published(self, stream: LiveStream, segment: Segment, piece: Piece, closed: Segment | None) -> None:
        """Take note of what a publication added."""
        self._arrived_bytes += piece.bytes
        self._quiet = False
        self.memory_bytes += piece.bytes
        stream.memory_bytes += piece.bytes
        if closed is not None:
            self._closed.append((stream, closed))
            self._work.notify()
        elif piece.encoded is not None:
            segment.tail += len(piece.encoded)
            if segment.tail >= TAIL_APPENDS:
                segment.tail = 0
                self._tails.append((stream, segment))
                self._work.notify()
        if self.memory_bytes > self._quota or _excess(stream) > 0:
            self.tight = True
            self._work.notify()

    def closed(self, stream: LiveStream, segment: Segment) -> None:
        """A segment was closed by request."""
        self._closed.append((stream, segment))
        self._work.notify()

    def forget(self, stream: LiveStream, segments: Iterable[Segment]) -> list[SpillFile]:
        """Segments were released: take their memory off the account. Returns files for the caller to remove."""
        files = []
        segments = list(segments)
        for segment in segments:
            self._account(stream, segment, 0)
            segment.state = State.RELEASED
            if isinstance(segment.contents, SpillFile):
                files.append(segment.contents)
        if segments:
            self._forget_stale()  # or they would stay in memory until their turn comes
        self._let_go = True
        self._work.notify()
        return files

    def full(self, stream: LiveStream) -> bool:
        """Whether appends to a stream should wait: well over a quota in spite of spilling."""
        own = stream.definition.memory_bytes
        return self.memory_bytes > self._quota * 5 // 4 or (own is not None and stream.memory_bytes > own * 5 // 4)

    # The thread.

    def _run(self) -> None:
        while True:
            with self._lock:
                while not (self._stopping or self._has_work()):
                    self._busy = self.tight = False
                    self.room.notify_all()
                    arrived = self._arrived_bytes
                    if not self._work.wait(timeout=self._pause_seconds()):
                        self._quiet = not self._closed and self._arrived_bytes == arrived
                if self._stopping:
                    return
                self._busy = True
                if len(self._closed) + len(self._unpacked) > self._stale_from:
                    self._forget_stale()
                    self._stale_from = 2 * (len(self._closed) + len(self._unpacked)) + STALE_FROM
                task = self._next_task()
            if task is None:
                continue
            try:
                task()
                self.failure = ""
            except Exception as error:  # an error here must not end the thread: appends would stop for ever
                self.failure = f"{type(error).__name__}: {error}"
                logger.exception("tending segments failed; going on")
                with self._lock:
                    self._work.wait(timeout=0.2)

    def _forget_stale(self) -> None:
        """Segments that left memory before their turn came: while appends never pause, it may never come."""
        self._closed = deque(each for each in self._closed if each[1].state is State.CLOSED)
        self._unpacked = deque(each for each in self._unpacked if each[1].state is State.SEALED)

    def _has_work(self) -> bool:
        return bool(self._may_seal() or self._tails or self._let_go or self._may_pack() or self._needs_room())

    def _may_pack(self) -> bool:
        return bool(self._unpacked) and (self._quiet or (self._draining > 0 and not self._closed))

    def _may_seal(self) -> bool:
        """Whether a segment waits to be sealed, and appends have had their share of the machine since the last one."""
        return bool(self._closed) and (self._draining > 0 or self._clock.monotonic_seconds() >= self._rest_until)

    def _pause_seconds(self) -> float:
        if not self._closed:
            return RELEASE_AFTER_SECONDS
        return min(max(self._rest_until - self._clock.monotonic_seconds(), 0.001), RELEASE_AFTER_SECONDS)

    def _needs_room(self) -> bool:
        return self.memory_bytes > self._quota or any(_excess(stream) > 0 for stream in self._streams())

    def _next_task(self) -> Callable[[], None] | None:
        """What is most urgent: room, then tails, then sealing."""
        if self._needs_room():
            found = self._oldest_in_memory()
            if found is not None:
                self._telemetry.spills.add()
                return lambda: self._spill(*found)
        if self._tails:
            tail = self._tails.popleft()
            return lambda: self._join_tail(*tail)
        if self._may_seal():
            closed = self._closed.pop()  # the newest: the oldest are the next to leave memory
            return lambda: self._seal_in_turn(*closed)
        if self._may_pack():
            sealed = self._unpacked.popleft()
            self._let_go = True
            return lambda: self._pack(*sealed)
        if self._let_go:
            self._let_go = False
            return release_unused
        self._work.wait(timeout=0.05)
        return None

    def _oldest_in_memory(self) -> tuple[LiveStream, Segment] | None:
        over = [s for s in self._streams() if _excess(s) > 0] or list(self._streams())
        held = [(segment.first_ingest, n, stream, segment)
                for n, stream in enumerate(over) for streamlet in stream.streamlets
                for segment in streamlet.segments if segment.memory_bytes]  # fmt: skip
        if not held:
            return None
        _, _, stream, segment = min(held, key=lambda each: each[:2])
        if segment.state is State.ACTIVE:
            stream.streamlets[segment.streamlet].close_active()
        return stream, segment

    def _seal_in_turn(self, stream: LiveStream, segment: Segment) -> None:
        """Seal, then rest a while if appends came in meanwhile: they go first."""
        began, arrived = self._clock.monotonic_seconds(), self._arrived_bytes
        self._seal(stream, segment)
        if self._arrived_bytes > arrived:
            now = self._clock.monotonic_seconds()
            self._rest_until = now + REST_RATIO * (now - began)

    def _seal(self, stream: LiveStream, segment: Segment) -> None:
        if segment.state is not State.CLOSED:
            return
        definition = stream.definition
        chunks = list(segment.chunks(segment.offsets, definition, stream.codec))
        whole = Sealed.of(chunks, definition.keys)
        assert whole.rows == segment.rows
        ranges = collect_stats(whole.numbers()) | system_ranges(segment.streamlet, segment.offsets, whole.times)
        with self._lock:
            if segment.state is not State.CLOSED or not segment.memory_bytes:
                return  # spilled or released meanwhile
            segment.places = _places(segment)
            segment.seal(whole, ranges)
            self._account(stream, segment, whole.nbytes)
            self._unpacked.append((stream, segment))

    def _pack(self, stream: LiveStream, segment: Segment) -> None:
        contents = segment.contents
        if segment.state is not State.SEALED or not isinstance(contents, Sealed):
            return  # spilled or released since
        packed = contents.packed()
        with self._lock:
            if segment.state is State.SEALED and segment.contents is contents:
                segment.contents = packed
                self._account(stream, segment, packed.nbytes)

    def _join_tail(self, stream: LiveStream, segment: Segment) -> None:
        """Turn the encoded rows of a growing segment into Arrow, many at a time."""
        with self._lock:
            if segment.state is not State.ACTIVE or not isinstance(segment.contents, list):
                return
            before = len(segment.contents)
            pieces = segment.contents[:before]
        joined: list[Piece] = []
        at = 0
        while at < before:
            end = at
            while end < before and pieces[end].encoded is not None and pieces[end].version == pieces[at].version:
                end += 1
            if end > at:
                joined.append(_joined(stream, pieces[at:end]))
                at = end
            else:
                joined.append(pieces[at])
                at += 1
        with self._lock:
            if segment.state is State.ACTIVE and isinstance(segment.contents, list):
                segment.contents = joined + segment.contents[before:]
                self._account(stream, segment, sum(p.bytes for p in segment.contents if p.in_memory))

    def _spill(self, stream: LiveStream, segment: Segment) -> None:
        segment.find_text_ranges(stream.definition.keys)  # its key index goes: at least these tell where not to look
        with self._lock:
            places = segment.places if segment.places is not None else _places(segment)
            if places is not None and segment.memory_bytes:
                segment.contents, segment.state = places, State.SPILLED
                self._account(stream, segment, 0)
                return
        self.spill_to_file(stream, segment)

    def spill_to_file(self, stream: LiveStream, segment: Segment) -> None:
        """Write a segment's rows to a file of their own, wherever they are now. Any thread."""
        with self._lock:
            if segment.released:
                return
            # The journal may have let go of the rows below.
            held = OffsetRange(max(segment.base, stream.streamlets[segment.streamlet].start), segment.end)
        before = segment.contents
        chunks = list(segment.chunks(held, stream.definition, stream.codec))
        chunk = join(chunks)
        directory = os.path.join(self._spill_directory, stream.definition.directory)
        name = spill_name(stream.definition.generation, segment.streamlet, segment.base)
        file = SpillFile.write(self._storage, directory, name, chunk)
        self.spill_written_bytes += file.bytes
        with self._lock:
            if not segment.released and not isinstance(segment.contents, SpillFile):
                segment.contents, segment.state, segment.places = file, State.SPILLED, None
                self._account(stream, segment, 0)
                return
        if not isinstance(before, SpillFile):
            with contextlib.suppress(FileNotFoundError):
                file.remove()  # released while it was written

    def leave_file(self, segments: Iterable[Segment], file: int) -> list[Segment]:
        """A file of the journal is going to be removed: nothing reads from it from now on, but for the segments
        returned, which have their rows nowhere else and must be moved first. Any thread."""
        stranded = []
        with self._lock:
            for segment in segments:
                if segment.places is not None and any(p.place and p.place.file.number == file for p in segment.places):
                    segment.places = None
                if not isinstance(segment.contents, list):
                    continue
                inside = [p for p in segment.contents if p.place is not None and p.place.file.number == file]
                for piece in inside:
                    if piece.in_memory:
                        piece.place = None
                if any(not piece.in_memory for piece in inside):
                    stranded.append(segment)
        return stranded

    def _account(self, stream: LiveStream, segment: Segment, memory_bytes: int) -> None:
        self.memory_bytes += memory_bytes - segment.memory_bytes
        stream.memory_bytes += memory_bytes - segment.memory_bytes
        segment.memory_bytes = memory_bytes
        self.room.notify_all()

    # For callers.

    def drain(self, timeout_seconds: float = 60.0) -> bool:
        """Wait until every closed segment is sealed, memory is within its quotas, and what was freed is given back."""
        with self._lock:
            self._draining += 1
            self._work.notify()
            try:
                return self.room.wait_for(
                    lambda: self._stopping or not (self._busy or self._closed or self._has_work()), timeout_seconds
                )
            finally:
                self._draining -= 1

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._work.notify_all()
            self.room.notify_all()
        self._thread.join()


def _excess(stream: LiveStream) -> int:
    """How much more memory a stream holds than it may."""
    own = stream.definition.memory_bytes
    return stream.memory_bytes - own if own is not None else 0


def _places(segment: Segment) -> list[Piece] | None:
    """The pieces without their memory, if the journal has all of them in pieces large enough to be read in place."""
    pieces = segment.contents
    if not isinstance(pieces, list) or any(p.place is None for p in pieces):
        return None
    if sum(p.bytes for p in pieces) < PLACE_BYTES_MIN * len(pieces):
        return None
    return [p.without_memory() for p in pieces]


def _joined(stream: LiveStream, run: list[Piece]) -> Piece:
    definition = stream.definition
    chunk = join(list(load(run, definition, stream.codec)))
    count, version = int(chunk.batch.nbytes), definition.schema_version
    return Piece(run[0].base, chunk.batch.num_rows, count, chunk.ingest, version, batch=chunk.batch)


def release_unused() -> None:
    """Give memory that was freed but is kept for later back to the system: Arrow's default pool, which temporary
    batches use, and the C library's heap, which sealed ones do (pyarrow's own call does not trim that)."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; others give memory back by themselves
    if trim is not None:
        trim(0)
