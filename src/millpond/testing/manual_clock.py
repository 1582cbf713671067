"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

from millpond.model.units import Duration, parse_seconds

# 2026-01-01T00:00:00Z: any fixed moment would do.
_START_MICROS = 1_767_225_600_000_000


class ManualClock:
    """A `millpond.clock.Clock` that a test owns. Thread-safe."""

    def __init__(self, now_micros: int = _START_MICROS) -> None:
        self._lock = threading.Lock()
        self._now_micros = now_micros
        self._elapsed_micros = 0

    def now_micros(self) -> int:
        with self._lock:
            return self._now_micros

    def monotonic_seconds(self) -> float:
        with self._lock:
            return self._elapsed_micros / 1e6

    def advance(self, duration: Duration) -> None:
        """Let time pass on both clocks."""
        micros = round(parse_seconds(duration) * 1e6)
        with self._lock:
            self._now_micros += micros
            self._elapsed_micros += micros

    def set_wall(self, now_micros: int) -> None:
        """Move the wall clock alone, as an operator or a time server does: forward or back."""
        with self._lock:
            self._now_micros = now_micros
