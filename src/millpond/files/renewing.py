"""Keeps a lock on a file while its holder lives: a thread says so now and then, if the lock has a lease at all.

Whether the lock still holds is not decided here: every append is checked where the file is. A renewal that fails is
tried again; one that comes too late is found out by the next append.
"""

from __future__ import annotations

import logging
import threading

from millpond.errors import Fenced, MillpondError, StreamNotFound
from millpond.files.protocol import FileDesk, FileLock

logger = logging.getLogger(__name__)

# Of a lease: two renewals may be lost before it is over.
_PART = 3


class Renewing:
    """It knows nothing of the handle, so that one that is forgotten without a close gives its lock back."""

    def __init__(self, desk: FileDesk, lock: FileLock) -> None:
        self._desk, self.epoch = desk, lock.epoch
        self._stopped = threading.Event()
        if lock.lease_seconds is not None:
            wait = lock.lease_seconds / _PART
            threading.Thread(target=self._run, args=(wait,), name="millpond-file-lock", daemon=True).start()

    def _run(self, wait_seconds: float) -> None:
        while not self._stopped.wait(wait_seconds):
            try:
                self._desk.lock(self.epoch)
            except (Fenced, StreamNotFound) as error:
                logger.warning("%s", error.message)
                return
            except MillpondError as error:
                logger.debug("%s: the lock was not renewed: %s", self._desk.name, error.message)

    def stop(self) -> None:
        """Give the lock back. A node that cannot be reached finds out when the lease is over."""
        self._stopped.set()
        try:
            self._desk.unlock(self.epoch)
        except MillpondError as error:
            logger.debug("%s: the lock was not given back: %s", self._desk.name, error.message)
