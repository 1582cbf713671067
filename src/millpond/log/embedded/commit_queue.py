"""How appends reach the committer and how their callers wait: a queue that many threads fill and one empties.

Every record of a stream of single records passes here, so what counts is how few steps it takes. A deque is added to
and taken from in single steps of the interpreter, so neither side takes a lock; whoever waits does so on a raw lock of
its own. Both sides set their flag before they look at the queue, or look at the other's flag after they have changed
it, so that one of the two always notices the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millpond.errors import PondClosed
from millpond.log.embedded.frame import Draft
from millpond.log.engine import Ack
from millpond.model.definition import Durability
from millpond.model.offsets import OffsetRange


class Maker(Protocol):
    """Makes one request of many that came without drafts. Those that it cannot make are failed by it."""

    def make(self, requests: list[Any]) -> list[Any]:
        """The requests to commit instead, each answering for some of these."""
        ...


class Request:
    """Something to commit for a stream. Whoever commits extends it with what is to be known when it is published. Or,
    with `action`, something to be done between two groups, whose result it holds then."""

    # Most of it keeps its default: the less a caller's thread has to touch, the better.
    producer = ""
    sequence = 0
    bytes = 0
    appends = 1  # how many it answers for
    maker: Maker | None = None
    action: Callable[[], Any] | None = None
    result: Any = None
    drafts: Sequence[Draft] = ()
    bases: Sequence[int] = ()
    after: Request | None = None  # one that must not fail if this is to be committed
    retries: list[Any] | None = None  # the same append again, in the same group
    answer: Ack | None = None
    error: BaseException | None = None
    finished = False

    def __init__(self, durability: Durability, stream: Any = None) -> None:
        self.durability, self.stream = durability, stream
        # A raw lock, released once: cheaper than an Event by far.
        self.done = threading.Lock()
        self.done.acquire()

    def ranges(self) -> dict[int, OffsetRange]:
        """The offsets it got."""
        if len(self.drafts) == 1:
            draft, base = self.drafts[0], self.bases[0]
            return {draft.streamlet: OffsetRange(base, base + draft.rows)}
        return {d.streamlet: OffsetRange(b, b + d.rows) for d, b in zip(self.drafts, self.bases, strict=True)}

    def acknowledge(self) -> None:
        """It is as durable as asked: wake the caller with the offsets."""
        self.answer = Ack(self.ranges(), self.durability)
        self.finish()

    def finish(self) -> None:
        """Wake the caller. Once."""
        assert not self.finished
        assert (self.answer is None) != (self.error is None) or self.action is not None
        self.finished = True
        self.done.release()

    def fail(self, error: BaseException) -> None:
        """Wake the caller with an error, and so those who wait for the same append; nobody who has an answer."""
        for each in (self, *(self.retries or ())):
            if not each.finished:
                each.error = error
                each.finish()


class CommitQueue:
    """`put` may be called by any thread, `take` by one only."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._wake = threading.Lock()  # released to wake the taker
        self._wake.acquire()
        self._idle = False
        self._closed = False
        self._left = False  # the taker has gone for good
        self._closing = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, request: Request) -> None:
        """Queue, and wait until the request is finished. `PondClosed` if nobody is going to take it."""
        self.submit(request)
        request.done.acquire()

    def submit(self, request: Request) -> None:
        """Queue, and go on. `PondClosed` if nobody is going to take it."""
        if not self._closed:
            self._waiting.append(request)
            if self._idle:
                # Once is enough: it may be a while before the taker gets to say that it is awake.
                self._idle = False
                self._wake_up()
            if not self._left or not self._withdraw(request):
                return
        raise _closed()

    def _withdraw(self, request: Request) -> bool:
        """Whether a request could be taken back that came after the taker had gone."""
        try:
            self._waiting.remove(request)
        except ValueError:
            return False  # `refuse_rest` found it
        return True

    def _wake_up(self) -> None:
        with contextlib.suppress(RuntimeError):  # somebody else has just done so
            self._wake.release()

    def take(self, bytes_max: int, timeout_seconds: float | None) -> list[Request] | None:
        """The next requests up to a size, or a single one with an action; none after the timeout; None when closed."""
        waiting = self._waiting
        while not waiting:
            if self._closed:
                return None
            self._idle = True
            woken = True
            if not waiting and not self._closed:
                woken = self._wake.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)
            self._idle = False
            if not woken:
                return []
        group = [waiting.popleft()]
        if group[0].action is not None:
            return group
        size = group[0].bytes
        while waiting and size < bytes_max and waiting[0].action is None:
            request = waiting.popleft()
            group.append(request)
            size += request.bytes
        return group

    def close(self) -> bool:
        """Take nothing more; what is queued is still taken. False if it was closed already."""
        with self._closing:
            if self._closed:
                return False
            self._closed = True
        self._wake_up()
        return True

    def refuse_rest(self) -> None:
        """The taker has gone: fail what came in between."""
        self._left = True
        with contextlib.suppress(IndexError):  # empty; a look before would not do, as others take theirs back
            while True:
                self._waiting.popleft().fail(_closed())


def _closed() -> PondClosed:
    return PondClosed("the pond is closed", hint="open it again")
