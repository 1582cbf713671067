"""Which appends were retries: per producer the last few sequences and the offsets they got.

A producer numbers its appends upwards. A sequence that is remembered is a retry and gets its first answer; one that is
new and higher than all remembered is an append; one that is lower than what is remembered is refused, because nobody
can tell any more whether it was kept. Bounded: so many producers per stream, the longest idle forgotten first.

An idempotency key is a producer that appends once. There are many of them, and a burst must not make the stream forget
the producers that go on: those who have appended once have half of the room, if the others want theirs.

Not thread-safe: the committer owns it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

from millpond.errors import StaleSequence
from millpond.model.offsets import OffsetRange

# Retries come soon: a producer has a handful of appends under way, not hundreds.
WINDOW = 32

Ranges = dict[int, OffsetRange]
Window = OrderedDict[int, Ranges]


def newest_named(error: StaleSequence) -> int | None:
    """The sequence that a refusal by `find` says was the newest. Only its text travels, so it is read from there."""
    found = re.search(r" after (\d{1,19})$", error.message)
    return None if found is None else int(found[1])


class Producers:
    """The producers of one stream."""

    def __init__(self, producers_max: int) -> None:
        self._max = producers_max
        # Both in the order of their last append. Nobody is in both.
        self._once: OrderedDict[str, Window] = OrderedDict()
        self._steady: OrderedDict[str, Window] = OrderedDict()

    def _window(self, producer: str) -> Window | None:
        return self._steady.get(producer) or self._once.get(producer)

    def find(self, producer: str, sequence: int) -> Ranges | None:
        """The offsets of an earlier append with this sequence; None if it is new; `StaleSequence` if nobody knows."""
        window = self._window(producer)
        if window is None:
            return None
        if sequence in window:
            return dict(window[sequence])
        newest = next(reversed(window))
        if sequence < newest:
            raise StaleSequence(
                f"producer {producer!r} sent sequence {sequence} after {newest}",
                hint=f"sequences go upwards; retries are recognised for the last {WINDOW}",
            )
        return None

    def record(self, producer: str, sequence: int, ranges: Ranges) -> None:
        """Remember an append. Parts of one append may be recorded one after the other."""
        window = self._window(producer) or OrderedDict()
        behind = sequence not in window and bool(window) and sequence < next(reversed(window))
        window.setdefault(sequence, {}).update(ranges)
        if behind:  # only while a journal is recovered: what is remembered stays in the order of sequences
            window = OrderedDict(sorted(window.items()))
        while len(window) > WINDOW:
            window.popitem(last=False)
        self._once.pop(producer, None)
        known = self._once if len(window) == 1 else self._steady
        known[producer] = window
        known.move_to_end(producer)
        while len(self._once) + len(self._steady) > self._max:
            crowd = self._once if len(self._once) > self._max // 2 else self._steady
            crowd.popitem(last=False)

    def truncated(self) -> None:
        """The records are gone. That they were sent is still known, but where they were means nothing any more."""
        for window in (*self._once.values(), *self._steady.values()):
            for ranges in window.values():
                ranges.clear()

    def state(self) -> list[tuple[str, int, list[tuple[int, int, int]]]]:
        """Everything remembered, oldest first of each kind, as plain values for the journal's state frame."""
        return [
            (producer, sequence, [(s, r.start, r.stop) for s, r in ranges.items()])
            for producer, window in (*self._once.items(), *self._steady.items())
            for sequence, ranges in window.items()
        ]

    def restore(self, state: Iterable[tuple[str, int, list[tuple[int, int, int]]]]) -> None:
        """Take back what `state` gave."""
        for producer, sequence, ranges in state:
            self.record(producer, sequence, {s: OffsetRange(a, b) for s, a, b in ranges})
