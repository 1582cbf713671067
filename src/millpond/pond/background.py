"""Work behind the scenes: settling what is due, dropping what has expired, merging small objects, and putting queries
on record.

Three threads, so that a long merge holds up nothing else. A stream whose settle fails is tried again after a pause
that grows; the failure is shown in its status, and ingestion goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from millpond.errors import MillpondError, StreamNotFound
from millpond.pond.stream import Stream

logger = logging.getLogger(__name__)

# How often the threads look for work; settling is asked for in seconds.
LOOK_SECONDS = 0.25
# Merging is looked for after so many settles of a stream: one merge then takes several small objects.
SETTLES_PER_MERGE = 4


class Background:
    """Started with the pond, stopped with it."""

    def __init__(self, streams: Callable[[], Sequence[Stream]], note_queries: Callable[[], None]) -> None:
        self._streams = streams
        self._stop = threading.Event()
        self._merged: dict[int, int] = {}
        self._threads = [
            threading.Thread(target=self._loop, args=(step,), name=f"millpond-{name}", daemon=True)
            for name, step in (("settler", self.settle_due), ("merger", self.tidy), ("historian", note_queries))
        ]
        for thread in self._threads:
            thread.start()

    def _loop(self, step: Callable[[], None]) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                step()
            except Exception:  # one stream's trouble must not end the work for all
                logger.exception("background work failed; going on")

    def settle_due(self) -> None:
        """Settle every stream whose time or size has come."""
        for stream in self._streams():
            if self._stop.is_set():
                return
            try:
                if stream.settling.due():
                    stream.settling.settle(background=True)
                stream.settling.unpin()
            except StreamNotFound:
                continue  # dropped meanwhile
            except MillpondError as error:
                state = stream.settling.state
                logger.warning("%s: %s; trying again in %.0f s", stream.name, error.message, state.retry_seconds)

    def tidy(self) -> None:
        """What makes room: dropping first, so that nothing is merged in vain."""
        self.drop_due()
        self.merge_due()

    def drop_due(self) -> None:
        """Let go of what has expired."""
        for stream in self._streams():
            if self._stop.is_set():
                return
            try:
                stream.expiry.drop_if_due()
            except StreamNotFound:
                continue  # dropped meanwhile
            except MillpondError as error:
                logger.warning("%s: expired records could not be dropped: %s", stream.name, error.message)

    def merge_due(self) -> None:
        """Merge small objects of streams that have settled a few times since."""
        for stream in self._streams():
            if self._stop.is_set():
                return
            settles, stream_id = stream.settling.state.settles, stream.settling.definition.id
            if settles - self._merged.get(stream_id, 0) >= SETTLES_PER_MERGE:
                self._merged[stream_id] = settles
                try:
                    stream.settling.compact()
                except (MillpondError, OSError) as error:
                    logger.warning("%s: merging small objects failed: %s", stream.name, error)

    def stop(self) -> None:
        """Finish what is under way and end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
