"""The committer: one thread that owns the journal and turns waiting appends into groups.

While a sync is under way, appends queue; the next group takes all of them: one write and one sync for many (C4).
Within a group appends are ordered memory, os, disk: those that are acknowledged earlier must not sit on offsets behind
ones that may still fail. Offsets are given here and published only once the group is as durable as asked, so a reader
never sees what could be lost (E7), and a failed group leaves no gap.

A full disk fails the group, cuts the file back and is forgotten; any other failed write, and any failed sync, closes
the journal to writes for good (I1).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millpond.clock import Clock
from millpond.errors import DiskFull, JournalClosed, MillpondError, PondClosed
from millpond.log.embedded.frame import Draft
from millpond.log.embedded.journal import FULL, Journal, Placed
from millpond.log.engine import Ack
from millpond.model.definition import FIRST_STREAM_ID, Durability
from millpond.model.offsets import OffsetRange
from millpond.settings import Settings

logger = logging.getLogger(__name__)

_ORDER: dict[Durability, int] = {"memory": 0, "os": 1, "disk": 2}
CLOSE_HINT = "the pond is closed, but appends that were acknowledged at `os` or `memory` are lost"
FULL_HINT = "make room on the disk under the pond, then append again; nothing was kept of this append"
OWED_HINT = "make room on the disk under the pond: what was acknowledged is readable, and written when there is room"


@dataclass(slots=True, eq=False)
class Request:
    """An append on its way. `context` is the target's own (the stream and its parts)."""

    context: Any
    drafts: list[Draft]
    durability: Durability
    bytes: int
    producer: str = ""
    sequence: int = 0
    bases: list[int] = field(default_factory=list)
    retries: list[Request] = field(default_factory=list)  # the same append again, in the same group
    answer: Ack | None = None
    error: BaseException | None = None
    done: Any = None  # a raw lock, released once: cheaper than an Event by far
    finished: bool = False

    def finish(self) -> None:
        """Wake the caller. Once."""
        assert not self.finished
        assert (self.answer is None) != (self.error is None)
        self.finished = True
        self.done.release()


class Target(Protocol):
    """Where committed appends go. All calls come from the committer's thread."""

    def retry_of(self, request: Request) -> Ack | None:
        """The answer to an earlier append with the same producer and sequence; may raise for a stale one."""
        ...

    def head(self, stream: int, streamlet: int) -> int:
        """The next free offset, as published."""
        ...

    def publish(self, requests: list[Request], placed: list[list[Placed]] | None) -> None:
        """Let readers see these appends, all at once. `placed` is None for those not written yet."""
        ...

    def placed_later(self, request: Request, placed: list[Placed]) -> None:
        """An append that was published before it was written has a place now."""
        ...

    def state(self, unwritten: Sequence[Request]) -> bytes:
        """What a new journal file must begin with: everything that was written, without `unwritten`."""
        ...


class Committer:
    """Owns the journal. `submit` and `run_inside` may be called from any thread."""

    def __init__(self, journal: Journal, target: Target, settings: Settings, clock: Clock, room: Callable[[], int]):
        self._journal, self._target, self._settings, self._clock = journal, target, settings, clock
        self._room = room
        self._mutex = threading.Lock()
        self._queue: deque[Request | tuple[Callable[[], Any], Request]] = deque()
        self._wake = threading.Semaphore(0)
        self._idle = True
        self._stopping = False
        self._write_failure = ""
        self._unwritten: list[Request] = []  # acknowledged at `memory`, not in the file yet
        self._unsynced_acks = False  # acknowledged at `memory` or `os`, in the file, not synced yet
        self._dirty_since: float | None = None
        self._room_checked = float("-inf")
        self._room_left = 0
        self.refused = ""
        self.groups = 0
        self.appends = 0
        self._thread = threading.Thread(target=self._run, name="millpond-committer", daemon=True)
        self._thread.start()

    # Any thread.

    def submit(self, request: Request) -> Ack:
        """Blocks until the append is as durable as it asked."""
        self._enqueue(request, request)
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        return request.answer

    def run_inside(self, action: Callable[[], Any]) -> Any:
        """Run something on the journal between two groups, in the committer's thread, and wait for it."""
        request = Request(None, [], "disk", 0)
        self._enqueue((action, request), request)
        if request.error is not None:
            raise request.error
        return request.context

    def _enqueue(self, item: Any, request: Request) -> None:
        request.done = threading.Lock()
        request.done.acquire()
        with self._mutex:
            if self._stopping:
                raise PondClosed("the pond is closed", hint="open it again")
            self._queue.append(item)
            wake, self._idle = self._idle, False
        if wake:
            self._wake.release()
        request.done.acquire()

    # The thread.

    def _run(self) -> None:
        while True:
            group, actions = self._take()
            if group is None:
                return
            if group:
                self._commit_safely(group)
            for action, request in actions:
                try:
                    request.context = action()
                except BaseException as error:
                    request.error = error
                request.done.release()
            if self._dirty_since is not None:
                self._flush_if_due()

    def _take(self) -> tuple[list[Request] | None, list[tuple[Callable[[], Any], Request]]]:
        """The next group, waiting for it; empty when it is time to flush; None to stop."""
        while True:
            with self._mutex:
                if self._queue:
                    break
                if self._stopping:
                    return None, []
                self._idle = True
            timeout = None if self._dirty_since is None else self._settings.flush_seconds
            if not self._wake.acquire(timeout=timeout):
                with self._mutex:
                    if self._queue or self._idle:
                        self._idle = False
                        return [], []
        group: list[Request] = []
        size = 0
        with self._mutex:
            while self._queue and size < self._settings.group_bytes_max:
                item = self._queue[0]
                if isinstance(item, tuple):
                    if not group:
                        self._queue.popleft()
                        return [], [item]
                    break
                self._queue.popleft()
                group.append(item)
                size += item.bytes
        return group, []

    def _commit_safely(self, group: list[Request]) -> None:
        """Commit; whatever happens, every request gets an answer or an error, once."""
        try:
            self._commit(group)
        except BaseException as error:
            self._refuse(f"{type(error).__name__}: {error}")  # how far the commit came is unknown
            self._fail(group, error)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        for request in requests:
            for each in (request, *request.retries):
                if not each.finished:
                    each.error = error
                    each.finish()

    def _commit(self, group: list[Request]) -> None:
        fresh = self._sort_out(group)
        if self.refused:
            self._fail(fresh, self._closed_error())
            return
        if fresh and self._disk_is_low():
            self._fail([r for r in fresh if r.drafts[0].stream >= FIRST_STREAM_ID], DiskFull(
                f"only {self._room_left:,} bytes are free on the disk; {self._settings.disk_reserve_bytes:,} are kept "
                "for settling", hint=FULL_HINT))  # fmt: skip
            fresh = [r for r in fresh if not r.finished]
        fresh.sort(key=lambda r: _ORDER[r.durability])
        self._give_offsets(fresh)
        early = [r for r in fresh if r.durability == "memory"]
        if early:
            self._target.publish(early, None)
            self._unwritten += early
            self._dirty()  # whatever becomes of this write, it is owed one
            self._answer(early)
        late = [r for r in fresh if r.durability != "memory"]
        placed = self._write(late)
        if placed is None:
            return
        written = sum(1 for r in late if r.durability == "os")
        if written:
            self._unsynced_acks = True
            self._target.publish(late[:written], placed[:written])
            self._answer(late[:written])
        if written < len(late) and self._sync(late[written:]):
            self._target.publish(late[written:], placed[written:])
            self._answer(late[written:])

    def _sort_out(self, group: list[Request]) -> list[Request]:
        """Answer retries; what is left is new. A retry of an append in this very group waits for it."""
        fresh: list[Request] = []
        first: dict[tuple[Any, str, int], Request] = {}
        for request in group:
            if request.producer:
                key = (request.drafts[0].stream, request.producer, request.sequence)
                try:
                    known = self._target.retry_of(request)
                except MillpondError as error:
                    self._fail([request], error)
                    continue
                if known is not None:
                    self._answer_retry(request, known)
                    continue
                if key in first:
                    first[key].retries.append(request)
                    continue
                first[key] = request
            fresh.append(request)
        return fresh

    def _answer_retry(self, request: Request, known: Ack) -> None:
        """The first answer again, at least as durable as this retry asks."""
        if not self._is_safe(request.durability) and not self._flush():
            self._fail([request], self._owed_error())
            return
        request.answer = Ack(known.ranges, request.durability, duplicate=True)
        request.finish()

    def _is_safe(self, durability: Durability) -> bool:
        """Whether all that was acknowledged is as durable as this."""
        if durability == "memory":
            return True
        return not self._unwritten and (durability == "os" or not self._journal.unsynced)

    def _give_offsets(self, requests: list[Request]) -> None:
        heads: dict[tuple[int, int], int] = {}
        for request in requests:
            request.bases = []
            for draft in request.drafts:
                key = (draft.stream, draft.streamlet)
                base = heads.get(key)
                if base is None:
                    base = self._target.head(*key)
                request.bases.append(base)
                heads[key] = base + draft.rows

    def _write(self, late: list[Request]) -> list[list[Placed]] | None:
        """Write what is acknowledged but unwritten, then `late`: where that went, or None if `late` failed."""
        if self.refused:
            self._fail(late, self._closed_error())
            return None
        owed = self._unwritten
        groups = [list(zip(r.drafts, r.bases, strict=True)) for r in (*owed, *late)]
        if not groups:
            return []
        try:
            self._journal.prepare(lambda: self._target.state(owed))
            placed = self._journal.append(groups)
        except OSError as error:
            self._write_failure = str(error)
            self._fail(late, self._write_error(error))
            return None
        self._unwritten = []
        self._unsynced_acks = self._unsynced_acks or bool(owed)
        for request, places in zip(owed, placed, strict=False):
            self._target.placed_later(request, places)
        self.groups += 1
        self._dirty()
        return placed[len(owed) :]

    def _dirty(self) -> None:
        """There is something that must be written or synced before long."""
        if self._dirty_since is None:
            self._dirty_since = self._clock.monotonic_seconds()

    @property
    def write_failure(self) -> str:
        """Why appends that were acknowledged at `memory` are not in the journal yet; "" if none are held up."""
        return self._write_failure if self._unwritten else ""

    def _write_error(self, error: OSError) -> MillpondError:
        """What a failed write means: a full disk passes, anything else closes the journal to writes."""
        if error.errno in FULL:
            return DiskFull(f"the disk is full: {error}", hint=FULL_HINT)
        self._refuse(f"a write failed: {error}")
        return self._closed_error()

    def _sync(self, waiting: list[Request]) -> bool:
        """Sync. False: it failed, so did all who waited for it, and the journal is closed to writes. A journal that is
        closed is not asked again: a second sync may succeed without having written what the first one failed to."""
        if self.refused:
            self._fail(waiting, self._closed_error())
            return False
        try:
            self._journal.sync()
        except OSError as error:
            self._refuse(f"a sync failed: {error}")
            self._fail(waiting, self._closed_error())
            return False
        self._dirty_since = None
        self._unsynced_acks = False
        return True

    def _flush(self) -> bool:
        """Write and sync all that was acknowledged; whether that worked."""
        return self._write([]) is not None and self._sync([])

    def _answer(self, requests: list[Request]) -> None:
        self.appends += len(requests)
        for request in requests:
            ranges = {
                draft.streamlet: OffsetRange(base, base + draft.rows)
                for draft, base in zip(request.drafts, request.bases, strict=True)
            }
            request.answer = Ack(ranges, request.durability)
            request.finish()
            for retry in request.retries:
                self._answer_retry(retry, request.answer)

    def _flush_if_due(self) -> None:
        assert self._dirty_since is not None
        due = self._clock.monotonic_seconds() - self._dirty_since >= self._settings.flush_seconds
        if due:
            try:
                self._flush()
            except BaseException as error:  # the thread must live on to refuse what comes
                self._refuse(f"{type(error).__name__}: {error}")

    def _disk_is_low(self) -> bool:
        now = self._clock.monotonic_seconds()
        if now - self._room_checked > 0.25 or self._room_left < self._settings.disk_reserve_bytes:
            try:
                self._room_checked, self._room_left = now, self._room()
            except OSError:
                return False  # the write itself will tell
        return self._room_left < self._settings.disk_reserve_bytes

    def _refuse(self, reason: str) -> None:
        logger.error("the journal is closed to writes: %s", reason)
        self.refused = reason
        self._dirty_since = None

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(
            f"the journal takes no more writes: {self.refused}",
            hint="what was acknowledged is safe and readable; look at the disk, then close and reopen the pond",
        )

    def _owed_error(self) -> MillpondError:
        """Why a flush failed."""
        return self._closed_error() if self.refused else DiskFull("the disk is full", hint=OWED_HINT)

    def append_copies(self, drafts: list[tuple[Draft, int]]) -> None:
        """Write records again that the journal has already, and sync. Only inside `run_inside`."""
        if self.refused:
            raise self._closed_error()
        try:
            self._journal.prepare(lambda: self._target.state(self._unwritten))
            self._journal.append([[draft] for draft in drafts])
        except OSError as error:
            raise self._write_error(error) from error
        if not self._sync([]):
            raise self._closed_error()

    def sync_now(self) -> None:
        """Everything acknowledged so far is on disk when this returns. Any thread."""

        def inside() -> None:
            if not self._is_safe("disk") and not self._flush():
                raise self._owed_error()

        self.run_inside(inside)

    def stop(self) -> None:
        """Finish what is queued, flush, end the thread and close the journal. May be called twice. Raises, after all
        that, if records that were acknowledged at `os` or `memory` could not be made durable."""
        with self._mutex:
            if self._stopping:
                return
            self._stopping = True
        self._wake.release()
        self._thread.join()
        clean = False
        try:
            # After the thread's end: nothing can be acknowledged behind this flush.
            clean = self._flush()
            if not clean and (self._unwritten or self._unsynced_acks):
                raise self._closed_error() if self.refused else DiskFull("the disk is full", hint=CLOSE_HINT)
        finally:
            self._journal.close(clean=clean)
