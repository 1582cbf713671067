"""A gate that many pass at once, or one alone: commits go through together, what rewrites positions waits for a gap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Whoever wants to be alone goes first: those who come after it wait. Not for one thread twice."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._passing = 0
        self._wanted = 0  # by those who want to be, or are, alone
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wanted)
            self._passing += 1
        try:
            yield
        finally:
            with self._changed:
                self._passing -= 1
                if self._wanted:
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._wanted += 1
            self._changed.wait_for(lambda: not self._passing and not self._alone)
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._wanted -= 1
                self._changed.notify_all()
