"""Ctrl-C ends a command in good order, and in any case.

Python raises KeyboardInterrupt wherever the main thread is, also where it has just taken a lock and nobody knows yet
that it must be given back. Whoever closes the pond then waits for that lock for good. So the first Ctrl-C sets an alarm
as well: a process that has not ended by then is ended by the system, which loses nothing that is in the journal. A
second one does not wait.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from millpond.cli.exits import Exit

# Time enough to close a pond: to write and sync what was acknowledged.
LEAVE_SECONDS = 30.0


@contextmanager
def ended_by_interrupt(seconds: float = LEAVE_SECONDS) -> Iterator[None]:
    """In here an interrupt ends the process within that time. Commands may handle interrupts themselves."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    alarm_before: tuple[float, float] | None = None

    def interrupted(number: int, frame: object) -> NoReturn:
        nonlocal alarm_before
        if alarm_before is not None:
            os._exit(Exit.INTERRUPTED)
        # The system's: a thread of ours would take locks, too.
        alarm_before = signal.setitimer(signal.ITIMER_REAL, seconds)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, *alarm_before)
