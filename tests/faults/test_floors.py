"""Where a stream that is never archived begins, under every fault: nobody but the journal knows it (I6)."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest

from millpond.errors import JournalClosed
from millpond.log.embedded.engine import EmbeddedLog
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage
from tests.log.conftest import SMALL, append, definition, numbers

pytestmark = pytest.mark.timeout(300)

KEPT = definition(20, settle=None)
RELEASES = (1_200, 5_600, 9_400)


class Work:
    """Appends to a stream and lets go of its beginning, again and again. `done`: what was certainly let go of."""

    def __init__(self) -> None:
        self.done = self.begun = self.head = self.tried = 0

    def run(self, log: EmbeddedLog) -> None:
        for floor in RELEASES:
            while self.head < floor + 700:
                self.tried = self.head + 500
                append(log, self.head)
                self.head += 500
            self.begun = floor
            log.release(20, {0: floor})
            self.done = floor
        log.close()

    def check(self, log: EmbeddedLog) -> None:
        start, head = log.starts(20)[0], log.heads(20)[0]
        assert start in {self.done, self.begun}
        assert head in {self.head, self.tried}
        assert numbers(log, start, head) == list(range(start, head))


def opened(root: Path, storage: Storage) -> EmbeddedLog:
    log = EmbeddedLog.open(str(root / "pond"), settings=SMALL, storage=storage)
    log.add_stream(KEPT)
    log.forget_unclaimed()
    return log


def run(root: Path, crash: tuple[int, bool] | None = None) -> tuple[FaultyStorage, Work]:
    if root.exists():
        shutil.rmtree(root)
    (root / "pond").mkdir(parents=True)
    storage, work = FaultyStorage(LocalStorage(), root=root), Work()
    if crash is not None:
        storage.crash_at(crash[0], after=crash[1])
    with contextlib.suppress(Crash, JournalClosed):
        work.run(opened(root, storage))
    return storage, work


def test_a_floor_survives_a_crash_and_a_power_cut_at_every_step(quick_path: Path) -> None:
    root = quick_path / "root"
    clean, _ = run(root)
    steps = [step for step in clean.steps if step.durable]
    assert sum(step.kind == "remove" for step in steps) >= 2, "too few files were let go of"
    turns = itertools.cycle(VARIANTS)
    for number, after in itertools.product(range(1, len(steps) + 1), (False, True)):
        storage, work = run(root, (number, after))
        assert storage.crashed is not None, number
        storage.power_cut(next(turns), number)
        for _ in range(2):
            log = opened(root, LocalStorage())
            work.check(log)
            log.close()
        assert storage.disk is not None
        storage.disk.close()
