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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millpond.clock import Clock
from millpond.errors import DiskFull, JournalClosed, MillpondError
from millpond.log.embedded import frame as frames
from millpond.log.embedded.commit_queue import CommitQueue, Maker, Request
from millpond.log.embedded.commit_target import Target
from millpond.log.embedded.frame import Draft
from millpond.log.embedded.journal import FULL, Journal, Written
from millpond.log.embedded.recovery import JournalState, encode_state
from millpond.log.engine import Ack
from millpond.log.producers import Ranges
from millpond.model.definition import FIRST_STREAM_ID, Durability
from millpond.settings import Settings

logger = logging.getLogger(__name__)

_ORDER: dict[Durability, int] = {"memory": 0, "os": 1, "disk": 2}
CLOSE_HINT = "the pond is closed, but appends that were acknowledged at `os` or `memory` are lost"
FULL_HINT = "make room on the disk under the pond, then append again; nothing was kept of this append"
OWED_HINT = "make room on the disk under the pond: what was acknowledged is readable, and written when there is room"


class Committer:
    """Owns the journal. Appends are put into `queue`; that and `run_inside` may be called from any thread."""

    def __init__(self, journal: Journal, target: Target, settings: Settings, clock: Clock, room: Callable[[], int]):
        self._journal, self._target, self._settings, self._clock = journal, target, settings, clock
        self._room = room
        self.queue = CommitQueue()
        self._write_failure = ""
        self._unwritten: list[Request] = []  # acknowledged at `memory`, not in the file yet
        self._unsynced_acks = False  # acknowledged at `memory` or `os`, in the file, not synced yet
        self._dirty_since: float | None = None
        self._room_checked = float("-inf")
        self._room_left = 0
        self.refused = ""
        self.groups = 0
        self.appended_bytes = 0
        self._thread = threading.Thread(target=self._run, name="millpond-committer", daemon=True)
        self._thread.start()

    # Any thread.

    def run_inside(self, action: Callable[[], Any]) -> Any:
        """Run something on the journal between two groups, in the committer's thread, and wait for it."""
        request = Request("disk")
        request.action = action
        self.queue.put(request)
        if request.error is not None:
            raise request.error
        return request.result

    # The thread.

    def _run(self) -> None:
        settings = self._settings
        while True:
            timeout = None if self._dirty_since is None else settings.flush_seconds
            group = self.queue.take(settings.group_bytes_max, timeout)
            if group is None:
                return
            if group and group[0].action is not None:
                self._act(group[0])
            elif group:
                self._commit_safely(group)
            if self._dirty_since is not None:
                self._flush_if_due()

    def _act(self, request: Request) -> None:
        assert request.action is not None
        try:
            request.result = request.action()
        except BaseException as error:
            request.error = error
        request.finish()

    def _commit_safely(self, group: list[Request]) -> None:
        """Commit; whatever happens, every request gets an answer or an error, once."""
        try:
            self._commit(group)
        except BaseException as error:
            self._refuse(f"{type(error).__name__}: {error}")  # how far the commit came is unknown
            self._fail(group, error)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        for request in requests:
            request.fail(error)

    def _commit(self, group: list[Request]) -> None:
        fresh = self._sort_out(self._made(group))
        if self.refused:
            self._fail(fresh, self._closed_error())
            return
        if fresh and self._disk_is_low():
            self._fail([r for r in fresh if _is_users(r)], DiskFull(
                f"only {self._room_left:,} bytes are free on the disk; {self._settings.disk_reserve_bytes:,} are kept "
                "for settling", hint=FULL_HINT))  # fmt: skip
            fresh = [r for r in fresh if not r.finished]
        if any(r.durability != "disk" for r in fresh):
            fresh.sort(key=lambda r: _ORDER[r.durability])
        if self._target.truncated:
            _enter_generations(fresh, self._target.truncated)
        self._give_offsets(fresh)
        early = [r for r in fresh if r.durability == "memory"]
        if early:
            self._target.publish(early, None)
            self._unwritten += early
            self._dirty()  # whatever becomes of this write, it is owed one
            self._answer(early)
        late = fresh[len(early) :]
        soon = sum(1 for r in late if r.durability == "os")
        at_once = not soon and self._is_safe("disk")
        places = self._write(late, sync=at_once)
        if places is None or not late:
            return
        file = self._journal.files[-1]
        if soon:
            self._unsynced_acks = True
            self._target.publish(late[:soon], Written(file, places[:soon]))
            self._answer(late[:soon])
        if soon < len(late) and (at_once or self._sync(late[soon:])):
            self._target.publish(late[soon:], Written(file, places[soon:]))
            self._answer(late[soon:])

    def _made(self, group: list[Request]) -> list[Request]:
        """The group, with one request for all those whose drafts one maker has yet to make."""
        makers: dict[tuple[Maker, Durability], list[Request]] = {}
        made: list[Request] = []
        for request in group:
            if request.maker is None:
                made.append(request)
            else:
                makers.setdefault((request.maker, request.durability), []).append(request)
        for (maker, _), requests in makers.items():
            try:
                made += maker.make(requests)
            except BaseException as error:  # nothing of theirs was written: it is their callers' and nobody else's
                self._fail(requests, error)
        return made

    def _sort_out(self, group: list[Request]) -> list[Request]:
        """Answer retries, and fail what comes after a failure; what is left is new, and succeeds or fails together with
        the rest of its durability. A retry of an append in this very group waits for it."""
        fresh: list[Request] = []
        first: dict[tuple[int, str, int], Request] = {}
        for request in group:
            earlier, request.after = request.after, None
            if earlier is not None and earlier.error is not None:
                self._fail([request], earlier.error)
                continue
            if request.producer:
                key = (request.drafts[0].stream, request.producer, request.sequence)
                try:
                    known = self._target.known(*key)
                except MillpondError as error:
                    self._fail([request], error)
                    continue
                if known is not None:
                    self._answer_retry(request, known)
                    continue
                if key in first:
                    again = first[key].retries
                    first[key].retries = [request] if again is None else [*again, request]
                    continue
                first[key] = request
            fresh.append(request)
        return fresh

    def _answer_retry(self, request: Request, known: Ranges) -> None:
        """The first answer again, at least as durable as this retry asks."""
        if not self._is_safe(request.durability) and not self._flush():
            self._fail([request], self._owed_error())
            return
        self._journal.telemetry.duplicates.add()
        request.answer = Ack(known, request.durability, duplicate=True)
        request.finish()

    def _is_safe(self, durability: Durability) -> bool:
        """Whether all that was acknowledged is as durable as this."""
        if durability == "memory":
            return True
        return not self._unwritten and (durability == "os" or not self._journal.unsynced)

    def _give_offsets(self, requests: list[Request]) -> None:
        heads: dict[tuple[int, int], int] = {}
        for request in requests:
            bases = []
            for draft in request.drafts:
                key = (draft.stream, draft.streamlet)
                base = heads.get(key)
                if base is None:
                    base = self._target.head(*key)
                bases.append(base)
                heads[key] = base + draft.rows
            request.bases = bases

    def _write(self, late: list[Request], *, sync: bool = False) -> list[list[int]] | None:
        """Write what is acknowledged but unwritten, then `late`: where in the newest file that went, or None if `late`
        failed. With `sync`, for which nothing may be unsynced yet, it is durable."""
        if self.refused:
            self._fail(late, self._closed_error())
            return None
        owed = self._unwritten
        if not owed and not late:
            return []
        try:
            self._journal.prepare(lambda: self._target.state(owed))
            written = self._journal.append([(r.drafts, r.bases) for r in (*owed, *late)], sync=sync)
        except OSError as error:
            self._write_failure = str(error)
            self._fail(late, self._write_error(error))
            return None
        self._unwritten = []
        self._unsynced_acks = self._unsynced_acks or bool(owed)
        for request, places in zip(owed, written.places, strict=False):
            self._target.placed_later(request, written.file, places)
        self.groups += 1
        self._measure((*owed, *late))
        if not sync:
            self._dirty()
        return written.places[len(owed) :]

    def _measure(self, group: Sequence[Request]) -> None:
        appends = rows = size = 0
        for request in group:
            appends += request.appends
            size += request.bytes
            for draft in request.drafts:
                rows += draft.rows
        telemetry = self._journal.telemetry
        telemetry.group_appends.observe(appends)
        telemetry.group_rows.observe(rows)
        telemetry.group_bytes.observe(size)

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
        for request in requests:
            self.appended_bytes += request.bytes
            request.acknowledge()
            for retry in request.retries or ():
                assert request.answer is not None
                self._answer_retry(retry, request.answer.ranges)

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
            self._journal.append([([draft], [base]) for draft, base in drafts])
        except OSError as error:
            raise self._write_error(error) from error
        if not self._sync([]):
            raise self._closed_error()

    def record_floors(self) -> None:
        """State, durably, where streams that are never archived begin, if that has moved. Only inside `run_inside`."""
        known = self._target.floors
        moved = {i: floor for i, floor in self._target.floors_now(self._unwritten).items() if known.get(i) != floor}
        if moved:
            state = encode_state(JournalState({}, moved))
            draft = Draft(frames.STATE, 0, 0, 0, 0, self._clock.now_micros(), 0, state, frames.crc32(state))
            self.append_copies([(draft, 0)])
            self._target.floors = known | moved

    def known(self, stream: int, producer: str, sequence: int) -> Ack | None:
        """What an append was answered, durable by now; None if it is not known. Any thread."""

        def inside() -> Ack | None:
            found = self._target.known(stream, producer, sequence)
            if found is not None and not self._is_safe("disk") and not self._flush():
                raise self._owed_error()
            return None if found is None else Ack(found, "disk", duplicate=True)

        answer: Ack | None = self.run_inside(inside)
        return answer

    def sync_now(self) -> None:
        """Everything acknowledged so far is on disk when this returns. Any thread."""

        def inside() -> None:
            if not self._is_safe("disk") and not self._flush():
                raise self._owed_error()

        self.run_inside(inside)

    def stop(self) -> None:
        """Finish what is queued, flush, end the thread and close the journal. May be called twice. Raises, after all
        that, if records that were acknowledged at `os` or `memory` could not be made durable."""
        if not self.queue.close():
            return
        self._thread.join()
        clean = False
        try:
            self.queue.refuse_rest()
            # After the thread's end: nothing can be acknowledged behind this flush.
            clean = self._flush()
            if not clean and (self._unwritten or self._unsynced_acks):
                raise self._closed_error() if self.refused else DiskFull("the disk is full", hint=CLOSE_HINT)
        finally:
            self._journal.close(clean=clean)


def _enter_generations(requests: Sequence[Request], truncated: Mapping[int, int]) -> None:
    """What was drafted before its stream was truncated goes into the new generation: it comes after."""
    for request in requests:
        if any(truncated.get(draft.stream, draft.generation) != draft.generation for draft in request.drafts):
            request.drafts = [
                draft._replace(generation=truncated.get(draft.stream, draft.generation)) for draft in request.drafts
            ]


def _is_users(request: Request) -> bool:
    """Whether anything of it goes to a user's stream."""
    return any(draft.stream >= FIRST_STREAM_ID for draft in request.drafts)
