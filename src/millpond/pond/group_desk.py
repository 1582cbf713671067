"""The desk's part of consumer groups: requests about them, answered by the pond's coordinator.

What a transaction appends was staged before, each output as a stage of its own. It is taken only when the commit is
known to be a new one: a commit that is asked again because its answer was lost finds its stages gone, and its first
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from millpond.archive.shape import conform
from millpond.consume.outputs import Buffered
from millpond.consume.protocol import Commit, Delivery, GroupSpec, GroupStatus, Join, Member, Outcome, Place, Wanted
from millpond.errors import StreamNotFound
from millpond.log.engine import Ack
from millpond.model.definition import check_durability
from millpond.model.schema import stored_schema
from millpond.pond.consumed import PondStreams
from millpond.query import parse_start
from millpond.wire import group_requests as ask
from millpond.wire.access import Caller, check
from millpond.wire.desk import Batches
from millpond.wire.request_base import Request, StreamRequest

if TYPE_CHECKING:
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream

Calls = dict[type[Request], Callable[[Caller, Any], Any]]


class GroupRequests:
    """Thread-safe. `stream_of` finds the stream of a request that was let in."""

    def __init__(self, pond: Pond, stream_of: Callable[[StreamRequest], Stream]) -> None:
        self._pond, self._stream_of = pond, stream_of

    def calls(self) -> Calls:
        """What answers each request."""
        pond = self._pond
        return {
            ask.JoinGroup: lambda caller, request: self._join(request),
            ask.CommitGroup: self._commit,
            ask.AbortGroup: lambda caller, request: pond.group_desk().abort(self._member(request), request.number),
            ask.RenewMember: lambda caller, request: pond.group_desk().renew(self._member(request)),
            ask.LeaveGroup: lambda caller, request: pond.group_desk().leave(self._member(request)),
            ask.SeekGroup: lambda caller, request: pond.group_desk().seek(self._member(request), _place(request.to)),
            ask.ListGroups: self._list,
            ask.DescribeGroup: lambda caller, request: pond.group_desk().group(request.stream, request.group),
            ask.ResetGroup: lambda caller, request: pond.group_desk().reset(
                request.stream, request.group, _place(request.to), preview=request.preview
            ),
            ask.DeleteGroup: lambda caller, request: pond.group_desk().delete(
                request.stream, request.group, preview=request.preview
            ),
            ask.Replay: lambda caller, request: pond.group_desk().replay(
                request.stream, group=request.group, limit=request.limit
            ),
            ask.CommitTransaction: self._append_all,
        }

    def _join(self, request: ask.JoinGroup) -> Member:
        spec = GroupSpec(
            request.stream,
            request.group,
            request.strategy,  # type: ignore[arg-type]  # the coordinator checks it
            request.by,
            _place(request.start),
            self._stream_of(request).definition.id,
        )
        durability = check_durability(request.durability)
        return self._pond.group_desk().join(
            Join(spec, request.instance, request.lease_seconds, durability, request.kills_max)
        )

    def _member(self, request: ask.MemberRequest) -> Member:
        stream_id = self._stream_of(request).definition.id
        return Member(request.stream, stream_id, request.group, request.instance, request.epoch)

    def _list(self, caller: Caller, request: ask.ListGroups) -> list[GroupStatus]:
        found = self._pond.group_desk().groups(request.of)
        return [each for each in found if caller.may("read", each.stream)]

    def poll(self, request: ask.PollGroup) -> Batches:
        """The next deliveries of a member: their batches, with the receipts beside the schema."""
        wanted = Wanted(request.max_records, request.max_bytes, request.wait_seconds, request.after)
        return receipted(
            self._pond.group_desk().poll(self._member(request), wanted), self._stream_of(request).definition.schema
        )

    # Transactions.

    def _commit(self, caller: Caller, request: ask.CommitGroup) -> Outcome:
        commit = Commit(request.number, request.done, request.dead)
        desk, member = self._pond.group_desk(), self._member(request)
        if not request.stages:
            return desk.commit(member, commit)
        outputs = self._staged(caller, request.stages)
        outcome = desk.commit(member, commit, outputs)
        self._pond.staging.forget(request.stages)
        return outcome

    def _append_all(self, caller: Caller, request: ask.CommitTransaction) -> Sequence[Ack]:
        for name in request.streams:
            check(caller, "write", name)
        streams = [self._pond.stream(name) for name in request.streams]
        outputs = self._staged(caller, request.stages)
        for stream in streams:
            # The producer is remembered with the first stream that was given something.
            known = self._pond.log.known(stream.definition.id, request.producer, request.sequence)
            if known is not None:
                return _again(streams, stream, known)
        acks = self._pond.group_desk().append_all(outputs, request.producer, request.sequence)
        if any(ack.ranges for ack in acks):  # else there is no other memory of it, for who asks again
            self._pond.staging.forget(request.stages)
        return acks

    def _staged(self, caller: Caller, stages: Sequence[str]) -> StagedOutputs:
        outputs = StagedOutputs(self._pond, stages)
        for stream in outputs.streams():
            check(caller, "write", stream.name)
        return outputs


class StagedOutputs(Buffered):
    """What was staged, taken when it is certain that it is wanted."""

    def __init__(self, pond: Pond, stages: Sequence[str]) -> None:
        super().__init__(PondStreams(pond))
        self._pond, self._stages = pond, stages

    def streams(self) -> list[Stream]:
        """Those that it is for."""
        ids = self._pond.staging.streams(self._stages)
        return [stream for stream in self._pond.served_streams() if stream.definition.id in ids]

    def make_ready(self) -> None:
        durability = {stream.definition.id: stream.definition.durability for stream in self.streams()}
        for append in self._pond.staging.take(self._stages):
            if append.stream_id not in durability:
                raise StreamNotFound("a stream that records were staged for was dropped", hint="write them elsewhere")
            self.add(append, durability[append.stream_id])


def receipted(deliveries: Sequence[Delivery], schema: pa.Schema) -> Batches:
    """Deliveries as batches of one schema, which the newest of them has; `schema`: the stream's, if there are none."""
    newest = deliveries[-1].batch.schema if deliveries else stored_schema(schema)
    receipts = msgspec.json.encode([delivery.receipt for delivery in deliveries])
    batches = [conform(delivery.batch, newest) for delivery in deliveries]
    return Batches(newest.with_metadata({ask.RECEIPTS: receipts}), iter(batches))


def _again(streams: Sequence[Stream], first: Stream, known: Ack) -> list[Ack]:
    """The answer to a transaction that happened before: of its first stream it is known which offsets it got."""
    return [
        Ack(known.ranges if stream is first else {}, stream.definition.durability, duplicate=True) for stream in streams
    ]


def _place(to: Place) -> Place:
    found = parse_start(to) if isinstance(to, str) else to
    return found  # type: ignore[return-value]  # from text, never a datetime
