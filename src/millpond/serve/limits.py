"""How often each caller may ask: a bucket that fills by so much a second, and from which each request takes one.

Of each caller one number is kept: the moment at which its bucket is full again. A request moves it on by one request's
worth of time; if it would lie further ahead than a whole bucket takes to fill, the request is refused and told how long
to wait. So a check costs the same however many callers and however long the pause, and nothing has to run to fill
buckets.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

from millpond.clock import Clock, SystemClock
from millpond.errors import InvalidValue, TooManyRequests

# As many as there can be tokens. Of more, the one that was quiet for longest is forgotten: its bucket is the fullest.
CALLERS_MAX = 10_000


class RateLimiter:
    """`per_second` requests of each caller over time, `burst` at once; a rate of 0 is no bound. Thread-safe."""

    def __init__(
        self, per_second: float, burst: int = 0, *, callers_max: int = CALLERS_MAX, clock: Clock | None = None
    ) -> None:
        if not 0 <= per_second < math.inf or burst < 0 or callers_max < 1:
            raise InvalidValue(
                f"a rate of {per_second} a second with bursts of {burst} for {callers_max} callers",
                hint="numbers from 0 on",
            )
        self._clock = clock or SystemClock()
        self._rate = per_second
        self._interval = 1 / per_second if per_second else 0.0
        # What may lie ahead of now and still be let through: all of a bucket but the request itself.
        self._slack = self._interval * (max(burst or math.ceil(per_second), 1) - 1)
        self._callers_max = callers_max
        self._full_at: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, caller_id: str) -> None:
        """Count a request; `TooManyRequests` if it is one too many, and then it is not counted."""
        if not self._rate:
            return
        now = self._clock.monotonic_seconds()
        with self._lock:
            full_at = max(self._full_at.get(caller_id, now), now)
            wait = full_at - now - self._slack
            # A rounding error is no reason to refuse: less than a millionth of a request.
            if wait <= self._interval * 1e-6:
                self._full_at[caller_id] = full_at + self._interval
                self._full_at.move_to_end(caller_id)
                if len(self._full_at) > self._callers_max:
                    self._full_at.popitem(last=False)
                return
        raise TooManyRequests(
            f"more than {self._rate:g} requests a second",
            hint=f"wait {wait:.3g} s; requests_per_second of the server is the bound, and larger requests need fewer",
            retry_after_seconds=wait,
        )
