"""Consumer groups of a served pond: the twin of the pond's own coordinator, each method a request to its node.

Everything may be asked again when there was no answer, because the node can tell: a poll says what arrived of the one
before, a commit and an abort have numbers, a join under a name takes the place of the one before. So a consumer
outlives a node that is away for a while.

A commit of which one attempt was not answered may have happened. From then on it is over only when the node says what
became of its number: that it is committed, or never will be (`Fenced`, `TransactionOver`). Any other refusal (the node
is busy, the right is gone) is of the attempt, not of the commit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from millpond.consume.protocol import (
    Commit,
    Delivery,
    GroupChange,
    GroupStatus,
    Join,
    Member,
    Outcome,
    Outputs,
    Place,
    Receipt,
    Replayed,
    Wanted,
)
from millpond.errors import Backpressure, Fenced, InvalidInput, InvalidValue, TransactionOver, Unavailable
from millpond.log.engine import Ack
from millpond.wire import group_requests as ask

if TYPE_CHECKING:
    from millpond.client.connection import Connection
    from millpond.client.stream import RemoteStream

# How long a node that is away is asked again.
AGAIN_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_RECEIPTS = msgspec.json.Decoder(list[Receipt])


class RemoteGroupDesk:
    """A `GroupDesk`. Thread-safe."""

    def __init__(self, connection: Connection, stream: Callable[[str], RemoteStream]) -> None:
        """`stream` finds the stream of a name."""
        self._connection, self._stream = connection, stream
        self._lock = threading.Lock()
        self._arrived: dict[int, int] = {}  # the number of the last delivery that came, by epoch

    # Members.

    def join(self, asked: Join) -> Member:
        """See `GroupDesk`."""
        spec = asked.spec
        request = ask.JoinGroup(
            stream=spec.stream,
            id=spec.stream_id or None,
            group=spec.group,
            instance=asked.instance,
            strategy=spec.strategy,
            by=spec.by,
            start=spec.start,
            lease_seconds=asked.lease_seconds,
            durability=asked.durability,
            kills_max=asked.kills_max,
        )
        member: Member = self._ask(request, Member)
        with self._lock:
            self._arrived[member.epoch] = 0
        return member

    def poll(self, member: Member, wanted: Wanted) -> Sequence[Delivery]:
        """See `GroupDesk`."""
        until = time.monotonic() + wanted.wait_seconds
        while True:
            left = max(0.0, until - time.monotonic())
            waiting = min(left, ask.POLL_SECONDS_MAX)
            attempt = partial(self._poll, member, wanted, waiting)
            found: list[Delivery] = self._of(member, partial(self._again, attempt))
            if found or left <= ask.POLL_SECONDS_MAX:
                return found

    def _poll(self, member: Member, wanted: Wanted, wait_seconds: float) -> list[Delivery]:
        with self._lock:
            arrived = self._arrived.get(member.epoch, 0)
        request = ask.PollGroup(
            **_who(member),
            max_records=min(wanted.max_records, 65_536),
            max_bytes=min(wanted.max_bytes, 64_000_000),
            wait_seconds=wait_seconds,
            after=arrived if wanted.after is None else wanted.after,
        )
        schema, batches = self._connection.link.fetch(request)
        receipts = _RECEIPTS.decode(schema.metadata[ask.RECEIPTS])
        plain = schema.remove_metadata()
        found = [
            Delivery(receipt, batch.replace_schema_metadata(plain.metadata))
            for receipt, batch in zip(receipts, batches, strict=True)
        ]
        if found:
            with self._lock:
                self._arrived[member.epoch] = found[-1].receipt.number
        return found

    def commit(self, member: Member, commit: Commit, outputs: Outputs | None = None) -> Outcome:
        """See `GroupDesk`."""
        request = ask.CommitGroup(
            **_who(member),
            number=commit.number,
            done=commit.done,
            dead=commit.dead,
            stages=tuple(_staged(outputs).stages) if outputs is not None else (),
        )
        outcome: Outcome = self._of(member, lambda: self._settle(request, Outcome))
        return outcome

    def abort(self, member: Member, number: int) -> Outcome:
        """See `GroupDesk`."""
        request = ask.AbortGroup(**_who(member), number=number)
        outcome: Outcome = self._of(member, lambda: self._ask(request, Outcome))
        return outcome

    def renew(self, member: Member) -> None:
        """See `GroupDesk`."""
        self._of(member, lambda: self._connection.ask(ask.RenewMember(**_who(member)), None))

    def leave(self, member: Member) -> None:
        """See `GroupDesk`. A node that is away finds out by the lease."""
        self._forget(member)
        with contextlib.suppress(Unavailable):
            self._connection.ask(ask.LeaveGroup(**_who(member)), None)

    def seek(self, member: Member, to: Place) -> GroupChange:
        """See `GroupDesk`."""
        request = ask.SeekGroup(**_who(member), to=to)
        change: GroupChange = self._of(member, lambda: self._ask(request, GroupChange))
        return change

    def _of(self, member: Member, question: Callable[[], Any]) -> Any:
        """Ask for a member. One that is none any more never will be again."""
        try:
            return question()
        except Fenced:
            self._forget(member)
            raise

    def _forget(self, member: Member) -> None:
        with self._lock:
            self._arrived.pop(member.epoch, None)

    # Transactions.

    def outputs(self) -> StagedAtNode:
        """See `GroupDesk`."""
        return StagedAtNode(self._stream)

    def append_all(self, outputs: Outputs, producer: str, sequence: int) -> tuple[Ack, ...]:
        """See `GroupDesk`."""
        staged = _staged(outputs)
        if not staged.stages:
            return ()
        request = ask.CommitTransaction(
            stages=tuple(staged.stages), streams=tuple(staged.streams), producer=producer, sequence=sequence
        )
        return tuple(self._settle(request, list[Ack]))

    # Looking after groups.

    def groups(self, stream: str | None = None) -> list[GroupStatus]:
        """See `GroupDesk`."""
        found: list[GroupStatus] = self._connection.ask(ask.ListGroups(of=stream), list[GroupStatus])
        return found

    def group(self, stream: str, group: str) -> GroupStatus:
        """See `GroupDesk`."""
        found: GroupStatus = self._connection.ask(ask.DescribeGroup(stream=stream, group=group), GroupStatus)
        return found

    def reset(self, stream: str, group: str, to: Place, *, preview: bool = True) -> GroupChange:
        """See `GroupDesk`."""
        request = ask.ResetGroup(stream=stream, group=group, to=to, preview=preview)
        change: GroupChange = self._connection.ask(request, GroupChange)
        return change

    def delete(self, stream: str, group: str, *, preview: bool = False) -> GroupChange:
        """See `GroupDesk`."""
        request = ask.DeleteGroup(stream=stream, group=group, preview=preview)
        change: GroupChange = self._connection.ask(request, GroupChange)
        return change

    def replay(self, stream: str, *, group: str | None = None, limit: int | None = None) -> Replayed:
        """See `GroupDesk`."""
        done: Replayed = self._connection.ask(ask.Replay(stream=stream, group=group, limit=limit), Replayed)
        return done

    # Asking again.

    def _ask(self, request: Any, kind: Any) -> Any:
        return self._again(lambda: self._connection.ask(request, kind))

    def _again(self, question: Callable[[], Any]) -> Any:
        until = time.monotonic() + AGAIN_SECONDS
        while True:
            try:
                return question()
            except Unavailable:
                if self._connection.closed or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _settle(self, request: Any, kind: Any) -> Any:
        """Ask for what has a number. `Unavailable`: it may have happened."""
        until = time.monotonic() + AGAIN_SECONDS
        doubted = False
        while True:
            try:
                return self._connection.ask(request, kind, once=True)
            except Unavailable:
                if self._connection.closed or time.monotonic() > until:
                    raise
                doubted = True
            except (Fenced, TransactionOver):
                raise
            except (InvalidInput, Backpressure) as error:
                if not doubted:
                    raise
                if not isinstance(error, Backpressure) or time.monotonic() > until:
                    raise Unavailable(
                        f"it is not known what became of a commit: {error.message}",
                        hint="a consumer asks again before anything new; its abort() gives up what did not happen",
                    ) from error
            time.sleep(_PAUSE_SECONDS)


class StagedAtNode:
    """See `Outputs`: each append is a stage at the node, which nobody sees before the commit."""

    def __init__(self, stream: Callable[[str], RemoteStream]) -> None:
        self._stream = stream
        self.stages: list[str] = []
        self.streams: list[str] = []

    def append(self, stream: str, rows: Any) -> int:
        name = uuid4().hex
        count = self._stream(stream).stage(rows, name)
        if count:
            self.stages.append(name)
            self.streams.append(stream)
        return count

    def discard(self) -> None:
        """What is not committed goes by itself, when nobody has asked for it for a while."""
        self.stages.clear()
        self.streams.clear()


def _staged(outputs: Outputs) -> StagedAtNode:
    if not isinstance(outputs, StagedAtNode):
        raise InvalidValue(
            f"outputs of {type(outputs).__name__}", hint="commit a transaction where it was begun: desk.outputs()"
        )
    return outputs


def _who(member: Member) -> dict[str, Any]:
    return {
        "stream": member.stream,
        "id": member.stream_id,
        "group": member.group,
        "instance": member.instance,
        "epoch": member.epoch,
    }
