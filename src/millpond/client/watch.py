"""Who wants to know when streams come and go, and the thread that looks: while somebody listens, once a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from millpond.errors import MillpondError
from millpond.wire.served import Change

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0

# Name -> id and schema version.
Listing = Mapping[str, tuple[int, int]]


class Watch:
    """Thread-safe. Listeners are called in the order of changes, in the thread that found them."""

    def __init__(self, listing: Callable[[], Listing]) -> None:
        self._listing = listing
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Change], None]] = []
        self._known: Listing = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` after each change. Returns how to stop it."""
        with self._lock:
            if not self._listeners:
                self._known = self._listing()
            self._listeners.append(callback)
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._loop, args=(self._stop,), name="millpond-watch", daemon=True
                )
                self._thread.start()
        return lambda: self._remove(callback)

    def _remove(self, callback: Callable[[Change], None]) -> None:
        with self._lock:
            if callback in self._listeners:
                self._listeners.remove(callback)
            if not self._listeners:
                self._stop.set()
                self._thread = None

    def look(self) -> None:
        """Tell what has changed since the last look. A node that does not answer is asked again a second later."""
        with self._lock:
            if not self._listeners:
                return
            try:
                before, self._known = self._known, self._listing()
            except MillpondError as error:
                logger.debug("the streams could not be listed: %s", error.message)
                return
            for change in _changes(before, self._known):
                for listener in list(self._listeners):
                    listener(change)

    def _loop(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self.look()

    def close(self) -> None:
        """End the thread, and tell everyone."""
        with self._lock:
            for listener in list(self._listeners):
                listener(Change("closed", ""))
            self._listeners.clear()
            self._stop.set()
            self._thread = None


def _changes(before: Listing, now: Listing) -> list[Change]:
    found = []
    for name, (stream_id, version) in before.items():
        if name not in now or now[name][0] != stream_id:
            found.append(Change("dropped", name))
        elif now[name][1] != version:
            found.append(Change("altered", name))
    created = [name for name, (stream_id, _) in now.items() if name not in before or before[name][0] != stream_id]
    return found + [Change("created", name) for name in sorted(created, key=lambda name: now[name][0])]
