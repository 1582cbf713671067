"""`round_robin` and `hash`: records are dealt to 64 slots, slots to members, and each slot is processed in order.

A slot has a mark per streamlet, behind what is committed, and another behind what was handed out. Both move forward
only, and are equal whenever a slot changes hands: it goes to another member only once its owner has committed or given
back everything of it, or was expelled. So nothing is processed twice, and records of one slot are processed in the
order of their offsets, however members come and go.

A slot that is to leave its owner gets no new records meanwhile: it leaves with the owner's next commit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millpond.consume.cursor import Cursor, Heads, Select
from millpond.consume.member import Claim, Cut, MemberState
from millpond.consume.positions import SLOTS, Change, GroupState, Marks, as_bits, as_mask
from millpond.consume.share import SINGLE_AFTER, Next, Suspects, in_turn
from millpond.query import Halves


class SlotShare:
    """See `Share`."""

    def __init__(self, halves: Halves, state: GroupState) -> None:
        self._halves, self._state = halves, state
        self._by = state.by if state.strategy == "hash" else None
        self._members: dict[int, MemberState] = {}
        # Per slot: the epoch of its owner, and of who is to have it; 0: nobody.
        self._owner = np.zeros(SLOTS, np.int64)
        self._target = np.zeros(SLOTS, np.int64)
        self._handed: dict[int, Marks] = {}
        self._suspects = Suspects()

    def reading(self, member: MemberState) -> threading.Lock:
        return member.reading

    # Who has which slots.

    def joined(self, member: MemberState) -> None:
        self._members[member.epoch] = member
        self._deal()

    def left(self, member: MemberState, *, expelled: bool) -> None:
        if expelled:
            for claim in member.claims.values():
                self._suspects.add(claim)
        self._rewind(member)
        del self._members[member.epoch]
        self._owner[self._owner == member.epoch] = 0
        self._deal()

    def given_back(self, member: MemberState) -> None:
        self._rewind(member)
        self._move()

    def _rewind(self, member: MemberState) -> None:
        member.claims.clear()
        mine = self._owner == member.epoch
        for streamlet, handed in self._handed.items():
            handed[mine] = self._state.marks_of(streamlet)[mine]
        self._changed(member)

    def _changed(self, member: MemberState) -> None:
        member.version += 1
        member.cursors.clear()

    def _deal(self) -> None:
        """Decide who is to have what: equal numbers, with as few slots as can be going to somebody else."""
        before = self._target.copy()
        epochs = list(self._members)
        target = np.where(np.isin(self._target, epochs), self._target, 0)
        for at, epoch in enumerate(epochs):
            quota = SLOTS // len(epochs) + (at < SLOTS % len(epochs))
            target[np.flatnonzero(target == epoch)[quota:]] = 0
        for at, epoch in enumerate(epochs):
            quota = SLOTS // len(epochs) + (at < SLOTS % len(epochs))
            missing = quota - int((target == epoch).sum())
            if missing > 0:
                target[np.flatnonzero(target == 0)[:missing]] = epoch
        self._target = target
        for epoch, member in self._members.items():
            if not np.array_equal(before == epoch, target == epoch):
                self._changed(member)
        self._move()

    def _move(self) -> None:
        """Let slots go to whom they are to have, where their owner holds nothing of them."""
        held = {
            epoch: np.logical_or.reduce([as_mask(claim.slots) for claim in member.claims.values()])
            for epoch, member in self._members.items()
            if member.claims
        }
        for slot in np.flatnonzero(self._owner != self._target).tolist():
            owner, target = int(self._owner[slot]), int(self._target[slot])
            if owner in held and held[owner][slot]:
                continue
            self._owner[slot] = target
            for streamlet, handed in self._handed.items():
                handed[slot] = self._state.marks_of(streamlet)[slot]
            if target in self._members:
                self._changed(self._members[target])

    def _mine(self, member: MemberState) -> npt.NDArray[np.bool_]:
        """The slots that a member is handed records of."""
        mine: npt.NDArray[np.bool_] = (self._owner == member.epoch) & (self._target == member.epoch)
        return mine

    def _handed_of(self, streamlet: int) -> Marks:
        found = self._handed.get(streamlet)
        if found is None:
            found = self._handed.setdefault(streamlet, self._state.marks_of(streamlet).copy())
        return found

    def _handed_now(self, streamlet: int) -> Marks:
        """The same, for who has no lock: nothing is added."""
        found = self._handed.get(streamlet)
        if found is None:
            found = self._state.marks.get(streamlet)
        return np.zeros(SLOTS, np.int64) if found is None else found

    # What a member gets.

    def take(self, member: MemberState, rows: int, size: int, heads: Heads) -> Next | None:
        version, mine = member.version, self._mine(member)
        if not mine.any() or any(claim.tries >= SINGLE_AFTER for claim in list(member.claims.values())):
            return None
        bits = as_bits(mine)
        for streamlet in in_turn(member.turn, self._halves.definition):
            cursor, select = self._cursor(member, streamlet, version, mine)
            tries, before = self._suspects.until(streamlet, cursor.at)
            if tries >= SINGLE_AFTER:
                if member.claims:
                    return None
                rows = 1
            try:
                taken = cursor.take(rows, size, heads, before)
            except BaseException:
                member.cursors.pop(streamlet, None)
                raise
            if taken is not None:
                member.turn += 1
                tries = self._suspects.tries(streamlet, taken.start, taken.stop)
                return Next(streamlet, taken, tries, bits, select, version)
        return None

    def _cursor(
        self, member: MemberState, streamlet: int, version: int, mine: npt.NDArray[np.bool_]
    ) -> tuple[Cursor, Select | None]:
        known = member.cursors.get(streamlet)
        if known is not None and known[0] == version:
            return known[1], known[1].select
        handed = self._handed_now(streamlet).copy()
        start = int(handed[mine].min())
        even = mine.all() and int(handed.max()) == start
        select = None if even else Select(self._by, mine, handed)
        cursor = Cursor(self._halves, self._state.generation, streamlet, start, select=select)
        member.cursors[streamlet] = (version, cursor)
        return cursor, select

    def put_back(self, member: MemberState, found: Next) -> None:
        member.cursors.pop(found.streamlet, None)

    def current(self, member: MemberState, found: Next) -> bool:
        return found.version == member.version

    def claimed(self, member: MemberState, claim: Claim) -> None:
        handed = self._handed_of(claim.streamlet)
        np.maximum(handed, claim.stop, out=handed, where=as_mask(claim.slots))

    def passed(self, member: MemberState, found: Next) -> None:
        mask, stop = as_mask(found.slots), found.taken.stop
        handed = self._handed_of(found.streamlet)
        np.maximum(handed, stop, out=handed, where=mask)
        self._state.missed += found.taken.missed
        if all(claim.streamlet != found.streamlet for claim in member.claims.values()):
            marks = self._state.marks_of(found.streamlet)
            np.maximum(marks, stop, out=marks, where=mask)
        if not np.array_equal(self._owner, self._target):
            self._move()

    # What a commit does.

    def change(self, member: MemberState, cuts: Sequence[Cut]) -> Change:
        marks: dict[tuple[int, int], int] = {}
        for cut in cuts:
            key = (cut.claim.streamlet, cut.claim.slots)
            marks[key] = max(marks.get(key, 0), cut.stop)
        finished = {cut.claim.number for cut in cuts if cut.whole}
        waiting = {claim.streamlet for number, claim in member.claims.items() if number not in finished}
        for streamlet, bits in marks:
            if streamlet not in waiting:
                # Nothing is out any more: what was passed since, because it had no records of these slots, is done.
                reached = int(self._handed_of(streamlet)[as_mask(bits)].min())
                marks[streamlet, bits] = max(marks[streamlet, bits], reached)
        missed = sum(cut.claim.missed for cut in cuts)
        found = tuple((streamlet, bits, stop) for (streamlet, bits), stop in marks.items())
        return Change(self._state.generation, marks=found, missed=missed)

    def committed(self, member: MemberState, change: Change) -> None:
        self._suspects.prune({streamlet: self._state.low(streamlet) for streamlet, _, _ in change.marks})
        if not np.array_equal(self._owner, self._target):
            self._move()

    def reached(self, member: MemberState) -> dict[int, int]:
        mine = self._mine(member)
        if not mine.any():
            return {}
        cursors = {streamlet: cursor.at for streamlet, (_, cursor) in list(member.cursors.items())}
        return {streamlet: int(handed[mine].min()) for streamlet, handed in list(self._handed.items())} | cursors

    def slots_of(self, member: MemberState) -> int:
        return int((self._owner == member.epoch).sum())

    def rest(self) -> None:
        for member in list(self._members.values()):
            if member.reading.acquire(blocking=False):
                try:
                    self._changed(member)
                finally:
                    member.reading.release()
