"""Dropping what has expired, killed and unplugged at every step: what is kept is there, what went is on record (I6).

Nothing that was dropped comes back, nothing that had not expired goes, and offsets are never given out twice.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import MillpondError
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage
from millpond.testing.manual_clock import ManualClock

pytestmark = pytest.mark.timeout(900)

SCHEMA = pa.schema([("n", pa.int64()), ("pad", pa.string())])
SETTINGS: dict[str, Any] = {
    "journal_file_bytes": 64_000,
    "segment_bytes": 64_000,
    "flush_seconds": 3_600.0,
    "disk_reserve_bytes": 0,
    "background": False,
}
# By name: whether it is archived.
STREAMS = {"kept": True, "live": False}


class Work:
    """Appends an hour apart, settles the archived stream at times, and drops what is older than two and a half."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.begun: dict[str, list[tuple[int, int]]] = {name: [] for name in STREAMS}  # (hour, n) that may be there
        self.acked: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self.hour = 0

    def run(self, root: Path, storage: Storage) -> None:
        pond = self.open(root, storage)
        try:
            for name, archived in STREAMS.items():
                settle = millpond.Settle() if archived else None
                pond.create_stream(name, SCHEMA, settle=settle, ttl="150m")
            for turn in range(7):
                for name in STREAMS:
                    self.append(pond.stream(name))
                if turn in (1, 3):
                    pond.stream("kept").settle()
                self.clock.advance("1h")
                self.hour += 1
                for name in STREAMS:
                    pond.stream(name).expiry.drop()
            pond.close()
        except BaseException:
            with contextlib.suppress(BaseException):
                pond.close()
            raise

    def open(self, root: Path, storage: Storage) -> millpond.Pond:
        return millpond.open(root / "pond", storage=storage, clock=self.clock, **SETTINGS)

    def append(self, stream: millpond.Stream) -> None:
        rows = [{"n": len(self.begun[stream.name]) + n, "pad": "x" * 4_000} for n in range(20)]
        self.begun[stream.name] += [(self.hour, row["n"]) for row in rows]
        stream.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        self.acked[stream.name] = len(self.begun[stream.name])

    def check(self, pond: millpond.Pond) -> None:
        for stream in pond.streams():
            begun, acked = self.begun[stream.name], self.acked[stream.name]
            fresh = [n for hour, n in begun if hour > self.hour - 2.5]
            found = stream.scan(columns=["n", "_offset"])
            there = sorted(found["n"].to_pylist())
            assert there in ([n for n in fresh if n < acked], fresh), stream.name
            assert found["n"].to_pylist() == found["_offset"].to_pylist(), "an offset for each, once"
            assert stream.count() == len(there)
            assert sorted(n for batch in stream.read() for n in batch["n"].to_pylist()) == there
            status = stream.status()
            held = status.rows_live + status.rows_settled
            assert status.head[0] - held <= self.recorded(pond, stream.name), "what went is on record"
            assert status.head[0] in (acked, len(begun))

    def recorded(self, pond: millpond.Pond, name: str) -> int:
        """How many offsets of a stream the audit says are gone: a range once, however often it was tried."""
        gone = 0
        live: set[int] = set()
        settled = {}
        for row in pond.audit().to_pylist():
            if row["stream"] == name:
                detail = dict(part.split("=", 1) for part in row["detail"].split())
                for part in [] if detail["offsets"] == "-" else detail["offsets"].split(","):
                    start, stop = part.split(":")[1].split("-")
                    live |= set(range(int(start), int(stop)))
                settled[detail["before"]] = int(detail["rows_settled"])
        gone = len(live) + sum(settled.values())
        return gone


def run(root: Path, crash: tuple[int, bool] | None = None, seed: int = 0) -> tuple[FaultyStorage, Work]:
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    storage, work = FaultyStorage(LocalStorage(), seed, root=root), Work()
    if crash is not None:
        storage.crash_at(crash[0], after=crash[1])
    with contextlib.suppress(Crash, MillpondError):
        work.run(root, storage)
    assert (storage.crashed is None) == (crash is None)
    return storage, work


def check_and_go_on(root: Path, work: Work) -> None:
    with work.open(root, LocalStorage()) as pond:
        work.check(pond)
        for stream in pond.streams():
            work.begun[stream.name] = work.begun[stream.name][: stream.status().head[0]]
            stream.expiry.drop()
            work.append(stream)
        work.check(pond)
        assert pond.verify().ok
    with work.open(root, LocalStorage()) as pond:
        work.check(pond)


def steps_of(root: Path) -> list[Any]:
    storage, work = run(root)
    check_and_go_on(root, work)
    assert storage.disk is not None
    storage.disk.close()
    return [step for step in storage.steps if step.durable]


def interrupt(root: Path, points: list[tuple[int, bool]]) -> None:
    turns = itertools.cycle((None, *VARIANTS))
    for number, after in points:
        variant = next(turns)
        storage, work = run(root, (number, after), seed=number)
        if variant is not None:
            storage.power_cut(variant, number)
        try:
            check_and_go_on(root, work)
        except BaseException as error:
            error.add_note(f"durable step {number} ({storage.crashed}), {after=}, {variant=}")
            raise
        assert storage.disk is not None
        storage.disk.close()


def test_an_interrupted_drop_loses_nothing_that_is_kept(quick_path: Path) -> None:
    """The last step of each kind, before and after it in turn."""
    steps = steps_of(quick_path / "root")
    last = sorted({str(step): step.durable_number for step in steps}.values())
    interrupt(quick_path / "root", list(zip(last, itertools.cycle((False, True)), strict=False)))


@pytest.mark.long
def test_a_drop_interrupted_at_every_step(quick_path: Path) -> None:
    steps = steps_of(quick_path / "root")
    interrupt(quick_path / "root", [(step.durable_number, after) for step in steps for after in (False, True)])
