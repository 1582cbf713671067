"""The embedded log under every fault, at every step of a fixed workload (I1, I2, E7).

The workload takes about 60 durable steps; each is crashed before and after, each is followed by a power cut in several
variants, and each call fails once. `make test` draws some of the combinations, `make fault` runs all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import JournalClosed
from millpond.log.embedded.engine import EmbeddedLog
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Step, Variant
from tests.faults.log_workload import ALARMS, METERS, LogWorkload, Recorder, check, open_log

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def clean_run(root: Path) -> list[Step]:
    """The steps of the workload when nothing goes wrong."""
    storage = FaultyStorage(LocalStorage(), root=root)
    recorder = Recorder()
    LogWorkload(root / "pond", storage, recorder).run()
    assert storage.crashed is None
    assert storage.disk is not None
    storage.disk.close()
    return storage.steps


@contextlib.contextmanager
def opened(root: Path, recorder: Recorder, storage: Storage | None = None) -> Iterator[EmbeddedLog]:
    log = open_log(root / "pond", storage or LocalStorage(), recorder)
    try:
        yield log
    finally:
        with contextlib.suppress(Crash):
            log.close()


def check_and_go_on(root: Path, recorder: Recorder) -> None:
    """What must be there is; the log takes records again, and has them after a clean close."""
    with opened(root, recorder) as log:
        check(log, recorder)
        work = LogWorkload(root / "pond", LocalStorage(), recorder)
        work.log = log
        for stream in (METERS, ALARMS):
            work.append(stream, {0: 3})
            work.append(stream, {0: 1}, encoded=True)
        check(log, recorder)
    with opened(root, recorder) as log:
        check(log, recorder)


def crash(root: Path, number: int, *, after: bool, seed: int = 0) -> tuple[FaultyStorage, Recorder]:
    """Run the workload into a crash at a durable step."""
    storage, recorder = FaultyStorage(LocalStorage(), seed, root=root), Recorder()
    storage.crash_at(number, after=after)
    # The thread that died may be the log's own; then the workload's meets an error at its next call.
    with pytest.raises((Crash, JournalClosed)):
        LogWorkload(root / "pond", storage, recorder).run()
    assert storage.crashed is not None
    assert storage.crashed.durable_number == number
    return storage, recorder


def fresh(root: Path) -> None:
    for left in root.parent.glob("root*"):
        shutil.rmtree(left)
    (root / "pond").mkdir(parents=True)


def test_the_workload_takes_every_kind_of_step(root: Path) -> None:
    steps = clean_run(root)
    kinds = {str(step) for step in steps if step.durable}
    for expected in (
        "create pond/journal/#.journal",
        "write pond/journal/#.journal",
        "sync pond/journal/#.journal",
        "sync_directory pond/journal",
        "remove pond/journal/#.journal",
        "add_directory pond/journal",
    ):
        assert expected in kinds, sorted(kinds)
    assert sum(str(s) == "create pond/journal/#.journal" for s in steps) >= 4, "the journal does not roll"


def crash_points(root: Path) -> list[tuple[int, bool]]:
    count = sum(step.durable for step in clean_run(root))
    return [(number, after) for number in range(1, count + 1) for after in (False, True)]


def test_a_crash_at_every_step_loses_nothing(root: Path) -> None:
    """I1, I2: killed before and after each durable step; then, as the next process left it, the power is cut."""
    planned = crash_points(root)
    hit = set()
    for number, after in planned:
        fresh(root)
        storage, recorder = crash(root, number, after=after)
        assert storage.crashed is not None
        hit.add((storage.crashed.durable_number, after))
        recorder.killed()
        # The next process shows what the dead one left, and in every other run appends to it: neither may be lost by a
        # power cut any more, whatever the dead one had not synced yet.
        following = storage.restarted()
        with opened(root, recorder, following) as log:
            check(log, recorder)
            if after:
                work = LogWorkload(root / "pond", following, recorder)
                work.log = log
                work.append(METERS, {0: 1, 2: 2})
                work.append(ALARMS, {0: 1}, encoded=True)
            following.power_cut(Variant.STRICT)
        recorder.power_cut()
        check_and_go_on(root, recorder)
        assert storage.disk is not None
        storage.disk.close()
    assert hit == set(planned)


def cut_and_check(root: Path, number: int, after: bool, variant: Variant, seed: int) -> None:
    fresh(root)
    storage, recorder = crash(root, number, after=after, seed=seed)
    storage.power_cut(variant, seed)
    recorder.power_cut()
    check_and_go_on(root, recorder)
    assert storage.disk is not None
    storage.disk.close()


def test_a_power_cut_at_every_step_loses_nothing_promised(root: Path) -> None:
    """I1: each durable step, the variants taken in turn."""
    turns = itertools.cycle(VARIANTS)
    for number, after in crash_points(root):
        cut_and_check(root, number, after, next(turns), seed=number)


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS, ids=[v.value for v in VARIANTS])
def test_a_power_cut_at_every_step_in_every_variant(root: Path, variant: Variant) -> None:
    """I1"""
    points = crash_points(root)
    for seed in range(5):
        for number, after in points:
            cut_and_check(root, number, after, variant, seed)
