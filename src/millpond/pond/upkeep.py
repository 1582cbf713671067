"""Long work on the archives of a pond (a relayout, a rebuild of indexes, a vacuum, a load), which a close ends early.

It changes the archive in steps: a commit, the removal of a file. Once the pond closes no step begins, and the close
waits for those that are under way. So afterwards only the next owner of the directory changes anything in it. What was
done stays, and the work that is given up is told so by its next step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from millpond.errors import PondClosed


class Upkeep:
    """Thread-safe."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._steps = 0
        self._closed = False

    def check(self) -> None:
        """`PondClosed` if no step may begin any more."""
        if self._closed:
            raise PondClosed(f"the pond {self._path} is closed", hint="open it again; what was done before stays")

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """While inside, the pond is not let go of. Short; nothing of the user's is called in it."""
        with self._changed:
            self.check()
            self._steps += 1
        try:
            yield
        finally:
            with self._changed:
                self._steps -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let no step begin, and wait for those under way."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._steps)
