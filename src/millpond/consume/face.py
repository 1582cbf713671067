"""What a pond offers for consuming, open here or connected to: consumers, groups, transactions."""

from __future__ import annotations

import abc
from uuid import uuid4

from millpond.consume.checks import plain_place
from millpond.consume.consumer import Consumer, Where
from millpond.consume.protocol import (
    GroupChange,
    GroupDesk,
    GroupSpec,
    GroupStatus,
    Join,
    Replayed,
    Strategy,
)
from millpond.consume.transaction import OutputTransaction
from millpond.model.definition import Durability, check_durability
from millpond.model.units import Duration, parse_seconds


class ConsumerGroup:
    """One consumer group, for who looks after it: `pond.group(stream, name)`. Thread-safe."""

    def __init__(self, desk: GroupDesk, stream: str, name: str) -> None:
        self._desk, self.stream, self.name = desk, stream, name

    def __repr__(self) -> str:
        return f"<millpond group {self.name!r} of {self.stream!r}>"

    def status(self) -> GroupStatus:
        """Its members, positions and lag."""
        return self._desk.group(self.stream, self.name)

    def lag(self) -> dict[int, int]:
        """Per streamlet how many records it has not processed."""
        return self.status().lag

    def reset(self, to: Where, *, preview: bool = True) -> GroupChange:
        """Move it to "earliest", "latest", an offset, {streamlet: offset} or a time of ingestion. As a preview, which
        it is unless told otherwise, this only says what would happen."""
        return self._desk.reset(self.stream, self.name, plain_place(to), preview=preview)

    def delete(self, *, preview: bool = False) -> GroupChange:
        """Forget it and its position. Consumers that go on make it anew, from their `start`."""
        return self._desk.delete(self.stream, self.name, preview=preview)

    def replay(self, *, limit: int | None = None) -> Replayed:
        """Append the records that it gave up on to the stream again, each once."""
        return self._desk.replay(self.stream, group=self.name, limit=limit)


class ConsumerFace(abc.ABC):
    """The part of a pond that is about consuming."""

    @abc.abstractmethod
    def group_desk(self) -> GroupDesk:
        """Where groups are kept."""

    def consumer(
        self,
        stream: str,
        *,
        group: str,
        strategy: Strategy = "fifo",
        by: str | None = None,
        start: Where = "earliest",
        lease: Duration = "30s",
        durability: Durability = "os",
        instance: str | None = None,
        kills_max: int = 5,
    ) -> Consumer:
        """Join a consumer group of a stream, made if it is not there, at `start` then.

        `strategy`: "fifo" (whoever asks first gets what comes next), "round_robin" (records dealt out evenly) or "hash"
        (of the column `by`, else of the primary key: records of one value in order, one consumer at a time). `lease`:
        for how long the consumer may be unheard of before others get what it has not committed. `durability`: how safe
        a commit is when it returns; "os" survives the death of the process, "disk" a power cut. `instance`: its name;
        whoever joins under the same one takes its place. `kills_max`: a record that so many consumers were lost with
        goes to the dead letters.
        """
        spec = GroupSpec(stream, group, strategy, by, plain_place(start))
        asked = Join(spec, instance or uuid4().hex[:12], parse_seconds(lease), check_durability(durability), kills_max)
        return Consumer(self.group_desk(), asked)

    def groups(self, stream: str | None = None) -> list[GroupStatus]:
        """All consumer groups, of the pond or of one stream, with their members, positions and lag."""
        return self.group_desk().groups(stream)

    def group(self, stream: str, name: str) -> ConsumerGroup:
        """A consumer group, to look at, move or delete; `GroupNotFound` if there is none."""
        desk = self.group_desk()
        desk.group(stream, name)
        return ConsumerGroup(desk, stream, name)

    def transaction(self) -> OutputTransaction:
        """Appends to any number of streams, together or not at all:

        with pond.transaction() as tx:
            tx.append("grid/bills", rows)
            tx.append("grid/alerts", more)
        """
        return OutputTransaction(self.group_desk())

    def replay(self, stream: str, *, group: str | None = None, limit: int | None = None) -> Replayed:
        """Append dead records of a stream to it again, each once: those that a `group` gave up on, or all."""
        return self.group_desk().replay(stream, group=group, limit=limit)
