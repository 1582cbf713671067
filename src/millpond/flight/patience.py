"""Waiting for Flight's calls no longer than somebody wants to.

Flight can limit how long a whole stream takes, but not how long its opening does, nor one write. Over a connection that
lets nothing through these block, in a way that neither a time-out nor Ctrl-C ends. So they are done in a thread of
their own, for which the caller waits. Whoever stops waiting leaves the thread behind: until the call is cancelled,
where Flight can, or else until gRPC gives up the connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from millpond.errors import Unavailable

T = TypeVar("T")


def within(
    timeout_seconds: float, location: str, work: Callable[[], T], forget: Callable[[T], object] = lambda late: None
) -> T:
    """What `work` returns or raises; `Unavailable` if that takes longer. What it returns after nobody waits any more is
    given to `forget`."""
    told: Future[T] = Future()

    def run() -> None:
        try:
            told.set_result(work())
        except BaseException as error:
            told.set_exception(error)

    try:
        threading.Thread(target=run, name="millpond-call", daemon=True).start()
        return told.result(timeout_seconds)
    except BaseException as error:
        if told.done() and told.exception() is error:
            raise
        told.add_done_callback(lambda late: forget(late.result()) if late.exception() is None else None)
        if not isinstance(error, TimeoutError):
            raise
    raise Unavailable(f"{location} has not answered within {timeout_seconds:g} s", hint="is it there? try again")
