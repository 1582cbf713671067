"""A pond against a list and a dict: hypothesis draws what is done and where it is interrupted, and shrinks what fails.

The steps are those of a user (create, append in every form, retry, settle, read, scan, get, alter, truncate, drop,
close and reopen), of the background (merge, checkpoint, drop what has expired), and of bad luck: a kill between two
steps or inside one, at any of its durable steps, and a power cut in any variant. After each interruption the pond is
opened and compared with the model.

Run it as it is, or subclass it with more rules:

    TestPond = PondStateMachine.TestCase
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.errors import MillpondError, StaleSequence
from millpond.model.definition import DURABILITIES, Durability
from millpond.storage import LocalStorage
from millpond.testing.faulty_storage import Crash, FaultyStorage
from millpond.testing.manual_clock import ManualClock
from millpond.testing.pond_driver import FORMS, PondDriver
from millpond.testing.pond_model import Row
from millpond.testing.power_cut import VARIANTS, Variant

NAMES = ("a", "grid/meters", "x/y/z")
# The smallest that the settings allow, so that files roll within a run; nothing becomes durable by the passing of time.
SETTINGS: dict[str, Any] = {
    "journal_file_bytes": 64_000,
    "segment_bytes": 64_000,
    "flush_seconds": 3_600.0,
    "disk_reserve_bytes": 0,
}

Predicate = Callable[[Row], bool]


def _number(value: float | None, test: Callable[[float], bool]) -> bool:
    """Spark's order: null is no answer, NaN is greater than every number."""
    return value is not None and test(float("inf") if value != value else value)


# SQL, and what it means for a row.
CONDITIONS: dict[str, Predicate] = {
    "temp > 0": lambda row: _number(row["temp"], lambda t: t > 0),
    "temp <= 0 OR city IS NULL": lambda row: _number(row["temp"], lambda t: t <= 0) or row["city"] is None,
    "city = 'Nice'": lambda row: row["city"] == "Nice",
    "city IN ('Lyon', 'Zürich') AND id >= 10": lambda row: row["city"] in ("Lyon", "Zürich") and row["id"] >= 10,
    "NOT (city = 'Paris')": lambda row: row["city"] is not None and row["city"] != "Paris",
    "id BETWEEN 5 AND 25": lambda row: 5 <= row["id"] <= 25,
    "tags IS NULL": lambda row: row["tags"] is None,
}

# The first one is there from the start, and drawn most often: few streams with a long life meet more than many.
names = st.sampled_from((NAMES[0], NAMES[0], *NAMES))
durabilities = st.sampled_from(DURABILITIES)


class PondStateMachine(RuleBasedStateMachine):
    """One pond in a temporary directory under `scratch` (None: the system's)."""

    scratch: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="millpond-stateful-", dir=self.scratch))
        self._sequences: dict[str, int] = {}
        root = self._directory / "root"
        root.mkdir()
        self.storage = FaultyStorage(LocalStorage(), root=root)
        self.drive = PondDriver(root / "pond", self.storage, clock=ManualClock(), **SETTINGS)

    @initialize(durability=durabilities, streamlets=st.sampled_from((1, 3)))
    def first_open(self, durability: Durability, streamlets: int) -> None:
        self.drive.open()
        self.drive.create(NAMES[0], durability=durability, streamlets=streamlets)

    def teardown(self) -> None:
        try:
            if self.drive.pond is not None and self.storage.crashed is None:
                self.drive.close()
                self.drive.open()
                self.drive.check()
        finally:
            self.drive.abandon()
            if self.storage.disk is not None:
                self.storage.disk.close()
            shutil.rmtree(self._directory)

    def _there(self, name: str) -> str:
        """`name`, or a stream that there is, if there is any: few draws should be in vain."""
        known = self.drive.model.streams
        return name if name in known or not known else min(known)

    def _has(self, name: str) -> bool:
        return name in self.drive.model.streams

    # What users do.

    @rule(name=names, durability=durabilities, streamlets=st.sampled_from((1, 3)), archived=st.booleans())
    def create(self, name: str, durability: Durability, streamlets: int, archived: bool) -> None:
        how: dict[str, Any] = {} if archived else {"settle": None}
        self.drive.create(name, durability=durability, streamlets=streamlets, **how)

    @rule(
        name=names,
        count=st.sampled_from((1, 2, 5, 20)),
        form=st.sampled_from(FORMS),
        durability=st.none() | durabilities,
        filling=st.sampled_from(("", "", "", "x" * 4_000)),
    )
    def append(self, name: str, count: int, form: str, durability: Durability | None, filling: str) -> None:
        self.drive.append(self._there(name), count, form=form, durability=durability, filling=filling)

    @rule(name=names, count=st.integers(1, 5), producer=st.sampled_from(("p", "q")), durability=durabilities)
    def append_with_sequence(self, name: str, count: int, producer: str, durability: Durability) -> None:
        self._sequences[producer] = self._sequences.get(producer, 0) + 1
        self.drive.append(
            self._there(name),
            count,
            producer=producer,
            sequence=self._sequences[producer],
            durability=durability,
            form="batch",
        )

    @rule(name=names, back=st.integers(1, 4))
    def retry(self, name: str, back: int) -> None:
        """Send one of the last appends of a producer again, whatever became of it."""
        name = self._there(name)
        known = [a for a in self.drive.model.streams[name].attempts if a.producer] if self._has(name) else []
        if len(known) >= back:
            # Refused where nobody can know: it was lost, and later ones of the producer were not.
            with contextlib.suppress(StaleSequence):
                self.drive.send(name, known[-back])

    @rule(name=names)
    def settle(self, name: str) -> None:
        self.drive.settle(self._there(name))

    @rule(name=names)
    def alter(self, name: str) -> None:
        name = self._there(name)
        if self._has(name) and len(self.drive.model.streams[name].columns) < 8:
            self.drive.alter(name)

    @rule(name=names)
    def truncate(self, name: str) -> None:
        self.drive.truncate(self._there(name))

    @rule(name=names, ttl=st.sampled_from(("2d", "3h", "30m")))
    def shorten_ttl(self, name: str, ttl: str) -> None:
        self.drive.shorten_ttl(self._there(name), ttl)

    @rule(name=names, anew=st.booleans())
    def drop(self, name: str, anew: bool) -> None:
        self.drive.drop(name)
        if anew:
            self.drive.create(name)

    @rule()
    def compare_everything(self) -> None:
        self.drive.check(resolve=False)

    @rule(name=names, condition=st.sampled_from(sorted(CONDITIONS)), limit=st.none() | st.integers(0, 5))
    def scan(self, name: str, condition: str, limit: int | None) -> None:
        name = self._there(name)
        if not self._has(name):
            return
        model = self.drive.model.streams[name]
        cutoff = model.expire(self.drive.clock.now_micros())
        if any(model.in_doubt(attempt, cutoff) for attempt in model.attempts):
            self.drive.check(resolve=False)  # a retry was recognised, of which try is not known
            return
        wanted = {row["id"] for row in model.rows if CONDITIONS[condition](row)}
        stream = self.drive.pond.stream(name)
        found = stream.scan(condition, columns=["id"], limit=limit).column("id").to_pylist()
        assert len(found) == len(set(found))
        if limit is None:
            assert set(found) == wanted, condition
            assert stream.count(condition) == len(wanted)
        else:
            assert len(found) == min(limit, len(wanted))
            assert set(found) <= wanted

    @rule(seconds=st.sampled_from(("1s", "1h", "1d")))
    def let_time_pass(self, seconds: str) -> None:
        assert isinstance(self.drive.clock, ManualClock)
        self.drive.clock.advance(seconds)

    # What the background does.

    @rule(name=names)
    def merge(self, name: str) -> None:
        self.drive.compact(self._there(name))

    @rule(name=names)
    def drop_expired(self, name: str) -> None:
        self.drive.drop_expired(self._there(name))

    @rule(name=names)
    def checkpoint(self, name: str) -> None:
        self.drive.checkpoint(self._there(name))

    # Interruptions.

    @rule()
    def close_and_reopen(self) -> None:
        self.drive.close()
        self.drive.open()
        self.drive.check()

    @rule()
    def kill(self) -> None:
        """Between two steps."""
        self._die()

    @rule(variant=st.sampled_from(VARIANTS), seed=st.integers(0, 1_000))
    def cut_the_power(self, variant: Variant, seed: int) -> None:
        """Between two steps."""
        self._die(variant, seed)

    @rule(
        name=names,
        what=st.sampled_from(
            (
                "append",
                "settle",
                "settle",
                "merge",
                "alter",
                "truncate",
                "drop",
                "create",
                "reopen",
                "expire",
                "shorten",
            )
        ),
        step=st.integers(1, 25),
        after=st.booleans(),
        variant=st.none() | st.sampled_from(VARIANTS),
        seed=st.integers(0, 1_000),
    )
    def die_inside(self, name: str, what: str, step: int, after: bool, variant: Variant | None, seed: int) -> None:
        """A kill, or a power cut, at the given durable step of an operation, or right behind it if it has fewer."""
        self.storage.crash_at(len(self.storage.durable_steps) + step, after=after)
        name = name if what == "create" else self._there(name)
        operations: dict[str, Callable[[], Any]] = {
            "append": lambda: self.drive.append(name, 3),
            "settle": lambda: self.drive.settle(name),
            "merge": lambda: self.drive.compact(name),
            "alter": lambda: self.alter(name),
            "truncate": lambda: self.drive.truncate(name),
            "drop": lambda: self.drive.drop(name),
            "create": lambda: self.drive.create(name),
            "reopen": self._reopen,
            "expire": lambda: self.drive.drop_expired(name),
            "shorten": lambda: self.drive.shorten_ttl(name, "45m"),
        }
        try:
            operations[what]()
        except (Crash, MillpondError):
            if self.storage.crashed is None:
                raise
        note(f"died at: {self.storage.crashed}")
        self._die(variant, seed)

    def _reopen(self) -> None:
        self.drive.close()
        self.drive.open()

    def _die(self, variant: Variant | None = None, seed: int = 0) -> None:
        """The process dies, the next one opens the pond, and the two agree."""
        self.storage.crash()
        self.drive.abandon()
        if variant is None:
            self.drive.model.killed()
        else:
            self.storage.power_cut(variant, seed)
            self.drive.model.power_cut()
        self.storage = self.drive.storage = self.storage.restarted(seed)
        self.drive.open()
        self.drive.check()

    @precondition(lambda self: self.drive.pond is not None)
    @invariant()
    def the_streams_are_known(self) -> None:
        assert {stream.name for stream in self.drive.pond.streams()} == set(self.drive.model.streams)
