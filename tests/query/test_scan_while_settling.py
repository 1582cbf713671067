"""B2 for readers without Spark: with writers and a settler at work, every answer is one exact snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.log.engine import Part
from millpond.query import count, get, read, scan
from tests.query.small_pond import SCHEMA, SmallPond, define

DEADLINE_SECONDS = 60.0
ROUNDS = 100
SETTLES = 12
STREAMLETS = 2


class Traffic:
    """A writer and a settler on one pond, with counts of what was sent and acknowledged.

    The writer gets no further ahead than a reader allows it, so that a test costs the same on a slow machine."""

    def __init__(self, root: Path) -> None:
        self.pond = SmallPond(root, define(STREAMLETS), batch_rows=50)
        self.sent = 0
        self.acked = 0
        self.settles = 0
        self._allowed = threading.Semaphore(0)
        self._done = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True) for work in (self._write, self._settle)
        ]

    def allow(self, appends: int) -> None:
        """Let the writer go on, beside whatever the caller does next."""
        if self._errors:
            raise self._errors[0]
        for _ in range(appends):
            self._allowed.release()

    def rounds(self) -> Iterator[int]:
        """As many as asked for, and more until enough has settled meanwhile."""
        turn = 0
        while turn < ROUNDS or self.settles < SETTLES:
            self.allow(5)
            yield turn
            turn += 1

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._done.is_set():
                work()
        except BaseException as error:
            self._errors.append(error)
            self._done.set()

    def _write(self) -> None:
        """Each record's `n` is its number; all of them are in Nice."""
        if not self._allowed.acquire(timeout=0.05):
            return
        size = 1 + self.sent % 7
        rows = [{"vid": "v", "city": "Nice", "n": n, "temp": 0.0} for n in range(self.sent, self.sent + size)]
        batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        self.sent += size
        parts = [Part(self.sent % STREAMLETS, size, batch)]
        self.pond.log.append(7, parts, ingest_micros=self.sent, durability="disk")
        self.acked = self.sent

    def _settle(self) -> None:
        pond = self.pond
        if pond.log.wait(7, pond.archive.snapshot().boundary, 0.05):
            pond.commit()
            pond.archive.compact()
            pond.release()
            self.settles += 1

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    return Traffic(tmp_path)


def test_every_scan_sees_what_was_acknowledged_before_it_and_nothing_twice(traffic: Traffic) -> None:
    """B2"""
    with traffic:
        for _ in traffic.rounds():
            before = traffic.acked
            found = scan(traffic.pond.halves, "city = 'Nice'", ["n"]).column("n").to_pylist()
            after = traffic.sent
            assert len(found) == len(set(found)), "a record came twice"
            assert set(range(before)) <= set(found), "an acknowledged record is missing"
            assert max(found, default=-1) < after
            before = traffic.acked
            assert before <= count(traffic.pond.halves) <= traffic.sent


def test_every_lookup_sees_what_was_acknowledged_before_it_and_nothing_twice(traffic: Traffic) -> None:
    """B2, K6"""
    with traffic:
        for turn in traffic.rounds():
            limit = 100_000 if turn % 2 else 20
            before = traffic.acked
            found = get(traffic.pond.halves, secondary={"city": "Nice"}, limit=limit).column("n").to_pylist()
            after = traffic.sent
            assert found == sorted(set(found), reverse=True)
            assert max(found, default=-1) < after
            # The newest, without a hole: an append is whole or not there, and offsets follow the stamps.
            assert found == list(range(found[0], found[0] - len(found), -1)) if found else before == 0
            assert not found or found[0] >= before - 1
            assert len(found) >= min(before, limit)


def test_a_follower_gets_every_record_once_and_in_order(traffic: Traffic) -> None:
    """C5, I3"""
    numbers: list[int] = []
    following = dict.fromkeys(range(STREAMLETS), 0)
    with traffic, read(traffic.pond.halves, follow=True, columns=["n", "_streamlet", "_offset"]) as reader:
        for _ in traffic.rounds():
            batch = reader.poll()
            if batch is None:
                continue
            streamlet = batch.column("_streamlet")[0].as_py()
            offsets = batch.column("_offset").to_pylist()
            assert offsets == list(range(following[streamlet], following[streamlet] + len(offsets)))
            following[streamlet] += len(offsets)
            numbers += batch.column("n").to_pylist()
    assert len(set(numbers)) == len(numbers)
