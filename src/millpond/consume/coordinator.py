"""The coordinator: the one owner of all consumer groups of a pond.

It answers as `GroupDesk`. What groups have done is in `_pond/positions`: a commit is a record there, alone or in one
atomic group with the outputs of a transaction, so that both are there after a crash or neither. Members and what they
hold are memory: after a restart they are unknown, join again, and are given what was not committed.

Positions are written at durability `os` unless asked otherwise. That loses none of what they stand for: the journal is
sequential, so a position never outlives the records before it, and one that is lost is records delivered again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from millpond.clock import Clock
from millpond.consume.checks import checked_join, place, plain_place
from millpond.consume.dead import DEAD_SCHEMA, bury, dead_name, replay
from millpond.consume.gate import Gate
from millpond.consume.group import Group
from millpond.consume.member import Cut, MemberState, number_taken, producer_of
from millpond.consume.outputs import Buffered, buffered, strongest
from millpond.consume.position_log import PositionLog
from millpond.consume.positions import (
    POSITIONS,
    Change,
    GroupState,
    commit_row,
    delete_row,
    group_row,
)
from millpond.consume.protocol import (
    Commit,
    Delivery,
    Done,
    Failed,
    GroupChange,
    GroupSpec,
    GroupStatus,
    Join,
    Member,
    Outcome,
    Outputs,
    Place,
    Replayed,
    Wanted,
)
from millpond.consume.streams import ConsumedStream, Streams
from millpond.errors import (
    Fenced,
    GroupConflict,
    GroupNotFound,
    InvalidValue,
    StaleSequence,
    StreamNotFound,
    TooLarge,
    Truncated,
)
from millpond.log.engine import Ack, LogEngine
from millpond.model.schema import OFFSET

logger = logging.getLogger(__name__)

# How long a waiting poll sleeps before it looks whether something was given back. New records wake it at once.
LOOK_SECONDS = 0.1
# A truncation takes effect in the log first and in the stream's definition a moment later.
TRUNCATING_SECONDS = 0.001
GROUPS_MAX = 10_000


class Coordinator:
    """See `GroupDesk`. Thread-safe."""

    def __init__(self, log: LogEngine, streams: Streams, clock: Clock, known: Iterable[ConsumedStream]) -> None:
        self._log, self._streams, self._clock = log, streams, clock
        self._gate = Gate()
        self._positions = PositionLog(log, clock)
        fold = self._positions.replay()
        by_id = {stream.definition.id: stream for stream in known}
        # Groups of streams that are gone are gone with them.
        self._groups = {
            key: Group(key, by_id[key[0]].name, by_id[key[0]].halves, state, clock)
            for key, state in fold.groups.items()
            if key[0] in by_id
        }

    # Members.

    def join(self, asked: Join) -> Member:
        """See `GroupDesk`."""
        stream = self._stream(asked.spec)
        asked = checked_join(asked, stream.definition)
        group = self._current(self._groups.get((stream.definition.id, asked.spec.group)) or self._make(stream, asked))
        state = group.state
        if (state.strategy, state.by) != (asked.spec.strategy, asked.spec.by):
            by = f" by {state.by!r}" if state.by else ""
            raise GroupConflict(
                f"group {asked.spec.group!r} of {stream.name} works as {state.strategy}{by}, not as "
                f"{asked.spec.strategy}" + (f" by {asked.spec.by!r}" if asked.spec.by else ""),
                hint="take another group's name, or delete the group and its position first",
            )
        return group.join(asked, self._positions.next_epoch())

    def _stream(self, spec: GroupSpec) -> ConsumedStream:
        stream = self._streams.stream(spec.stream)
        if spec.stream_id and stream.definition.id != spec.stream_id:
            raise StreamNotFound(f"stream {spec.stream!r} was dropped and made anew", hint="consume it from its start")
        return stream

    def _make(self, stream: ConsumedStream, asked: Join) -> Group:
        spec, halves = asked.spec, stream.halves
        key = (stream.definition.id, spec.group)
        while True:
            generation = halves.generation
            positions = place(halves, spec.start)
            with self._gate.alone():
                found = self._groups.get(key)
                if found is not None:
                    return found
                if len(self._groups) >= GROUPS_MAX:
                    raise TooLarge(f"the pond has {GROUPS_MAX:,} consumer groups", hint="delete some that are not used")
                if generation == halves.generation == stream.definition.generation:
                    state = GroupState(spec.strategy, spec.by, generation).moved(positions, generation)
                    self._positions.write([group_row(key, state)])
                    found = self._groups[key] = Group(key, stream.name, halves, state, self._clock)
                    return found
            time.sleep(TRUNCATING_SECONDS)  # these offsets may be of two generations

    def _group(self, member: Member) -> Group:
        group = self._groups.get((member.stream_id, member.group))
        if group is None:
            raise Fenced(
                f"{member.instance!r} is no member of group {member.group!r} any more: the group or its stream is gone",
                hint="poll again: the group is made anew where its stream is there",
            )
        return self._current(group)

    def _current(self, group: Group) -> Group:
        """The group; if its stream was truncated since, at the start of the new generation."""
        while group.halves.definition.generation != group.generation:
            with self._gate.alone():
                generation = group.halves.definition.generation
                positions = place(group.halves, "earliest")
                if generation != group.generation and generation == group.halves.generation:
                    state = group.state.moved(positions, generation)
                    self._positions.write([group_row(group.key, state)])
                    group.move(state, f"{group.stream} was truncated; this is generation {generation}")
                    return group
            time.sleep(TRUNCATING_SECONDS)  # it is being truncated again
        return group

    def renew(self, member: Member) -> None:
        """See `GroupDesk`."""
        self._group(member).renew(member)

    def leave(self, member: Member) -> None:
        """See `GroupDesk`."""
        group = self._groups.get((member.stream_id, member.group))
        if group is not None:
            group.leave(member)

    # Handing out.

    def poll(self, member: Member, wanted: Wanted) -> Sequence[Delivery]:
        """See `GroupDesk`."""
        until: float | None = None
        while True:
            group = self._group(member)
            try:
                found, beyond = group.deliver(member, wanted)
            except Truncated:
                time.sleep(TRUNCATING_SECONDS)  # the group follows as soon as the stream has its new generation
                continue
            if found:
                doomed = found[-1]
                if doomed.receipt.tries < group.kills_max(member) or doomed.batch.num_rows > 1:
                    return found
                # Whoever gets it dies: it is not handed out again.
                self._give_up(member, doomed)
                if len(found) > 1:
                    return found[:-1]
                continue
            now = time.monotonic()
            until = now + wanted.wait_seconds if until is None else until
            if now >= until:
                return found
            group.halves.wait(beyond, min(until - now, LOOK_SECONDS))

    def _give_up(self, member: Member, doomed: Delivery) -> None:
        receipt = doomed.receipt
        reason = f"{receipt.tries} consumers were lost while they had it"
        dead = Failed(receipt.number, doomed.batch.column(OFFSET)[0].as_py(), receipt.tries, reason)
        self._commit_once(member, Commit(0, (Done(receipt.number),), (dead,)), None)

    # Commits.

    def commit(self, member: Member, commit: Commit, outputs: Outputs | None = None) -> Outcome:
        """See `GroupDesk`."""
        if commit.number < 1:
            raise InvalidValue(f"number {commit.number}", hint="a member's commits and aborts are numbered from 1")
        return self._commit_once(member, commit, None if outputs is None else buffered(outputs))

    def _commit_once(self, member: Member, commit: Commit, held: Buffered | None) -> Outcome:
        try:
            group = self._group(member)
            if commit.dead:  # made before anything else: it takes locks that must not be waited for below
                self._streams.make_dead(dead_name(group.stream), DEAD_SCHEMA)
            outcome = self._commit(group, member, commit, held)
        except (Fenced, StreamNotFound):
            if self._known(member, commit.number):
                return Outcome(commit.number, committed=True, duplicate=True)
            raise
        self._compact_if_due()
        return outcome

    def _commit(self, group: Group, member: Member, commit: Commit, outputs: Buffered | None) -> Outcome:
        with self._gate.together():
            begun = group.begin(member, commit)
            if isinstance(begun, Outcome):
                return begun
            state, cuts, change = begun
            durable: Change | None = None
            acks: list[Ack] = []
            try:
                change = msgspec.structs.replace(change, dead=len(commit.dead))
                if cuts or outputs is not None:
                    acks = self._write_commit(group, state, commit, cuts, change, outputs)
                durable = change
            finally:
                group.end(state, commit.number, cuts, durable)
        return Outcome(commit.number, committed=True, acks=tuple(acks))

    def _write_commit(
        self,
        group: Group,
        state: MemberState,
        commit: Commit,
        cuts: Sequence[Cut],
        change: Change,
        outputs: Buffered | None,
    ) -> list[Ack]:
        now = self._clock.now_micros()
        appends = [self._positions.append_of(commit_row(group.key, change), now)]
        durabilities = [state.asked.durability]
        if commit.dead:
            dead = bury(self._streams, group, cuts, commit.dead, now)
            appends.append(dead.append)
            durabilities.append(dead.durability)
        if outputs is not None:
            outputs.make_ready()
            appends += outputs.appends
            durabilities += outputs.durabilities
        who = {"producer": state.producer, "sequence": commit.number} if commit.number else {}
        acks = self._log.append_together(appends, durability=strongest(durabilities), **who)  # type: ignore[arg-type]
        if commit.number and acks[0].duplicate and not state.again:
            raise number_taken(state.member, commit.number)
        self._positions.written += 1
        return acks[len(acks) - len(outputs.appends) :] if outputs is not None else []

    def _known(self, member: Member, number: int) -> bool:
        """Whether a commit whose member is unknown happened all the same, before a restart say."""
        try:
            return self._log.known(POSITIONS.id, producer_of(member), number) is not None
        except StaleSequence:
            return False

    def abort(self, member: Member, number: int) -> Outcome:
        """See `GroupDesk`."""
        try:
            return self._group(member).abort(member, number)
        except (Fenced, StreamNotFound):
            if self._known(member, number):
                return Outcome(number, committed=True, duplicate=True)
            raise

    def outputs(self) -> Buffered:
        """See `GroupDesk`."""
        return Buffered(self._streams)

    def append_all(self, outputs: Outputs, producer: str, sequence: int) -> tuple[Ack, ...]:
        """See `GroupDesk`."""
        held = buffered(outputs)
        held.make_ready()
        full = [append for append in held.appends if append.parts]
        if not full:
            return tuple(Ack({}, durability) for durability in held.durabilities)
        # The producer is remembered with the first stream that is given something.
        acks = iter(
            self._log.append_together(
                full, durability=strongest(held.durabilities), producer=producer, sequence=sequence
            )
        )
        pairs = zip(held.appends, held.durabilities, strict=True)
        return tuple(next(acks) if append.parts else Ack({}, durability) for append, durability in pairs)

    # Looking after groups.

    def groups(self, stream: str | None = None) -> list[GroupStatus]:
        """See `GroupDesk`."""
        found = []
        for group in sorted(self._groups.values(), key=lambda group: (group.stream, group.key[1])):
            if stream is None or group.stream == stream:
                try:
                    found.append(self._current(group).status())
                except StreamNotFound:
                    continue  # dropped meanwhile
        return found

    def group(self, stream: str, group: str) -> GroupStatus:
        """See `GroupDesk`."""
        return self._named(stream, group).status()

    def _named(self, stream: str, group: str) -> Group:
        found = self._groups.get((self._streams.stream(stream).definition.id, group))
        if found is None:
            known = ", ".join(sorted(g.key[1] for g in self._groups.values() if g.stream == stream)[:8])
            raise GroupNotFound(f"{stream} has no group {group!r}", hint=f"its groups: {known or 'none yet'}")
        return self._current(found)

    def reset(self, stream: str, group: str, to: Place, *, preview: bool = True) -> GroupChange:
        """See `GroupDesk`."""
        return self._move(self._named(stream, group), to, preview, None)

    def seek(self, member: Member, to: Place) -> GroupChange:
        """See `GroupDesk`."""
        group = self._group(member)
        group.renew(member)
        return self._move(group, to, False, member)

    def _move(self, group: Group, to: Place, preview: bool, keep: Member | None) -> GroupChange:
        while True:
            generation = self._current(group).generation
            positions = place(group.halves, to)
            with self._gate.alone():
                if group.key not in self._groups:
                    raise GroupNotFound(
                        f"group {group.key[1]!r} was deleted meanwhile", hint="a consumer makes it anew"
                    )
                if generation == group.generation == group.halves.generation:
                    change = _change(group, positions, preview, group.instances(keep))
                    if not preview:
                        state = group.state.moved(positions, generation)
                        self._positions.write([group_row(group.key, state)])
                        group.move(state, f"the group was moved to {plain_place(to)}", keep)
                    return change
            time.sleep(TRUNCATING_SECONDS)  # these offsets may be of two generations

    def delete(self, stream: str, group: str, *, preview: bool = False) -> GroupChange:
        """See `GroupDesk`."""
        found = self._named(stream, group)
        with self._gate.alone():
            change = _change(found, found.status().heads, preview, found.instances())
            change = replace(change, again=0, skipped=0)
            if not preview and self._groups.pop(found.key, None) is not None:
                self._positions.write([delete_row(found.key)])
                found.move(found.state, "the group was deleted")
        return change

    def forget(self, stream_id: int) -> None:
        """A stream was dropped: its groups are no more."""
        with self._gate.alone():
            gone = [key for key in self._groups if key[0] == stream_id]
            if gone:
                self._positions.write([delete_row(key) for key in gone])
            for key in gone:
                self._groups.pop(key).move(GroupState("fifo", None, 0), "its stream was dropped")

    def replay(self, stream: str, *, group: str | None = None, limit: int | None = None) -> Replayed:
        """See `GroupDesk`."""
        return replay(self, self._streams.stream(stream), group, limit)

    # For those who keep memory small, and who measure.

    def pins(self, stream_id: int) -> dict[int, int]:
        """Under these offsets no group of the stream wants anything any more; empty: it has no groups. A group that has
        not followed a truncation yet wants everything."""
        groups = [group for key, group in list(self._groups.items()) if key[0] == stream_id]
        if not groups:
            return {}
        halves = groups[0].halves
        generation = halves.generation
        lows = [group.lows(generation) for group in groups]
        return {s: min(low.get(s, 0) for low in lows) for s in halves.heads()}

    def processed(self, stream_id: int, generation: int, starts: Mapping[int, int]) -> dict[int, int]:
        """Under these offsets some group was given every record from `starts` on, and no group wants one any more. A
        group that began later, or was moved past records, has not processed what it was never given."""
        groups = [group for key, group in list(self._groups.items()) if key[0] == stream_id]
        given = [group.given(generation) for group in groups]
        found = {}
        for streamlet, start in starts.items():
            own = [each[streamlet] for each in given if streamlet in each]
            if own and len(own) == len(given) and any(each.start <= start for each in own):
                found[streamlet] = min(each.stop for each in own)
        return found

    def each(self) -> list[Group]:
        """All groups, for who measures them."""
        return list(self._groups.values())

    # Records.

    def _compact_if_due(self) -> None:
        """Called by who has committed: what goes wrong here is no answer to that, and is tried again later."""
        if self._positions.many(len(self._groups)):
            try:
                self.compact()
            except Exception:
                self._positions.put_off()
                logger.warning("positions could not be written together; trying again later", exc_info=True)

    def compact(self) -> None:
        """Write down where all groups stand, and let go of the records before."""
        with self._gate.alone():
            self._positions.compact([group.row() for group in self._groups.values()])


def _change(group: Group, after: dict[int, int], preview: bool, expelled: tuple[str, ...]) -> GroupChange:
    before = {streamlet: group.state.low(streamlet) for streamlet in after}
    again = sum(max(before[s] - offset, 0) for s, offset in after.items())
    skipped = sum(max(offset - before[s], 0) for s, offset in after.items())
    return GroupChange(group.stream, group.key[1], preview, before, dict(after), again, skipped, expelled)
