"""What a consumer and the keeper of its group agree on: plain values, and the desk that answers.

A `Consumer` talks to a `GroupDesk` and to nothing else. Embedded, the desk is the pond's coordinator; connected, it is
a twin that sends the same values to one. All values here but `Delivery` are plain dataclasses that msgspec encodes.

The life of a member:

1. `join` makes it a member and says its *epoch*: a number that no other member of this pond ever had. Whoever is not
   heard of for its lease is expelled, and so are all members when the group is reset; what an expelled member asks
   is refused with `Fenced`. It joins again to go on, with a new epoch. After a restart of the pond all members are
   unknown, which is the same thing.
2. `poll` hands out records, each `Delivery` with a *receipt*. What is handed out is the member's until it is committed,
   given back (`abort`, `leave`) or taken away (expelled). `poll`, `commit`, `abort` and `renew` renew the lease.
3. `commit` and `abort` carry a *number* that the member counts upwards from 1, one count for both. A number has one
   outcome: a commit that is sent again because its answer was lost is answered as the first time (`duplicate`), also
   after a restart of the pond; a commit whose number was aborted meanwhile is refused with `TransactionOver`, and an
   abort whose number was committed before changes nothing and says so (`Outcome.committed`).
4. `leave` gives back what is not committed, at once.

Deliveries are committed in the order in which they were handed out: by their receipts' numbers, without a gap, the last
one possibly in part. Under `fifo` any of them may be left out and committed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args

import pyarrow as pa

from millpond.log.engine import Ack
from millpond.model.definition import Durability

Strategy = Literal["fifo", "round_robin", "hash"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

# A place in a stream, in plain values: "earliest", "latest", an ISO time, an offset, or offsets per streamlet.
Place = str | int | dict[int, int]


# What is asked.


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group, as its members describe it. The first one makes it; later ones must agree on strategy and column.

    `start` is where a new group begins; it means nothing to one that is there. `stream_id`: the very stream that is
    meant, 0 for whichever has the name."""

    stream: str
    group: str
    strategy: Strategy = "fifo"
    by: str | None = None
    start: Place = "earliest"
    stream_id: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """`instance`: which instance of the program this is; joining again under a name expels the one that has it.
    `durability`: how safe this member's commits are before they are answered; outputs of a transaction may ask for
    more. `kills_max`: a record that so many members were lost with, the last few times alone, goes to the dead
    letters."""

    spec: GroupSpec
    instance: str
    lease_seconds: float = 30.0
    durability: Durability = "os"
    kills_max: int = 5


@dataclass(frozen=True, slots=True)
class Member:
    """Who asks: the answer to a join, shown with everything that a member asks from then on."""

    stream: str
    stream_id: int
    group: str
    instance: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much a poll may give in all, how large its batches may be, and how long it may wait while there is nothing.

    A poll answers as soon as there is something, with what is there. `after`: the number of the last delivery that the
    member has got, so that deliveries whose answer was lost on the way are given again; None: it has got all."""

    max_records: int = 65_536
    max_bytes: int = 8_000_000
    wait_seconds: float = 0.0
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A delivery that was processed: by its receipt's number, up to (without) the offset `stop`; None: all of it."""

    number: int
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A record of a delivery that its consumer gives up on: it goes to the stream's dead letters, with the reason, in
    the same commit as the position behind it."""

    number: int
    offset: int
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What was processed, under the member's next number. `dead`: records among it that were given up on."""

    number: int
    done: tuple[Done, ...] = ()
    dead: tuple[Failed, ...] = ()


# What is answered.


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a delivery is: records of one streamlet, of [start, stop), as far as they are this member's (under
    `round_robin` and `hash` there are others between them). Numbers go upwards per member, from 1.

    `tries`: how many members were expelled while they had these records; a record that kills its consumer is found that
    way. `missed`: records before these that the group will never see, because they expired or were truncated."""

    number: int
    streamlet: int
    start: int
    stop: int
    generation: int = 1
    tries: int = 0
    missed: int = 0


class Delivery(NamedTuple):
    """A batch with system columns, and its receipt. On a wire they travel side by side."""

    receipt: Receipt
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a commit or an abort came to. `committed`: whether the number's commit stands; `duplicate`: it did before.
    `acks`: of a transaction's outputs, in their order."""

    number: int
    committed: bool
    duplicate: bool = False
    acks: tuple[Ack, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member: `records` are handed out to it and not committed, `slots` are its share under `round_robin` and `hash`
    (of 64)."""

    instance: str
    epoch: int
    lease_seconds: float
    idle_seconds: float
    deliveries: int
    records: int
    slots: int = 0


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Where a group stands. Per streamlet: `positions` is where everything before it is processed, `lag` how many
    offsets are not, `done_above` how many beyond the position are. `missed` and `dead` count records since the group
    was made: those it never saw because they were gone, and those that it gave up on."""

    stream: str
    stream_id: int
    group: str
    strategy: Strategy
    by: str | None
    generation: int
    positions: dict[int, int]
    heads: dict[int, int]
    lag: dict[int, int]
    done_above: dict[int, int] = field(default_factory=dict)
    members: tuple[MemberStatus, ...] = ()
    missed: int = 0
    dead: int = 0
    committed_micros: int | None = None

    @property
    def lag_total(self) -> int:
        """How many records the group has not processed."""
        return sum(self.lag.values())


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What a reset or a delete does, or would do (`preview`): the positions before and after, how many records will be
    processed again or never, and who is expelled."""

    stream: str
    group: str
    preview: bool
    before: dict[int, int]
    after: dict[int, int]
    again: int
    skipped: int
    expelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """Dead records that were sent back to their stream, and how many are still waiting."""

    stream: str
    records: int
    waiting: int


class Outputs(Protocol):
    """What a transaction is going to append, held until it commits. Made by the desk that commits it. One thread."""

    def append(self, stream: str, rows: Any) -> int:
        """Check the rows (any form that `Stream.append` takes) and keep them; how many. What does not fit is refused
        here, before anything is written, and leaves what was kept before as it is."""
        ...

    def discard(self) -> None:
        """Forget all of it. Also after a commit, and more than once."""
        ...


class GroupDesk(Protocol):
    """Thread-safe. `poll` blocks up to `wait_seconds`, commits until they are as durable as asked; the rest is quick.

    Whatever names a member raises `Fenced` when it is none any more, and whatever names a stream `StreamNotFound`."""

    def join(self, asked: Join) -> Member:
        """Become a member. `GroupConflict` if the group works by another strategy or column."""
        ...

    def poll(self, member: Member, wanted: Wanted) -> Sequence[Delivery]:
        """What comes next for this member, in order; empty if nothing came in time."""
        ...

    def commit(self, member: Member, commit: Commit, outputs: Outputs | None = None) -> Outcome:
        """Move the group's position past what is done and, with `outputs`, append them in the same atomic group: all of
        it or nothing. Readers see the outputs all at once."""
        ...

    def abort(self, member: Member, number: int) -> Outcome:
        """Give this number up, and give back everything that was handed out to the member and is not committed: it is
        handed out again. If the number had been committed, only what came after it is given back."""
        ...

    def renew(self, member: Member) -> None:
        """Say that the member is alive."""
        ...

    def leave(self, member: Member) -> None:
        """Give back what is not committed and be a member no more. Nothing if it is none; never raises `Fenced`."""
        ...

    def seek(self, member: Member, to: Place) -> GroupChange:
        """Move the group to a place, durably, and hand out from there. All other members are expelled; this one goes
        on, with nothing handed out to it."""
        ...

    def outputs(self) -> Outputs:
        """Where a transaction collects what it will append."""
        ...

    def append_all(self, outputs: Outputs, producer: str, sequence: int) -> tuple[Ack, ...]:
        """Append outputs without a consumer, all or none, once per producer and sequence."""
        ...

    # For those who look after groups.

    def groups(self, stream: str | None = None) -> list[GroupStatus]:
        """All groups, of one stream or of the pond, by stream and name."""
        ...

    def group(self, stream: str, group: str) -> GroupStatus:
        """`GroupNotFound` if there is none."""
        ...

    def reset(self, stream: str, group: str, to: Place, *, preview: bool = True) -> GroupChange:
        """Move a group to a place; every member is expelled and goes on from there."""
        ...

    def delete(self, stream: str, group: str, *, preview: bool = False) -> GroupChange:
        """Forget a group. Its members are expelled; one that joins again makes it anew."""
        ...

    def replay(self, stream: str, *, group: str | None = None, limit: int | None = None) -> Replayed:
        """Append dead records of a stream to it again, as new records for all of its groups, each once: those that a
        `group` gave up on, or all. In the order in which they were given up."""
        ...


# The pins of a stream: under these offsets nothing is wanted by any group any more. Missing: no group pins it.
Pins = Mapping[int, int]
