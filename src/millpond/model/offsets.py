"""Offsets: where a record is. Unique, increasing, final and dense per (stream, generation, streamlet)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The exclusive end of what has settled, per streamlet. Missing means nothing has.
Boundary = Mapping[int, int]

# Beyond every offset, and far enough from the end of int64 that lengths can be computed.
OFFSET_END = 2**62


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets `start` to `stop`, `stop` excluded."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"not an offset range: [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.stop

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"

    def intersect(self, other: OffsetRange) -> OffsetRange:
        """What both cover; empty (at the later start) where they do not meet."""
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.stop, other.stop)))


class Position(dict[int, int]):
    """The next offset per streamlet, and the generation that the offsets are of: kept, and given as `start` later, it
    is refused if the stream was truncated meanwhile. `text` says the same in a line; a plain dict of it leaves the
    generation out."""

    def __init__(self, offsets: Mapping[int, int], generation: int) -> None:
        super().__init__(offsets)
        self.generation = generation

    @property
    def text(self) -> str:
        """As `start` takes it from a command line or an address: `g2,0:120,1:80`."""
        return ",".join([f"g{self.generation}", *(f"{streamlet}:{self[streamlet]}" for streamlet in sorted(self))])


def ranges_between(start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, OffsetRange]:
    """Per streamlet what lies between two marks (a boundary and a head, say); empty ranges are left out."""
    found = {}
    for streamlet in sorted(stop):
        low, high = start.get(streamlet, 0), stop[streamlet]
        if low < high:
            found[streamlet] = OffsetRange(low, high)
    return found
