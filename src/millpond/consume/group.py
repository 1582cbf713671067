"""One consumer group: its members, their leases, and what they hold.

Everything is done under the group's lock but for reading records. Time comes from the pond's clock: a member that was
not heard of for its lease is expelled by whatever is asked next of its group, by anybody. From then on it is refused by
its epoch (I7), whatever its own clock says.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from millpond.clock import Clock
from millpond.consume.cursor import Cursor, Heads, Taken
from millpond.consume.fifo import FifoShare
from millpond.consume.member import Claim, Cut, MemberState
from millpond.consume.positions import Change, GroupState, Key, group_row
from millpond.consume.protocol import (
    Commit,
    Delivery,
    GroupStatus,
    Join,
    Member,
    Outcome,
    Receipt,
    Wanted,
)
from millpond.consume.share import Next, Share
from millpond.consume.slots import SlotShare
from millpond.errors import Fenced, TooLarge, TransactionOver
from millpond.model.offsets import OffsetRange
from millpond.model.sizes import about_bytes
from millpond.query import Halves
from millpond.query.meter import ingest_runs, observe
from millpond.telemetry import GroupTelemetry, Histogram

logger = logging.getLogger(__name__)

# Why members were expelled is told to so many of them.
REASONS_KEPT = 256
# Deliveries that a member may hold. Over it, somebody reads and forgets to commit.
CLAIMS_MAX = 10_000
# Each is looked at by whatever is asked of its group.
MEMBERS_MAX = 1_000
# What is decoded for a group that nobody polls is let go of after this.
REST_SECONDS = 5.0

REJOIN = "poll again: it joins anew and is given what is not committed"


class Group:
    """Thread-safe."""

    def __init__(self, key: Key, stream: str, halves: Halves, state: GroupState, clock: Clock) -> None:
        self.key, self.stream = key, stream
        self.halves, self._clock = halves, clock
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._members: dict[int, MemberState] = {}
        self._over: OrderedDict[int, str] = OrderedDict()
        self._polled_seconds = clock.monotonic_seconds()
        self.telemetry = GroupTelemetry()
        self._since_micros = clock.now_micros()
        self.state = state
        self._share: Share = self._new_share()

    def _new_share(self) -> Share:
        return (FifoShare if self.state.strategy == "fifo" else SlotShare)(self.halves, self.state)

    @property
    def generation(self) -> int:
        return self.state.generation

    # Members.

    def join(self, asked: Join, epoch: int) -> Member:
        """A new member; whoever had its name is expelled."""
        with self._settled:
            self._expire()
            while (other := self._settled_as(asked.instance)) is not None:
                self._expel(other, f"another consumer joined as {asked.instance!r}", died=False)
            stream_id, name = self.key
            if len(self._members) >= MEMBERS_MAX:
                raise TooLarge(
                    f"group {name!r} of {self.stream} has {MEMBERS_MAX:,} members",
                    hint="close() consumers that are done; those that died are members until their lease is over",
                )
            member = Member(self.stream, stream_id, name, asked.instance, epoch)
            state = MemberState(member, asked, self._clock.monotonic_seconds())
            self._members[epoch] = state
            self._share.joined(state)
            return member

    def _settled_as(self, instance: str) -> MemberState | None:
        """Who has this name, once none of its commits is under way: the commit decides what it gives back."""
        while True:
            found = next((m for m in self._members.values() if m.member.instance == instance), None)
            if found is None or not found.is_committing():
                return found
            self._settled.wait()

    def _member(self, member: Member) -> MemberState:
        """The member, heard of just now; `Fenced` if it is none."""
        self._expire()
        found = self._members.get(member.epoch)
        if found is None or found.member.instance != member.instance:
            raise self.fenced(member)
        found.seen_seconds = self._clock.monotonic_seconds()
        return found

    def fenced(self, member: Member) -> Fenced:
        """Why someone is no member any more."""
        self.telemetry.fenced.add()
        reason = self._over.get(member.epoch, "the pond was opened anew since it joined")
        return Fenced(f"{member.instance!r} is no member of group {self.key[1]!r} any more: {reason}", hint=REJOIN)

    def _expire(self) -> None:
        now = self._clock.monotonic_seconds()
        for member in list(self._members.values()):
            away = now - member.seen_seconds
            # What is being committed is not given to others: the commit decides.
            if away > member.asked.lease_seconds and member.committing is None:
                lease = f"{member.asked.lease_seconds:g}"
                self._expel(member, f"it was away for {away:.1f} s, and its lease is {lease} s", died=True)

    def _expel(self, member: MemberState, reason: str, *, died: bool) -> None:
        del self._members[member.epoch]
        self.telemetry.expelled.add(died)
        self._share.left(member, expelled=died)
        self._over[member.epoch] = reason
        while len(self._over) > REASONS_KEPT:
            self._over.popitem(last=False)

    def kills_max(self, member: Member) -> int:
        """How many consumers a record may take with it before it is given up on."""
        with self._lock:
            return self._member(member).asked.kills_max

    def renew(self, member: Member) -> None:
        """See `GroupDesk`."""
        with self._lock:
            self._member(member)

    def leave(self, member: Member) -> None:
        """See `GroupDesk`."""
        with self._settled:
            found = self._settled_as(member.instance)
            if found is not None and found.epoch == member.epoch:
                self._expel(found, "it left", died=False)

    # Handing out.

    def deliver(self, member: Member, wanted: Wanted) -> tuple[list[Delivery], dict[int, int]]:
        """What is there for a member, and what to wait beyond if that is nothing."""
        with self._lock:
            state, share = self._member(member), self._share
            self._polled_seconds = state.seen_seconds
        with share.reading(state):
            found = self._lost(state, share, wanted.after)
            if not found:
                self._take(state, share, wanted, found)
            return found, {} if found else share.reached(state)

    def _take(self, state: MemberState, share: Share, wanted: Wanted, found: list[Delivery]) -> None:
        """Claim what comes next, and add it to what was found."""
        heads = _once(self.halves.heads)
        rows, size = wanted.max_records, wanted.max_bytes
        while rows > 0 and size > 0 and share is self._share:
            try:
                taken = share.take(state, rows, size, heads)
                delivery = None if taken is None else self._claim(state, share, taken)
            except Exception as error:
                if not found or isinstance(error, Fenced):
                    raise
                # What is claimed reaches its member. The next poll comes to the same place.
                logger.warning("%s: group %s: a poll ends early", self.stream, self.key[1], exc_info=True)
                return
            if taken is None:
                return
            if delivery is not None:
                found.append(delivery)
                rows -= delivery.batch.num_rows
                if rows > 0:
                    size -= about_bytes(delivery.batch)

    def _claim(self, state: MemberState, share: Share, taken: Next) -> Delivery | None:
        """Make what was taken the member's, if it still may have it; None if there are no records in it."""
        batch = taken.taken.batch
        with self._lock:
            if share is not self._share:
                return None  # the group was moved: what was taken is not wanted any more
            if state.epoch not in self._members:
                share.put_back(state, taken)
                raise self.fenced(state.member)
            if not share.current(state, taken):
                share.put_back(state, taken)
                return None
            if batch is None:
                share.passed(state, taken)
                return None
            if len(state.claims) >= CLAIMS_MAX:
                share.put_back(state, taken)
                raise TooLarge(
                    f"{state.member.instance!r} holds {CLAIMS_MAX:,} deliveries that are not committed",
                    hint="commit() what was processed",
                )
            state.handed += 1
            claim = Claim(
                state.handed,
                taken.streamlet,
                taken.taken.start,
                taken.taken.stop,
                batch.num_rows,
                taken.tries,
                taken.taken.missed,
                taken.slots,
                taken.select,
                ingest_runs(batch, self._since_micros),
            )
            state.claims[claim.number] = claim
            share.claimed(state, claim)
            self.telemetry.read(batch.num_rows, 0)
            self._observe(self.telemetry.buffered, claim)
            return Delivery(self._receipt(claim), batch)

    def _receipt(self, claim: Claim) -> Receipt:
        return Receipt(
            claim.number, claim.streamlet, claim.start, claim.stop, self.generation, claim.tries, claim.missed
        )

    def _lost(self, state: MemberState, share: Share, after: int | None) -> list[Delivery]:
        """Deliveries whose answer was lost. Polls of one member take turns, so that two which say the same of what
        arrived are given the same."""
        with self._lock:
            lost = [] if after is None else [claim for number, claim in state.claims.items() if number > after]
            generation = self.generation
        again = (self._again(state, share, claim, generation) for claim in lost)
        return [delivery for delivery in again if delivery is not None]

    def _again(self, state: MemberState, share: Share, claim: Claim, generation: int) -> Delivery | None:
        """What is left of a delivery; None if all of it has expired, which passes it over."""
        start, stop = claim.start, claim.stop
        cursor = Cursor(self.halves, generation, claim.streamlet, start, select=claim.select, end=stop)
        taken = cursor.take(claim.rows, 2**62, self.halves.heads)
        batch, missed = (None, 0) if taken is None else (taken.batch, taken.missed)
        with self._lock:
            if state.claims.get(claim.number) is not claim:
                return None  # it was given back or committed meanwhile
            claim.missed = max(claim.missed, missed)
            if batch is None:
                del state.claims[claim.number]
                share.passed(state, Next(claim.streamlet, Taken(None, start, stop, claim.missed), slots=claim.slots))
                return None
            claim.rows = batch.num_rows
            return Delivery(self._receipt(claim), batch)

    # Numbers.

    def begin(self, member: Member, commit: Commit) -> tuple[MemberState, list[Cut], Change] | Outcome:
        """Check a commit and say what it changes, or what became of it before. From here to `end` the member holds what
        it holds. Number 0 is the coordinator's own."""
        with self._settled:
            state = self._idle(member)
            known = state.outcome(commit.number) if commit.number else None
            if known is True:
                state.check_same(commit)
                return Outcome(commit.number, committed=True, duplicate=True)
            if known is False:
                raise TransactionOver(
                    f"number {commit.number} of {member.instance!r} was aborted", hint="its records are delivered again"
                )
            cuts = state.cuts(commit.done, in_order=self.state.strategy != "fifo")
            change = self._share.change(state, cuts)
            state.committing, state.committing_thread = commit.number, threading.get_ident()
            if commit.number:
                state.again, state.tried = state.tried == commit, commit
            return state, cuts, change

    def _idle(self, member: Member) -> MemberState:
        """The member, once none of its commits is under way."""
        while True:
            state = self._member(member)
            if not state.is_committing():
                return state
            self._settled.wait()

    def end(self, state: MemberState, number: int, cuts: Sequence[Cut], change: Change | None) -> None:
        """The commit that was begun is durable; None: it is not, and never will be."""
        with self._settled:
            state.committing = None
            try:
                if change is not None:
                    self._committed(state, number, cuts, change)
            finally:
                self._settled.notify_all()

    def _committed(self, state: MemberState, number: int, cuts: Sequence[Cut], change: Change) -> None:
        self.state.apply(change, self._clock.now_micros())
        self.telemetry.commits.add()
        if number:
            state.settled(number, committed=True, what=state.tried)
        state.finish(cuts)
        self._share.committed(state, change)
        state.seen_seconds = self._clock.monotonic_seconds()
        for cut in cuts:
            if cut.whole:
                self._observe(self.telemetry.processed, cut.claim)

    def abort(self, member: Member, number: int) -> Outcome:
        """See `GroupDesk`."""
        with self._settled:
            state = self._idle(member)
            known = state.outcome(number)
            if known is None:
                state.settled(number, committed=False)
                self.telemetry.aborts.add()
            self._share.given_back(state)
            return Outcome(number, committed=bool(known), duplicate=known is not None)

    # Moving. While these are called no commit is under way.

    def move(self, state: GroupState, reason: str, keep: Member | None = None) -> None:
        """Go on from another state. All members but `keep` are expelled, and what they hold is void."""
        with self._lock:
            members = list(self._members.values())
            for member in members:
                member.claims.clear()
                if keep is None or member.epoch != keep.epoch:
                    self._expel(member, reason, died=False)
            self.state = state
            self._share = self._new_share()
            for member in self._members.values():
                member.version += 1
                member.cursors.clear()
                self._share.joined(member)

    def instances(self, but: Member | None = None) -> tuple[str, ...]:
        """Who is a member."""
        with self._lock:
            self._expire()
            return tuple(m.member.instance for e, m in self._members.items() if but is None or e != but.epoch)

    # Looking.

    def status(self) -> GroupStatus:
        """Where the group stands."""
        heads = self.halves.heads()
        with self._lock:
            self._expire()
            state = self.state
            positions = {streamlet: min(state.low(streamlet), head) for streamlet, head in heads.items()}
            above = {streamlet: done.count_above for streamlet, done in state.done.items() if done.count_above}
            lag = {streamlet: state.lag(streamlet, head) for streamlet, head in heads.items()}
            now = self._clock.monotonic_seconds()
            return GroupStatus(
                self.stream,
                self.key[0],
                self.key[1],
                state.strategy,
                state.by,
                state.generation,
                positions,
                heads,
                lag,
                above,
                tuple(m.status(now, self._share.slots_of(m)) for m in self._members.values()),
                state.missed,
                state.dead,
                state.committed_micros,
            )

    def row(self) -> tuple[str, Key, bytes]:
        """Where it stands, as a record."""
        with self._lock:
            return group_row(self.key, self.state)

    def lows(self, generation: int) -> dict[int, int]:
        """Under these offsets of a generation everything is done; a streamlet that is not named has nothing done."""
        with self._lock:
            self._expire()
            if self._clock.monotonic_seconds() - self._polled_seconds > REST_SECONDS:
                self._share.rest()
            if self.state.generation != generation:
                return {}
            return self.state.lows()

    def given(self, generation: int) -> dict[int, OffsetRange]:
        """Per streamlet the offsets of this generation that it was given and is done with, without a gap. A streamlet
        that is not named has none."""
        with self._lock:
            state = self.state
            if state.generation != generation:
                return {}
            return {s: OffsetRange(state.began.get(s, 0), low) for s, low in state.lows().items()}

    def _observe(self, stage: Histogram, claim: Claim) -> None:
        if claim.ingested is not None:
            observe(self.telemetry, stage, claim.ingested, self._clock.now_micros())


def _once(ask: Heads) -> Heads:
    """Asked once at most: one poll sees one moment."""
    known: list[Mapping[int, int]] = []

    def heads() -> Mapping[int, int]:
        if not known:
            known.append(ask())
        return known[0]

    return heads
