"""`fifo`: members take turns at the stream, whoever asks first gets what comes next.

Per streamlet there is one place where the next records are; what a member gives back, or had when it was expelled, is
handed out again before anything new. Order is that of handing out, not of processing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from millpond.consume.cursor import Cursor, Heads, Taken
from millpond.consume.member import Claim, Cut, MemberState
from millpond.consume.positions import Change, GroupState
from millpond.consume.share import SINGLE_AFTER, Next, Suspects, in_turn
from millpond.query import Halves


class FifoShare:
    """See `Share`."""

    def __init__(self, halves: Halves, state: GroupState) -> None:
        self._halves, self._state = halves, state
        self._reading = threading.Lock()
        self._fresh: dict[int, Cursor] = {}
        # Nothing behind these was handed out but by `_fresh`.
        self._ends = {streamlet: done.end for streamlet, done in state.done.items()}
        self._suspects = Suspects()
        self._turn = 0
        # Adding to it and taking from it are single steps of the interpreter: `take` does without the group's lock.
        self._returned: deque[tuple[int, int, int]] = deque(
            (streamlet, start, stop) for streamlet, done in state.done.items() for start, stop in done.gaps()
        )

    def reading(self, member: MemberState) -> threading.Lock:
        del member
        return self._reading

    def joined(self, member: MemberState) -> None:
        """Everybody may ask."""

    def left(self, member: MemberState, *, expelled: bool) -> None:
        if expelled:
            for claim in member.claims.values():
                self._suspects.add(claim)
        self.given_back(member)

    def given_back(self, member: MemberState) -> None:
        self._returned.extend((claim.streamlet, claim.start, claim.stop) for claim in member.claims.values())
        member.claims.clear()

    def take(self, member: MemberState, rows: int, size: int, heads: Heads) -> Next | None:
        if any(claim.tries >= SINGLE_AFTER for claim in list(member.claims.values())):
            return None  # one at a time
        return self._take_returned(member, rows, size, heads) or self._take_fresh(rows, size, heads)

    def _take_returned(self, member: MemberState, rows: int, size: int, heads: Heads) -> Next | None:
        try:
            streamlet, start, stop = self._returned.popleft()
        except IndexError:
            return None
        taken: Taken | None = None
        try:
            tries, before = self._suspects.until(streamlet, start)
            if tries >= SINGLE_AFTER:
                rows = 0 if member.claims else 1
            cursor = Cursor(self._halves, self._state.generation, streamlet, start, end=stop)
            taken = cursor.take(rows, size, heads, before)
        finally:
            rest = start if taken is None else taken.stop
            if rest < stop:
                self._returned.appendleft((streamlet, rest, stop))
        return None if taken is None else Next(streamlet, taken, tries)

    def _take_fresh(self, rows: int, size: int, heads: Heads) -> Next | None:
        for streamlet in in_turn(self._turn, self._halves.definition):
            cursor = self._fresh.get(streamlet)
            if cursor is None:
                at = self._ends.get(streamlet, 0)
                cursor = self._fresh[streamlet] = Cursor(self._halves, self._state.generation, streamlet, at)
            try:
                taken = cursor.take(rows, size, heads)
            except BaseException:
                # What is half read is read again from where it was last taken.
                self._fresh[streamlet] = Cursor(self._halves, self._state.generation, streamlet, cursor.at)
                raise
            if taken is not None:
                self._turn += 1
                return Next(streamlet, taken)
        return None

    def put_back(self, member: MemberState, found: Next) -> None:
        del member
        self._returned.appendleft((found.streamlet, found.taken.start, found.taken.stop))

    def current(self, member: MemberState, found: Next) -> bool:
        del member, found
        return True

    def claimed(self, member: MemberState, claim: Claim) -> None:
        """The cursor is past it."""

    def passed(self, member: MemberState, found: Next) -> None:
        del member
        self._state.done_of(found.streamlet).add(found.taken.start, found.taken.stop)
        self._state.missed += found.taken.missed

    def change(self, member: MemberState, cuts: Sequence[Cut]) -> Change:
        del member
        ranges: list[tuple[int, int, int]] = []
        for cut in cuts:
            last = ranges[-1] if ranges else None
            if last is not None and last[0] == cut.claim.streamlet and last[2] == cut.claim.start:
                ranges[-1] = (last[0], last[1], cut.stop)
            else:
                ranges.append((cut.claim.streamlet, cut.claim.start, cut.stop))
        missed = sum(cut.claim.missed for cut in cuts)
        return Change(self._state.generation, ranges=tuple(ranges), missed=missed)

    def committed(self, member: MemberState, change: Change) -> None:
        del member
        self._suspects.prune({streamlet: self._state.low(streamlet) for streamlet, _, _ in change.ranges})

    def reached(self, member: MemberState) -> dict[int, int]:
        del member
        return self._ends | {streamlet: cursor.at for streamlet, cursor in list(self._fresh.items())}

    def slots_of(self, member: MemberState) -> int:
        del member
        return 0

    def rest(self) -> None:
        if self._reading.acquire(blocking=False):
            try:
                self._fresh = {
                    streamlet: Cursor(self._halves, self._state.generation, streamlet, cursor.at)
                    for streamlet, cursor in self._fresh.items()
                }
            finally:
                self._reading.release()
