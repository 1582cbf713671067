"""Consumer groups against a model: hypothesis draws who joins, polls, commits, pauses and dies, and shrinks what fails.

One stream, one group of it, three instances that copy records to another stream, in transactions or without output. The
instances outlive the pond, as programs do that are connected to a node: after a kill they go on with what they hold,
and answers get lost on the way. Time stands still but for pauses, so a pause beyond the lease is exactly that.

Besides what `group_model` says: what is committed is done after any crash (but for commits that were not synced before
a power cut, which are delivered again), and a transaction's outputs are there if and only if it committed. Under `hash`
order is kept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import millpond
from millpond.consume.consumer import Consumer
from millpond.consume.coordinator import Coordinator
from millpond.consume.positions import SLOTS
from millpond.consume.protocol import Commit, Delivery, GroupSpec, Join, Member, Outcome, Outputs, Strategy, Wanted
from millpond.errors import Fenced, MillpondError, Unavailable
from millpond.model.hashing import hash_value
from millpond.storage import LocalStorage
from millpond.testing.faulty_storage import Crash, FaultyStorage
from millpond.testing.group_model import GroupModel, Placed
from millpond.testing.manual_clock import ManualClock
from millpond.testing.power_cut import VARIANTS, Variant

SOURCE, SINK, GROUP = "grid/in", "grid/out", "copy"
NAMES = ("a", "b", "c")
LEASE_SECONDS = 30.0
SETTINGS: dict[str, Any] = {
    "journal_file_bytes": 64_000,
    "segment_bytes": 64_000,
    "flush_seconds": 3_600.0,
    "disk_reserve_bytes": 0,
}
_SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


class LossyDesk:
    """Between consumers and whichever coordinator there is: it watches for the model, and loses what it is told to."""

    def __init__(self, machine: ConsumeMachine) -> None:
        self._machine = machine
        self.lose: str = ""  # "", "request" or "answer", of the next commit or abort

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine.coordinator, name)

    def poll(self, member: Member, wanted: Wanted) -> Sequence[Delivery]:
        found = self._machine.coordinator.poll(member, wanted)
        for delivery in found:
            self._machine.model.delivered(member.epoch, delivery, self._machine.alive)
        return found

    def commit(self, member: Member, commit: Commit, outputs: Outputs | None = None) -> Outcome:
        lose, self.lose = self.lose, ""
        if lose == "request":
            raise Unavailable("the request was lost")
        machine = self._machine
        rows = machine.model.covered(member.epoch, commit)
        out = [] if outputs is None else machine.staged[id(outputs)]
        machine.doubt = (member.epoch, rows, out)
        outcome = machine.coordinator.commit(member, commit, outputs)
        if not outcome.duplicate:
            unknown = [done for done in commit.done if (member.epoch, done.number) not in machine.model.handed]
            assert not unknown, f"{unknown} of an earlier generation is committed"
            machine.model.commits(member.epoch, rows, out)
            if outputs is not None and out:
                machine.model.synced()
        machine.doubt = None
        if lose == "answer":
            raise Unavailable("the answer was lost")
        return outcome

    def abort(self, member: Member, number: int) -> Outcome:
        lose, self.lose = self.lose, ""
        if lose == "request":
            raise Unavailable("the request was lost")
        return self._machine.coordinator.abort(member, number)


class ConsumeMachine(RuleBasedStateMachine):
    """One pond in a temporary directory under `scratch` (None: the system's)."""

    scratch: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="millpond-consume-", dir=self.scratch))
        root = self._directory / "root"
        root.mkdir()
        self.storage = FaultyStorage(LocalStorage(), root=root)
        self.clock = ManualClock()
        self.model = GroupModel()
        self.desk = LossyDesk(self)
        self.consumers: dict[str, Consumer] = {}
        self.uncommitted: dict[str, list[int]] = {}  # what an instance has iterated since its last commit
        self.staged: dict[int, list[int]] = {}
        self._kept_alive: list[Outputs] = []  # so that no two of them ever have one id
        self.doubt: tuple[int, list[Placed], list[int]] | None = None
        self._next = 0
        self.pond: Any = None

    @property
    def coordinator(self) -> Coordinator:
        found: Coordinator = self.pond.coordinator
        return found

    def alive(self, epoch: int) -> bool:
        """Whether it is a member now. As it will be found to be: whoever is asked expels first."""
        return any(m.epoch == epoch for m in self.coordinator.group(SOURCE, GROUP).members)

    @initialize(strategy=st.sampled_from(("fifo", "round_robin", "hash")), streamlets=st.sampled_from((1, 2)))
    def first_open(self, strategy: Strategy, streamlets: int) -> None:
        self._strategy: Strategy = strategy
        self.model.ordered = strategy == "hash"
        self._open()
        self.pond.create_stream(SOURCE, _SCHEMA, keys=["key"], streamlets=streamlets)
        self.pond.create_stream(SINK, pa.schema([("n", pa.int64())]))
        self._join(NAMES[0])
        self.append(5)

    def _open(self) -> None:
        path = self._directory / "root" / "pond"
        self.pond = millpond.open(path, storage=self.storage, clock=self.clock, background=False, **SETTINGS)

    def teardown(self) -> None:
        try:
            if self.pond is not None and self.storage.crashed is None and self.consumers:
                self._drain()
        finally:
            self._abandon()
            if self.storage.disk is not None:
                self.storage.disk.close()
            shutil.rmtree(self._directory)

    def _drain(self) -> None:
        """Everybody is gone for good; somebody new processes what is left, and that is everything that is left."""
        self.clock.advance(f"{LEASE_SECONDS * 2}s")
        last = self._consumer("last")
        for _ in last.poll(timeout="0s"):
            last.commit()
        assert self.model.committed == set(self.model.records)
        assert sum(last.lag().values()) == 0
        self.outputs_are_those_of_commits()

    def _consumer(self, name: str) -> Consumer:
        spec = GroupSpec(SOURCE, GROUP, self._strategy, "key" if self._strategy == "hash" else None)
        return Consumer(self.desk, Join(spec, name, LEASE_SECONDS, kills_max=1_000), heartbeat=False)

    def _join(self, name: str) -> None:
        self.consumers[name] = self._consumer(name)
        self.uncommitted[name] = []

    # What instances do. One that is not there joins first.

    @rule(count=st.sampled_from((1, 3, 10, 40)))
    def append(self, count: int) -> None:
        rows = [{"key": f"k{(self._next + i) % 5}", "n": self._next + i} for i in range(count)]
        self._next += count
        ack = self.pond.stream(SOURCE).append(rows)
        self.model.synced()
        for streamlet, offsets in ack.ranges.items():
            for batch in self.pond.log.read(self.pond.stream(SOURCE).definition.id, streamlet, offsets):
                for row in batch.to_pylist():
                    self.model.records[row["n"]] = Placed(row["n"], row["key"], streamlet, row["_offset"])

    @rule(name=st.sampled_from(NAMES), records=st.sampled_from((1, 2, 7, 100)), one_by_one=st.booleans())
    def poll(self, name: str, records: int, one_by_one: bool) -> None:
        consumer = self._there(name)
        with self._told_if_fenced(name):
            if one_by_one:
                found = [record["n"] for record in consumer.records(max_records=records, timeout="0s")]
            else:
                found = []
                for batch in consumer.poll(max_records=records, timeout="0s"):
                    found += batch.column("n").to_pylist()
            assert len(found) <= records
            self.uncommitted[name] += found

    @rule(name=st.sampled_from(NAMES), lose=st.sampled_from(("", "", "request", "answer")), wait=st.booleans())
    def commit(self, name: str, lose: str, wait: bool = True) -> None:
        consumer = self._there(name)
        self.desk.lose = lose
        with self._told_if_fenced(name):
            consumer.commit(wait=wait)
            self.uncommitted[name] = []
        self.desk.lose = ""

    @rule(name=st.sampled_from(NAMES), lose=st.sampled_from(("", "", "request", "answer")), fail=st.booleans())
    def copy(self, name: str, lose: str, fail: bool) -> None:
        """Everything that was iterated, to the other stream, in a transaction that may fail on the way."""
        consumer = self._there(name)
        self._settle_doubts(name)
        with self._told_if_fenced(name):
            try:
                with consumer.transaction() as tx:
                    self._stage(name, tx)
                    if fail:
                        raise _Failed
                    self.desk.lose = lose
                self.uncommitted[name] = []
            except _Failed:
                self.uncommitted[name] = []
        self.desk.lose = ""

    def _stage(self, name: str, tx: Any) -> None:
        rows = self.uncommitted[name]
        outputs = tx._outputs
        self._kept_alive.append(outputs)
        self.staged[id(outputs)] = list(rows)
        if rows:
            tx.append(SINK, [{"n": n} for n in rows])

    def _settle_doubts(self, name: str) -> None:
        """A transaction begins with what is known: a commit whose answer was lost is asked about first."""
        with self._told_if_fenced(name):
            if self.consumers[name].in_doubt:
                self.consumers[name].commit()
                self.uncommitted[name] = []

    @rule(name=st.sampled_from(NAMES))
    def abort(self, name: str) -> None:
        with self._told_if_fenced(name):
            self._there(name).abort()
            self.uncommitted[name] = []

    @rule(name=st.sampled_from(NAMES), commit=st.booleans())
    def leave(self, name: str, commit: bool) -> None:
        if name in self.consumers and len(self.consumers) > 1:
            with self._told_if_fenced(name):
                self.consumers[name].close(commit=commit)
            del self.consumers[name], self.uncommitted[name]

    @rule(name=st.sampled_from(NAMES))
    def forget(self, name: str) -> None:
        """An instance dies without a word; another takes its name."""
        if name in self.consumers:
            self._join(name)

    @rule(seconds=st.sampled_from((10, 20, 31)))
    def pause(self, seconds: int) -> None:
        self.clock.advance(f"{seconds}s")

    def _there(self, name: str) -> Consumer:
        if name not in self.consumers:
            self._join(name)
        return self.consumers[name]

    def _told_if_fenced(self, name: str) -> _Told:
        return _Told(self, name)

    # What goes on beside.

    @rule()
    def settle(self) -> None:
        self.pond.stream(SOURCE).settle()
        self.model.synced()

    @rule()
    def truncate(self) -> None:
        self.pond.stream(SOURCE).truncate(preview=False)
        self.model.truncated()
        self.coordinator.group(SOURCE, GROUP)  # whoever asks finds it at the new generation's start

    @rule()
    def compact_positions(self) -> None:
        self.coordinator.compact()
        self.model.synced()

    @rule()
    def kill(self) -> None:
        self._die(None, 0)

    @rule(variant=st.sampled_from(VARIANTS), seed=st.integers(0, 1_000))
    def cut_the_power(self, variant: Variant, seed: int) -> None:
        self._die(variant, seed)

    @rule(
        name=st.sampled_from(NAMES),
        what=st.sampled_from(("commit", "copy", "compact_positions")),
        step=st.integers(1, 4),
        after=st.booleans(),
        variant=st.none() | st.sampled_from(VARIANTS),
    )
    def die_inside(self, name: str, what: str, step: int, after: bool, variant: Variant | None) -> None:
        """At a durable step of a commit, or right behind it."""
        self._there(name)
        self.storage.crash_at(len(self.storage.durable_steps) + step, after=after)
        acts: dict[str, Callable[[], None]] = {
            "commit": lambda: self.commit(name, ""),
            "copy": lambda: self.copy(name, "", False),
            "compact_positions": self.compact_positions,
        }
        try:
            acts[what]()
        except (Crash, MillpondError):
            if self.storage.crashed is None:
                raise
        self._die(variant, step)

    def _die(self, variant: Variant | None, seed: int) -> None:
        self.storage.crash()
        self._abandon()
        if variant is not None:
            self.storage.power_cut(variant, seed)
        self.storage = self.storage.restarted(seed)
        self._open()
        self._compare(lossy=variant is not None)

    def _abandon(self) -> None:
        pond, self.pond = self.pond, None
        if pond is not None:
            try:
                pond.close()
            except BaseException:  # it is dead as far as the disk goes: its threads are ended, no more
                if self.storage.crashed is None:
                    raise

    def _compare(self, *, lossy: bool) -> None:
        """What is done after a crash is what was committed, with what was on its way as a whole or not at all."""
        done = self._done()
        doubt, self.doubt = self.doubt, None
        if doubt is not None:
            _, rows, out = doubt
            new = [row for row in rows if row.n in done and row.n not in self.model.committed]
            assert new in ([], rows), "a commit took effect in part"
            seen = self._seen()
            if new or seen != self.model.outputs:
                self.model.took_effect(new, out)
        lost = self.model.committed - done
        assert done <= self.model.committed
        assert lost <= (self.model.unsafe if lossy else set()), f"commits of {lost} are gone"
        self.model.committed -= lost
        self.model.synced()
        self.outputs_are_those_of_commits()

    def _done(self) -> set[int]:
        self.coordinator.group(SOURCE, GROUP)
        (group,) = self.coordinator.each()
        state = group.state
        if self._strategy == "fifo":
            return {
                r.n for r in self.model.records.values() if state.done_of(r.streamlet).holds(r.offset, r.offset + 1)
            }
        slot = {r.n: (r.offset if state.by is None else hash_value(r.key)) % SLOTS for r in self.model.records.values()}
        return {r.n for r in self.model.records.values() if state.marks_of(r.streamlet)[slot[r.n]] > r.offset}

    def _seen(self) -> Counter[int]:
        return Counter(self.pond.stream(SINK).scan().column("n").to_pylist())

    @precondition(lambda self: self.pond is not None)
    @invariant()
    def what_is_done_is_what_was_committed(self) -> None:
        if self.consumers:
            assert self._done() == self.model.committed

    def outputs_are_those_of_commits(self) -> None:
        assert self._seen() == self.model.outputs


class _Failed(Exception):
    """A program's own."""


class _Told:
    """Around what an instance does: one that was expelled, or lost an answer, is told, and forgets what it must."""

    def __init__(self, machine: ConsumeMachine, name: str) -> None:
        self._machine, self._name = machine, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Fenced):
            self._machine.uncommitted[self._name] = []
            return True
        return isinstance(error, Unavailable) and "was lost" in error.message
