"""How a group's records are shared out to its members: what the two ways have in common.

A share is made from a group's state, and made anew when the group is moved. It decides what a member gets next, keeps
count of what is out, and says what a commit changes. What it keeps is memory: after a restart everything that is not
committed is handed out again.

Threads: `take` is called by one thread at a time and member (`reading` is held), without the group's lock, because it
reads; everything else, `claimed` included, under that lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from millpond.consume.cursor import Heads, Select, Taken
from millpond.consume.member import Claim, Cut, MemberState
from millpond.consume.positions import Change
from millpond.model.definition import StreamDefinition

# A range whose consumers were expelled so often is handed out record by record, one at a time.
SINGLE_AFTER = 2
# One take of so many looks first at what was loaded into the archive, which is rare, and not in memory.
LOADS_EVERY = 16
# Suspicious ranges that are remembered; more would be a fleet that dies for other reasons than its records.
SUSPECTS_MAX = 1_000


class Next(NamedTuple):
    """What a member gets next, not yet claimed."""

    streamlet: int
    taken: Taken
    tries: int = 0
    slots: int = 0
    select: Select | None = None
    version: int = 0  # of the member's share, when it was taken


@dataclass(frozen=True, slots=True)
class Suspect:
    """A range whose consumers were expelled `tries` times while they had it."""

    streamlet: int
    start: int
    stop: int
    tries: int


class Suspects:
    """Ranges that may hold a record which kills its consumers. Not thread-safe."""

    def __init__(self) -> None:
        self._ranges: list[Suspect] = []

    def add(self, claim: Claim) -> None:
        """A member was expelled that had this."""
        self._ranges.append(Suspect(claim.streamlet, claim.start, claim.stop, claim.tries + 1))
        del self._ranges[:-SUSPECTS_MAX]

    def tries(self, streamlet: int, start: int, stop: int) -> int:
        """The most of any that meets this range."""
        return max((s.tries for s in self._meeting(streamlet, start, stop)), default=0)

    def _meeting(self, streamlet: int, start: int, stop: int) -> list[Suspect]:
        return [s for s in self._ranges if s.streamlet == streamlet and s.start < stop and s.stop > start]

    def until(self, streamlet: int, at: int) -> tuple[int, int | None]:
        """The tries of the record at an offset, and where that changes at the latest; None: nowhere."""
        if not self._ranges:
            return 0, None
        ahead = [s for s in self._ranges if s.streamlet == streamlet and s.stop > at]
        edges = [s.start for s in ahead if s.start > at] + [s.stop for s in ahead]
        return self.tries(streamlet, at, at + 1), min(edges, default=None)

    def prune(self, lows: Mapping[int, int]) -> None:
        """What lies under these marks is done."""
        if self._ranges:
            self._ranges = [s for s in self._ranges if s.stop > lows.get(s.streamlet, 0)]


def in_turn(turn: int, definition: StreamDefinition) -> Iterator[int]:
    """The streamlets in the order in which they are looked at: each begins once in a while."""
    count = definition.streamlets
    if turn % LOADS_EVERY == 0:
        yield definition.load_streamlet
    for step in range(count):
        yield (turn + step) % count
    if turn % LOADS_EVERY:
        yield definition.load_streamlet


class Share(Protocol):
    """Of one group."""

    def reading(self, member: MemberState) -> threading.Lock:
        """Held around `take` and `claimed`."""
        ...

    def joined(self, member: MemberState) -> None: ...

    def left(self, member: MemberState, *, expelled: bool) -> None:
        """A member is gone, and what it had is free."""
        ...

    def given_back(self, member: MemberState) -> None:
        """A member gives back all of its claims and stays."""
        ...

    def take(self, member: MemberState, rows: int, size: int, heads: Heads) -> Next | None:
        """What comes next for a member; None if there is nothing for it now."""
        ...

    def put_back(self, member: MemberState, found: Next) -> None:
        """What was taken is not claimed after all."""
        ...

    def current(self, member: MemberState, found: Next) -> bool:
        """Whether what was taken is still the member's to get."""
        ...

    def claimed(self, member: MemberState, claim: Claim) -> None:
        """What was taken last is this claim."""
        ...

    def passed(self, member: MemberState, found: Next) -> None:
        """What was taken last has no records in it."""
        ...

    def change(self, member: MemberState, cuts: Sequence[Cut]) -> Change:
        """What a commit of these would change."""
        ...

    def committed(self, member: MemberState, change: Change) -> None:
        """It is durable, in the state, and the member's claims are finished."""
        ...

    def reached(self, member: MemberState) -> dict[int, int]:
        """Behind what was handed out, per streamlet: what is worth waiting beyond."""
        ...

    def slots_of(self, member: MemberState) -> int:
        """How many slots it has."""
        ...

    def rest(self) -> None:
        """Let go of what is decoded and not handed out, unless somebody is reading."""
        ...
