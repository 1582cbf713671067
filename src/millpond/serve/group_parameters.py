"""What requests about consumer groups carry: the parameters of their routes, and the messages that bodies hold."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from millpond.consume.protocol import Done, Failed, Strategy
from millpond.log.engine import Ack
from millpond.serve.parameters import ROWS_DEFAULT, Preview
from millpond.wire import group_requests as ask
from millpond.wire.request_base import Column, Count, Name, Place, Units

_Epoch = Annotated[int, Meta(ge=0, le=2**63 - 1, description="As the join was answered.")]
_Number = Annotated[
    int,
    Meta(ge=1, le=2**63 - 1, description="Counted upwards by the member from 1, one count for commits and aborts."),
]
_Where = Annotated[
    Place,
    Meta(description="`earliest`, `latest`, a time of ingestion, an offset, or an offset for each streamlet."),
]
_Instance = Annotated[str, Meta(min_length=1, max_length=200)]


class ResetQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A reset only says what would happen, unless it is told otherwise."""

    preview: Preview = True


class ReplayQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead records."""

    group: (
        Annotated[str, Meta(min_length=1, max_length=200, description="Only those that this group gave up on.")] | None
    ) = None
    limit: Annotated[int, Meta(ge=0, le=2**53, description="At most so many records; all otherwise.")] | None = None


class PollQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The form of the answer."""

    format: (
        Annotated[Literal["json", "ndjson", "arrow"], Meta(description="The form of the answer, in place of `Accept`.")]
        | None
    ) = None


class LeaveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of those that had the name."""

    epoch: _Epoch


class JoinBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A member to be. Without a name it is given one."""

    instance: _Instance | None = None
    strategy: Strategy = "fifo"
    by: Column | None = None
    start: _Where = "earliest"
    lease: Units = "30s"
    durability: Literal["disk", "os", "memory"] = "os"
    kills_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 5


class EpochBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks."""

    epoch: _Epoch


class PollBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is wanted, and for how long to wait while there is nothing. `after`: the number of the last delivery
    that arrived, so that those whose answer was lost are given again."""

    epoch: _Epoch
    max_records: Annotated[int, Meta(ge=1, le=65_536)] = ROWS_DEFAULT
    max_bytes: Annotated[int, Meta(ge=1, le=64_000_000)] = 8_000_000
    wait_seconds: Annotated[float, Meta(ge=0, le=ask.POLL_SECONDS_MAX)] = 0.0
    after: Count | None = None


class CommitBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The deliveries that were processed, by the numbers of their receipts; `dead`: records among them that were given
    up on."""

    epoch: _Epoch
    number: _Number
    done: Annotated[tuple[Done, ...], Meta(max_length=100_000)] = ()
    dead: Annotated[tuple[Failed, ...], Meta(max_length=10_000)] = ()


class AbortBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The number that is given up."""

    epoch: _Epoch
    number: _Number


class SeekBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the group goes on."""

    epoch: _Epoch
    to: _Where


class ResetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the group goes on."""

    to: _Where


class MemberCommit(Struct, frozen=True, forbid_unknown_fields=True):
    """What a member of a group has processed, as its `commit` would say it."""

    stream: Name
    group: ask.GroupName
    instance: ask.GroupName
    epoch: _Epoch
    number: _Number
    done: Annotated[tuple[Done, ...], Meta(max_length=100_000)] = ()
    dead: Annotated[tuple[Failed, ...], Meta(max_length=10_000)] = ()


# Records stay as they were sent until it is known what their stream makes of them.
_Records = Annotated[
    msgspec.Raw,
    Meta(
        description="From column to value; see the types of a stream.",
        extra_json_schema={"type": "array", "items": {"type": "object"}},
    ),
]


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """Records for one stream."""

    stream: Name
    records: _Records


class TransactionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What is appended, to any number of streams, and what a member has processed: all of it or nothing."""

    outputs: Annotated[tuple[Output, ...], Meta(max_length=1_000)] = ()
    commit: MemberCommit | None = None


class Transacted(Struct, frozen=True):
    """`acks`: of the outputs, in their order; none if it had happened before (`duplicate`) for a member. `number`: of
    the member's commit."""

    acks: tuple[Ack, ...]
    duplicate: bool = False
    number: int | None = None
