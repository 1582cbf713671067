"""Which offsets of a streamlet are done: everything under a low mark, and ranges above it that do not touch.

Not thread-safe: the group that holds one does so under its lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class DoneRanges:
    """Offsets that are done. There are as many ranges above `low` as there are gaps, which are few: consumers work at
    the front."""

    __slots__ = ("_starts", "_stops", "low")

    def __init__(self, low: int = 0, above: Iterable[tuple[int, int]] = ()) -> None:
        self.low = low
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in above:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """[start, stop) is done, whatever of it was before."""
        if start <= self.low:
            self.low = max(self.low, stop)
        elif start < stop:
            first, past = bisect_left(self._stops, start), bisect_right(self._starts, stop)
            low = min([start, *self._starts[first:past]])
            high = max([stop, *self._stops[first:past]])
            self._starts[first:past], self._stops[first:past] = [low], [high]
        while self._starts and self._starts[0] <= self.low:
            self.low = max(self.low, self._stops.pop(0))
            self._starts.pop(0)

    @property
    def above(self) -> list[tuple[int, int]]:
        """The ranges above `low`, in order."""
        return list(zip(self._starts, self._stops, strict=True))

    @property
    def end(self) -> int:
        """Behind the last offset that is done."""
        return self._stops[-1] if self._stops else self.low

    @property
    def count_above(self) -> int:
        """How many offsets above `low` are done."""
        return sum(self._stops) - sum(self._starts)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """What is not done before `end`."""
        at = self.low
        for start, stop in zip(self._starts, self._stops, strict=True):
            yield at, start
            at = stop

    def holds(self, start: int, stop: int) -> bool:
        """Whether all of [start, stop) is done."""
        if stop <= self.low:
            return True
        at = bisect_right(self._starts, max(start, self.low)) - 1
        return at >= 0 and stop <= self._stops[at]
