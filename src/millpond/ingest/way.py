"""A producer's way to its stream, what is known of one while it is open, and when to try again after it has failed."""

from __future__ import annotations

import logging
import random
from typing import Protocol

import pyarrow as pa

from millpond.errors import MillpondError, Unavailable
from millpond.ingest.packet import Packet
from millpond.ingest.prepare import Ingest
from millpond.log.engine import Ack

logger = logging.getLogger(__name__)

# A first retry comes soon, because most failures are a connection that was cut; then ever later.
PAUSE_SECONDS_FIRST = 0.01
PAUSE_SECONDS_MAX = 5.0


class Way(Protocol):
    """Open until it is closed or has failed. One thread writes and closes, another one takes acknowledgements. Batches
    are taken in order, and nothing that follows one that failed."""

    def write(self, batch: pa.RecordBatch, sequence: int) -> None:
        """Send it. May block while the other end has enough to do."""
        ...

    def next_ack(self, timeout_seconds: float) -> Ack:
        """The acknowledgement of the oldest write that has none yet; `Unavailable` if it takes longer. Raises what the
        other end says of it. Called only after the write."""
        ...

    def close(self) -> None:
        """Let go of it, whatever state it is in."""
        ...


class Session:
    """One way, while it is open. The producer's lock guards it."""

    def __init__(self) -> None:
        self.way: Way | None = None
        self.written = 0
        self.answered = 0
        self.write_error: MillpondError | None = None
        self.ended = False
        self.error: MillpondError | None = None
        self._ingest: Ingest | None = None

    def fits(self, packet: Packet) -> bool:
        """Whether the packet has the schema of those before it."""
        self._ingest = self._ingest or packet.ingest
        return self._ingest is packet.ingest

    def end(self, error: MillpondError | None = None) -> None:
        if not self.ended:
            self.ended, self.error = True, error


def pause_seconds(failures: int, error: MillpondError) -> float:
    """How long to wait after so many failures in a row; at least as long as the other end asks for."""
    pause = min(PAUSE_SECONDS_FIRST * 2.0 ** min(failures - 1, 30), PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
    return max(pause, float(getattr(error, "retry_after_seconds", None) or 0.0))


def as_ours(error: Exception) -> MillpondError:
    """Whatever has gone wrong, as something that a future can end with."""
    if isinstance(error, MillpondError):
        return error
    logger.error("a producer failed", exc_info=error)
    return Unavailable(f"{type(error).__name__}: {error}", hint="see the log")
