"""A member of a group, as the coordinator sees it: what it was handed, and what became of its numbers.

Not thread-safe: its group's lock is held while it changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.consume.cursor import Cursor, Select
from millpond.consume.protocol import Commit, Done, Join, Member, MemberStatus
from millpond.errors import InvalidValue, TransactionOver

# Retries are of the last number; a few more for answers that come late.
OUTCOMES_KEPT = 32


@dataclass(slots=True)
class Claim:
    """Records that were handed out and are not committed: what is left of one delivery."""

    number: int
    streamlet: int
    start: int
    stop: int
    rows: int
    tries: int = 0
    missed: int = 0
    slots: int = 0  # under `round_robin` and `hash`: whose records these are, as bits
    select: Select | None = None
    ingested: Any = None  # when, for the measure of latency


@dataclass(slots=True)
class Cut:
    """A claim that is being committed, up to an offset."""

    claim: Claim
    stop: int

    @property
    def whole(self) -> bool:
        return self.stop >= self.claim.stop


@dataclass(eq=False)
class MemberState:
    """`last`: the newest number that has an outcome; `committing`: the one that is on its way; `tried`: the commit that
    was begun last, and `again` whether it had been begun before."""

    member: Member
    asked: Join
    seen_seconds: float
    claims: dict[int, Claim] = field(default_factory=dict)
    handed: int = 0
    last: int = 0
    committing: int | None = None
    committing_thread: int = 0
    tried: Commit | None = None
    again: bool = False
    outcomes: OrderedDict[int, tuple[bool, int]] = field(default_factory=OrderedDict)  # with a hash of what it was
    cursors: dict[int, tuple[int, Cursor]] = field(default_factory=dict)  # with the version they were opened in
    turn: int = 0
    version: int = 0  # of its share: goes up whenever it changes
    reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def epoch(self) -> int:
        return self.member.epoch

    @property
    def producer(self) -> str:
        """Under this name its commits are remembered by the log."""
        return producer_of(self.member)

    def status(self, now_seconds: float, slots: int) -> MemberStatus:
        """What it has, and how long it was not heard of."""
        return MemberStatus(
            self.member.instance,
            self.epoch,
            self.asked.lease_seconds,
            max(now_seconds - self.seen_seconds, 0.0),
            len(self.claims),
            sum(claim.rows for claim in self.claims.values()),
            slots,
        )

    def is_committing(self) -> bool:
        """Whether a commit is under way. None is of the very thread that asks: an interrupt cut it off before it could
        say that it is over, and waiting for it would be for good. It counts as one that failed."""
        if self.committing is not None and self.committing_thread == threading.get_ident():
            self.committing = None
        return self.committing is not None

    def settled(self, number: int, committed: bool, what: Commit | None = None) -> None:
        """A number has its outcome, for good."""
        self.last = max(self.last, number)
        self.outcomes[number] = (committed, hash(what))
        while len(self.outcomes) > OUTCOMES_KEPT:
            self.outcomes.popitem(last=False)

    def outcome(self, number: int) -> bool | None:
        """Whether a number was committed (True) or aborted (False); None if it is new. `TransactionOver` if it is too
        old to be remembered."""
        if number < 1:
            raise InvalidValue(f"number {number}", hint="a member's commits and aborts are numbered from 1")
        if number in self.outcomes:
            return self.outcomes[number][0]
        if number < self.last:
            raise TransactionOver(
                f"number {number} of {self.member.instance!r} comes after {self.last}",
                hint="numbers go upwards; take the next one",
            )
        return None

    def check_same(self, commit: Commit) -> None:
        """`TransactionOver` if what was committed under this number is something else."""
        if self.outcomes[commit.number][1] != hash(commit):
            raise number_taken(self.member, commit.number)

    def cuts(self, done: Sequence[Done], in_order: bool) -> list[Cut]:
        """The claims that a commit covers, checked. `in_order`: of each streamlet without a gap, from its first on."""
        found = [self._cut(each) for each in done]
        if len({cut.claim.number for cut in found}) != len(found):
            raise InvalidValue("a commit names a delivery twice", hint="name each once, with its last offset")
        if in_order:
            self._check_order(found)
        return found

    def _cut(self, done: Done) -> Cut:
        claim = self.claims.get(done.number)
        if claim is None:
            raise InvalidValue(
                f"delivery {done.number} is not one that {self.member.instance!r} holds",
                hint="commit each delivery once, before it is aborted or sought away from",
            )
        stop = claim.stop if done.stop is None else done.stop
        if not claim.start < stop <= claim.stop:
            raise InvalidValue(
                f"delivery {done.number} holds [{claim.start}, {claim.stop}), not up to {stop}",
                hint="an offset after its first record, at most its end",
            )
        return Cut(claim, stop)

    def _check_order(self, cuts: Sequence[Cut]) -> None:
        covered = {cut.claim.number: cut for cut in cuts}
        open_at: dict[int, int] = {}
        for number, claim in self.claims.items():
            cut = covered.get(number)
            if claim.streamlet in open_at and cut is not None:
                raise InvalidValue(
                    f"delivery {number} is committed before delivery {open_at[claim.streamlet]}",
                    hint="order is kept under round_robin and hash: commit deliveries as they came",
                )
            if cut is None or not cut.whole:
                open_at.setdefault(claim.streamlet, number)

    def finish(self, cuts: Sequence[Cut]) -> None:
        """They are committed."""
        for cut in cuts:
            if cut.whole:
                self.claims.pop(cut.claim.number, None)
            else:
                cut.claim.start, cut.claim.missed = cut.stop, 0


def number_taken(member: Member, number: int) -> TransactionOver:
    """A number that another commit has: to call that a repetition would lose what this one is about."""
    return TransactionOver(
        f"number {number} of {member.instance!r} was committed before, with something else",
        hint="numbers go upwards; take the next one, or join again",
    )


def producer_of(member: Member) -> str:
    """Epochs are never given twice, so a member's numbers are its own."""
    return f"{member.epoch}@{member.instance}"
