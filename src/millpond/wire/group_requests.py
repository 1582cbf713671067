"""Requests about consumer groups: each is a method of `consume.protocol.GroupDesk`, and its answer that method's.

Whoever may read a stream may consume it, in whatever group: a group belongs to those who work in it. To move or delete
one from outside takes the right to administer. What a transaction appends takes the right to write to each stream.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.consume.protocol import Done, Failed
from millpond.wire.access import Right
from millpond.wire.request_base import Column, Count, Name, Place, Request, Stage, StreamRequest

# The key of a schema's metadata under which a poll sends its receipts, one for each batch, in their order.
RECEIPTS = b"millpond.receipts"
# How long a poll may wait at the node.
POLL_SECONDS_MAX = 10.0

NAME_LENGTH_MAX = 200
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Stages = Annotated[tuple[Stage, ...], msgspec.Meta(max_length=10_000)]


class GroupRequest(StreamRequest, frozen=True, kw_only=True):
    """About one group of a stream."""

    group: GroupName


class MemberRequest(GroupRequest, frozen=True, kw_only=True):
    """By a member of a group, as its join was answered."""

    right: ClassVar[Right | None] = "read"

    instance: GroupName
    epoch: Count


class JoinGroup(GroupRequest, frozen=True, kw_only=True, tag="join-group"):
    """-> `Member`. The first one to join makes the group, at `start`."""

    right: ClassVar[Right | None] = "read"

    instance: GroupName
    strategy: Annotated[str, msgspec.Meta(max_length=40)] = "fifo"
    by: Column | None = None
    start: Place = "earliest"
    lease_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    durability: Annotated[str, msgspec.Meta(max_length=40)] = "os"
    kills_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5


class PollGroup(MemberRequest, frozen=True, kw_only=True, tag="poll-group"):
    """What comes next for this member: batches, whose receipts stand in the schema's metadata. It waits for at most so
    long while there is nothing. `after`: the number of the last delivery that arrived."""

    max_records: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 65_536
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=64_000_000)] = 8_000_000
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=POLL_SECONDS_MAX)] = 0.0
    after: Count | None = None


class CommitGroup(MemberRequest, frozen=True, kw_only=True, tag="commit-group"):
    """-> `Outcome`. What was processed, under the member's next number; and, in the same step, what was staged for
    other streams."""

    number: Count
    done: Annotated[tuple[Done, ...], msgspec.Meta(max_length=100_000)] = ()
    dead: Annotated[tuple[Failed, ...], msgspec.Meta(max_length=10_000)] = ()
    stages: Stages = ()


class AbortGroup(MemberRequest, frozen=True, kw_only=True, tag="abort-group"):
    """-> `Outcome`. A number is given up, and what is not committed is handed out again."""

    number: Count


class RenewMember(MemberRequest, frozen=True, kw_only=True, tag="renew-member"):
    """-> null. The member is alive."""


class LeaveGroup(MemberRequest, frozen=True, kw_only=True, tag="leave-group"):
    """-> null. What is not committed is handed out again at once."""


class SeekGroup(MemberRequest, frozen=True, kw_only=True, tag="seek-group"):
    """-> `GroupChange`. The group goes on from a place; its other members are expelled."""

    to: Place


class ListGroups(Request, frozen=True, tag="list-groups"):
    """-> `list[GroupStatus]`: the groups of all streams that the caller may read, or of one."""

    of: Name | None = None


class DescribeGroup(GroupRequest, frozen=True, kw_only=True, tag="group"):
    """-> `GroupStatus`"""

    right: ClassVar[Right | None] = "read"


class ResetGroup(GroupRequest, frozen=True, kw_only=True, tag="reset-group"):
    """-> `GroupChange`: what happens, or, as a preview, what would."""

    right: ClassVar[Right | None] = "admin"

    to: Place
    preview: bool = True


class DeleteGroup(GroupRequest, frozen=True, kw_only=True, tag="delete-group"):
    """-> `GroupChange`"""

    right: ClassVar[Right | None] = "admin"

    preview: bool = False


class Replay(StreamRequest, frozen=True, kw_only=True, tag="replay"):
    """-> `Replayed`. Dead records are appended to their stream again, each once."""

    right: ClassVar[Right | None] = "admin"

    group: GroupName | None = None
    limit: Count | None = None


class CommitTransaction(Request, frozen=True, kw_only=True, tag="commit-transaction"):
    """-> `list[Ack]`. What was staged for any streams is appended, all or none, once per producer and sequence.
    `streams`: whose each stage is. Takes the right to write to each of them."""

    stages: Stages
    streams: Annotated[tuple[Name, ...], msgspec.Meta(max_length=10_000)]
    producer: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    sequence: Count


GroupCall = (
    JoinGroup
    | CommitGroup
    | AbortGroup
    | RenewMember
    | LeaveGroup
    | SeekGroup
    | ListGroups
    | DescribeGroup
    | ResetGroup
    | DeleteGroup
    | Replay
    | CommitTransaction
)
