"""How far groups have come, as records of the stream `_pond/positions` and as the state they add up to.

Each record says of one group what changed; `kind` is

    group     its whole state (`GroupState`): made, moved, or written again so that older records may go
    commit    what was processed (`Change`): ranges of offsets under `fifo`; a mark for some slots otherwise
    delete    it is no more
    epochs    no member was or is given an epoch from this number on

Folding them in order gives the state of now. Folding a commit twice, or two commits the other way round, gives the
same, so that commits of one group need not wait for each other; all other kinds are written while no commit is under
way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.consume.protocol import Strategy
from millpond.consume.ranges import DoneRanges
from millpond.errors import Damaged
from millpond.log.engine import Part
from millpond.model.definition import StreamDefinition
from millpond.model.rows import codec_of
from millpond.model.schema import TIMESTAMP

POSITIONS = StreamDefinition(
    id=3,
    name="_pond/positions",
    schemas=(
        pa.schema(
            [
                ("time", TIMESTAMP),
                ("kind", pa.string()),
                ("group", pa.string()),
                ("stream", pa.int64()),
                ("body", pa.binary()),
            ]
        ),
    ),
    settle=None,
)
# Records are dealt to so many slots under `round_robin` and `hash`, and slots to members: more members than that have
# nothing to do. Positions outlive a version, so it never changes.
SLOTS = 64

Marks = npt.NDArray[np.int64]
Key = tuple[int, str]  # stream id, group
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CODEC = codec_of(POSITIONS.schema)


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What a commit did. `ranges`: streamlet, start, stop. `marks`: streamlet, slots as bits, stop: these slots are
    done up to there."""

    generation: int
    ranges: tuple[tuple[int, int, int], ...] = ()
    marks: tuple[tuple[int, int, int], ...] = ()
    missed: int = 0
    dead: int = 0


class StoredGroup(msgspec.Struct, frozen=True):
    """A group's state as it is written down. `done`: per streamlet the low mark and the ranges above it; `marks`: per
    streamlet the mark of each slot; `began`: see `GroupState`, None if a version wrote it that did not know."""

    strategy: Strategy
    by: str | None
    generation: int
    done: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
    marks: dict[int, tuple[int, ...]] = {}
    missed: int = 0
    dead: int = 0
    committed_micros: int | None = None
    began: dict[int, int] | None = None


@dataclass
class GroupState:
    """How far one group has come. A streamlet that is in neither mapping is at offset 0. `began`: per streamlet the
    offset from which on it was given everything up to its low mark; 0 if it is not named."""

    strategy: Strategy
    by: str | None
    generation: int
    done: dict[int, DoneRanges] = field(default_factory=dict)
    marks: dict[int, Marks] = field(default_factory=dict)
    missed: int = 0
    dead: int = 0
    committed_micros: int | None = None
    began: dict[int, int] = field(default_factory=dict)

    def apply(self, change: Change, now_micros: int) -> None:
        """One commit's effect; none if it is about an earlier generation."""
        if change.generation != self.generation:
            return
        for streamlet, start, stop in change.ranges:
            self.done_of(streamlet).add(start, stop)
        for streamlet, slots, stop in change.marks:
            marks = self.marks_of(streamlet)
            np.maximum(marks, stop, out=marks, where=as_mask(slots))
        self.missed += change.missed
        self.dead += change.dead
        self.committed_micros = now_micros

    def done_of(self, streamlet: int) -> DoneRanges:
        return self.done.setdefault(streamlet, DoneRanges())

    def marks_of(self, streamlet: int) -> Marks:
        return self.marks.setdefault(streamlet, np.zeros(SLOTS, np.int64))

    def low(self, streamlet: int) -> int:
        """Everything under this offset is done."""
        if self.strategy == "fifo":
            return self.done[streamlet].low if streamlet in self.done else 0
        return int(self.marks[streamlet].min()) if streamlet in self.marks else 0

    def lows(self) -> dict[int, int]:
        """As `low`, of every streamlet that is known here."""
        return {streamlet: self.low(streamlet) for streamlet in (*self.done, *self.marks)}

    def lag(self, streamlet: int, head: int) -> int:
        """How many records under `head` are not done. Slots have a 64th of what lies behind their mark, about: exact
        once they are even."""
        if self.strategy == "fifo":
            done = self.done.get(streamlet)
            return head if done is None else max(head - done.low - done.count_above, 0)
        marks = self.marks_of(streamlet)
        return max(int((head - marks).clip(min=0).sum()) // len(marks), int(head > marks.min()))

    def moved(self, positions: dict[int, int], generation: int) -> GroupState:
        """The same group at other positions."""
        found = GroupState(self.strategy, self.by, generation, missed=self.missed, dead=self.dead)
        found.committed_micros = self.committed_micros
        for streamlet, offset in positions.items():
            if self.strategy == "fifo":
                found.done[streamlet] = DoneRanges(offset)
            else:
                found.marks[streamlet] = np.full(SLOTS, offset, np.int64)
            # Back to what it was given once, it goes on from there; what it passes over it was never given.
            began = self.began.get(streamlet, 0)
            again = generation == self.generation and began <= offset <= self.low(streamlet)
            found.began[streamlet] = began if again else offset
        return found

    def stored(self) -> StoredGroup:
        return StoredGroup(
            self.strategy,
            self.by,
            self.generation,
            {streamlet: (done.low, tuple(done.above)) for streamlet, done in self.done.items()},
            {streamlet: tuple(marks.tolist()) for streamlet, marks in self.marks.items()},
            self.missed,
            self.dead,
            self.committed_micros,
            dict(self.began),
        )

    @classmethod
    def of(cls, stored: StoredGroup) -> GroupState:
        found = cls(
            stored.strategy,
            stored.by,
            stored.generation,
            {streamlet: DoneRanges(low, above) for streamlet, (low, above) in stored.done.items()},
            {streamlet: np.array(marks, np.int64) for streamlet, marks in stored.marks.items()},
            stored.missed,
            stored.dead,
            stored.committed_micros,
        )
        lows = {streamlet: found.low(streamlet) for streamlet in (*found.done, *found.marks)}
        found.began = lows if stored.began is None else dict(stored.began)
        return found


@lru_cache(maxsize=1_024)
def as_mask(slots: int) -> npt.NDArray[np.bool_]:
    """Slots given as bits, as one boolean each. Not to be changed."""
    return np.unpackbits(np.array([slots], "<u8").view(np.uint8), bitorder="little").view(np.bool_)


def as_bits(mask: npt.NDArray[np.bool_]) -> int:
    """The other way round."""
    return int(np.packbits(mask, bitorder="little").view("<u8")[0])


def position_parts(rows: Iterable[tuple[str, Key, bytes]], now_micros: int) -> list[Part]:
    """Rows of kind, group and body, as one append. Every commit comes by here, so rows are encoded as they are: what
    they hold is our own."""
    plain = [(now_micros, kind, group, stream_id, body) for kind, (stream_id, group), body in rows]
    return [Part(0, len(plain), encoded=_CODEC.encode(plain))]


def commit_row(key: Key, change: Change) -> tuple[str, Key, bytes]:
    return "commit", key, msgspec.msgpack.encode(change)


def group_row(key: Key, state: GroupState) -> tuple[str, Key, bytes]:
    return "group", key, msgspec.msgpack.encode(state.stored())


def delete_row(key: Key) -> tuple[str, Key, bytes]:
    return "delete", key, b""


def epochs_row(below: int) -> tuple[str, Key, bytes]:
    return "epochs", (0, ""), msgspec.msgpack.encode(below)


@dataclass
class Fold:
    """What the records add up to."""

    groups: dict[Key, GroupState] = field(default_factory=dict)
    epochs: int = 1  # the first that nobody was given

    @classmethod
    def replay(cls, batches: Iterable[pa.RecordBatch]) -> Fold:
        """The state after all records. What is about a group that is not there any more is left out."""
        fold = cls()
        for batch in batches:
            for row in batch.select(["time", "kind", "group", "stream", "body"]).to_pylist():
                micros = (row["time"] - _EPOCH) // timedelta(microseconds=1)
                fold.apply(row["kind"], (row["stream"], row["group"]), row["body"], micros)
        return fold

    def apply(self, kind: str, key: Key, body: bytes, micros: int) -> None:
        """One record's effect."""
        match kind:
            case "commit":
                state = self.groups.get(key)
                if state is not None:
                    state.apply(msgspec.msgpack.decode(body, type=Change), micros)
            case "group":
                self.groups[key] = GroupState.of(msgspec.msgpack.decode(body, type=StoredGroup))
            case "delete":
                self.groups.pop(key, None)
            case "epochs":
                self.epochs = max(self.epochs, msgspec.msgpack.decode(body, type=int))
            case _:
                raise Damaged(f"positions hold an unknown record {kind!r}", hint="open it with a newer Millpond")
