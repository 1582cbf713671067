"""Appending from several threads, as producers do, while the demonstration reads and Spark is asked.

`Inflow` keeps the account: `acked` counts records whose append returned, `sent` those that were handed over. What a
reader sees must lie between the `acked` from before it looked and the `sent` from after.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.cli.demo.town import BATCH_ROWS, Country
from millpond.pond.stream import Stream


class Inflow:
    """Readings on their way into a stream. Thread-safe."""

    def __init__(self, stream: Stream, country: Country) -> None:
        self._stream, self._country = stream, country
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._failed: BaseException | None = None
        self.acked = 0
        self.sent = 0
        self.bytes = 0

    def append_all(self, rows: int, threads: int, look: Callable[[], None], every_seconds: float) -> float:
        """Append so many rows from so many threads; call `look` now and then meanwhile. How many seconds it took."""
        began = time.monotonic()
        last = -(-rows // BATCH_ROWS)
        workers = [threading.Thread(target=self._work, args=(last,), daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        looked = began
        while any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.join(0.05)
            if time.monotonic() - looked >= every_seconds:
                looked = time.monotonic()
                look()
        self._check()
        return time.monotonic() - began

    @contextmanager
    def trickling(self, batches_per_second: float) -> Iterator[None]:
        """Meanwhile one thread goes on appending, at this pace."""
        enough = threading.Event()

        def work() -> None:
            while not enough.wait(1 / batches_per_second) and self._failed is None:
                self._append(next(self._numbers))

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            yield
        finally:
            enough.set()
            worker.join()
        self._check()

    def _work(self, last: int) -> None:
        while self._failed is None:
            with self._lock:
                if self.sent >= last * BATCH_ROWS:
                    return
                number = next(self._numbers)
                self.sent += BATCH_ROWS
            self._append(number, counted=True)

    def _append(self, number: int, *, counted: bool = False) -> None:
        try:
            batch = self._country.batch(number)
            with self._lock:
                self.sent += 0 if counted else batch.num_rows
            self._stream.append(batch)
            with self._lock:
                self.acked += batch.num_rows
                self.bytes += batch.nbytes
        except BaseException as error:  # ends this thread; raised again by whoever waits for it
            self._failed = error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
