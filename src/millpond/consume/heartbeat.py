"""Says that a consumer is alive, a few times per lease, for as long as somebody holds the consumer."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from millpond.errors import MillpondError

logger = logging.getLogger(__name__)

# A beat that is late, or lost, leaves time for another.
BEATS_PER_LEASE = 3


class Living(Protocol):
    """What is kept alive."""

    def alive(self) -> None:
        """Say so."""
        ...


class Heartbeat:
    """A thread that ends with `stop`, or when the consumer is no more."""

    def __init__(self, living: weakref.ref[Living], lease_seconds: float) -> None:
        self._living, self._pause = living, lease_seconds / BEATS_PER_LEASE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="millpond-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(self._pause):
            living = self._living()
            if living is None:
                return
            try:
                living.alive()
            except MillpondError as error:
                # Whoever uses the consumer is told with what it does next; a connection may come back by then.
                logger.debug("a heartbeat was not taken: %s", error.message)
            del living

    def stop(self) -> None:
        """From any thread. Does not wait: a beat that is under way does no harm."""
        self._stop.set()
