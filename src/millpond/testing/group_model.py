"""The model of a consumer group: of each record where it is, who was handed it last, and whether it is committed.

It says: a record is committed once; by whoever was handed it last; and, where order is kept, the records of a key are
committed in their order, without a gap. It knows nothing of ponds: who drives one tells it what was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millpond.consume.protocol import Commit, Delivery


@dataclass(frozen=True)
class Placed:
    """A record: which it is, and where."""

    n: int
    key: str
    streamlet: int
    offset: int


@dataclass
class GroupModel:
    """What must be true."""

    records: dict[int, Placed] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    unsafe: set[int] = field(default_factory=set)  # committed, but not yet synced
    handed: dict[tuple[int, int], list[Placed]] = field(default_factory=dict)  # by epoch and number
    holder: dict[int, int] = field(default_factory=dict)
    outputs: Counter[int] = field(default_factory=Counter)
    ordered: bool = False

    def delivered(self, epoch: int, delivery: Delivery, alive: Callable[[int], bool]) -> None:
        rows = [Placed(r["n"], r["key"], r["_streamlet"], r["_offset"]) for r in delivery.batch.to_pylist()]
        for row in rows:
            assert row.n not in self.committed, f"{row} is delivered after it was committed"
            other = self.holder.get(row.n, epoch)
            assert other == epoch or not alive(other), f"{row} is delivered while {other} has it"
            assert self.records[row.n] == row
            self.holder[row.n] = epoch
        self.handed[epoch, delivery.receipt.number] = rows

    def covered(self, epoch: int, commit: Commit) -> list[Placed]:
        """The records that a commit is about."""
        return [
            row
            for done in commit.done
            for row in self.handed.get((epoch, done.number), ())
            if (done.stop is None or row.offset < done.stop) and row.n not in self.committed
        ]

    def commits(self, epoch: int, rows: Sequence[Placed], outputs: Sequence[int]) -> None:
        for row in rows:
            assert self.holder[row.n] == epoch, f"{row} is committed by {epoch}, but {self.holder[row.n]} has it"
        self.took_effect(rows, outputs)

    def took_effect(self, rows: Sequence[Placed], outputs: Sequence[int]) -> None:
        for row in rows:
            assert row.n not in self.committed, f"{row} is committed twice"
            if self.ordered:
                before = [r.n for r in self.records.values() if r.key == row.key and r.offset < row.offset]
                assert self.committed.issuperset(before), f"{row} is committed before others of its key"
            self.committed.add(row.n)
            self.unsafe.add(row.n)
        self.outputs.update(outputs)

    def truncated(self) -> None:
        """The stream begins anew: what was in it is gone, processed or not, and whoever has some of it has nothing."""
        self.records, self.committed, self.handed, self.holder = {}, set(), {}, {}
        self.unsafe = set()

    def synced(self) -> None:
        """Something was synced: everything before it is safe."""
        self.unsafe.clear()
