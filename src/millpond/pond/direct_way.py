"""A producer's way to a stream of the same process: each packet is appended at once."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.log.engine import Ack


class DirectWay:
    """What goes wrong is told in the place of an acknowledgement, and nothing is appended after it: order is kept."""

    def __init__(self, append: Callable[[pa.RecordBatch, int], Ack]) -> None:
        self._append = append
        self._answers: queue.SimpleQueue[Ack | MillpondError] = queue.SimpleQueue()
        self._failed = False

    def write(self, batch: pa.RecordBatch, sequence: int) -> None:
        if not self._failed:
            try:
                self._answers.put(self._append(batch, sequence))
            except MillpondError as error:
                self._failed = True
                self._answers.put(error)

    def next_ack(self, timeout_seconds: float) -> Ack:
        answer = self._answers.get(timeout=timeout_seconds)  # there is one: it was put before the write returned
        if isinstance(answer, MillpondError):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is held."""
