"""From the committer's thread back to the event loop: many answers, one wake-up.

Waking the loop from another thread costs a system call. A group commit answers dozens of requests at the same moment,
so answers are queued, and only the first of them wakes the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from millpond.log.engine import Ack, Told


class Answers:
    """Of one event loop. `expect` is called in the loop; what it gives may be called in any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: deque[tuple[asyncio.Future[Ack], Ack | None, BaseException | None]] = deque()
        self._woken = False

    def expect(self) -> tuple[asyncio.Future[Ack], Told]:
        """A future, and who is to be told for it to be done."""
        future: asyncio.Future[Ack] = self._loop.create_future()
        return future, partial(self._tell, future)

    def _tell(self, future: asyncio.Future[Ack], answer: Ack | None, error: BaseException | None) -> None:
        self._told.append((future, answer, error))
        # Set after the queue was added to, cleared before it is emptied: one of the two always sees the other.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False
        while self._told:
            future, answer, error = self._told.popleft()
            if future.done():  # whoever waited has gone
                continue
            if answer is not None:
                future.set_result(answer)
            else:
                assert error is not None
                future.set_exception(error)
