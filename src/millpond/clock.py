"""Time, injected: production code asks a `Clock`, so that tests decide what time it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps that people read; monotonic time for intervals. Thread-safe."""

    def now_micros(self) -> int:
        """Microseconds since the Unix epoch, UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_micros(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_seconds(self) -> float:
        return time.monotonic()
