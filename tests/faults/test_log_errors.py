"""The embedded log when the disk answers with errors: EIO at every call, a failed sync, a full disk (I1, E7)."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.errors import DiskFull, JournalClosed, MemoryFull, MillpondError
from millpond.log.embedded.engine import EmbeddedLog
from millpond.model.offsets import OffsetRange
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage, ManualClock, Variant
from millpond.testing.pond_model import Fate
from tests.faults.log_workload import ALARMS, METERS, SETTINGS, LogWorkload, Recorder, check, open_log

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def fresh(root: Path) -> None:
    for left in root.parent.glob("root*"):
        shutil.rmtree(left)
    (root / "pond").mkdir(parents=True)


def opened_workload(root: Path, storage: FaultyStorage) -> LogWorkload:
    work = LogWorkload(root / "pond", storage, Recorder())
    work.log = open_log(root / "pond", storage, work.recorder)
    return work


def reopened_and_checked(root: Path, recorder: Recorder) -> None:
    log = open_log(root / "pond", LocalStorage(), recorder)
    try:
        check(log, recorder)
        work = LogWorkload(root / "pond", LocalStorage(), recorder)
        work.log = log
        work.append(METERS, {0: 1, 1: 2})
        check(log, recorder)
    finally:
        log.close()


def run_with_error_at(root: Path, call: int, *, code: int, sticky: bool, seed: int) -> bool:
    """Run the workload with one call failing; whether the workload got that far."""
    fresh(root)
    storage, recorder = FaultyStorage(LocalStorage(), seed, root=root), Recorder()
    storage.fail(at=call, code=code, sticky=sticky)
    LogWorkload(root / "pond", storage, recorder, tolerant=True).run()
    if not storage.failed:
        return False
    # The process ends, however it ends; then the power goes too, and with it what a failed sync left behind.
    if call % 2:
        storage.power_cut(Variant.STRICT, seed)
        recorder.power_cut()
    else:
        storage.crash()
        recorder.killed()
    reopened_and_checked(root, recorder)
    assert storage.disk is not None
    storage.disk.close()
    return True


@pytest.mark.parametrize(
    ("code", "sticky"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False)], ids=["EIO", "EIO on", "ENOSPC"]
)
def test_an_error_at_every_call_loses_nothing_promised(root: Path, code: int, sticky: bool) -> None:
    """I1, I2: an error at call N, for every N. What was acknowledged is there afterwards, once."""
    call = 1
    while run_with_error_at(root, call, code=code, sticky=sticky, seed=call):
        call += 1
    assert call > 100, f"only {call} calls"


def test_a_failed_sync_fails_all_who_wait_and_ends_writing(root: Path) -> None:
    """I1: never retried on the same file; reads go on; a reopened log has everything acknowledged before."""
    storage = FaultyStorage(LocalStorage(), root=root)
    work = opened_workload(root, storage)
    assert work.log is not None
    log = work.log
    work.append(METERS, {0: 3})
    # Slow, so that all others queue behind the first one and share the sync that fails.
    storage.sync_latency_seconds = 0.2
    syncs = sum(step.kind == "sync" for step in storage.steps)
    errors: list[BaseException] = []

    def one() -> None:
        try:
            work.append(METERS, {1: 1}, encoded=True)
        except MillpondError as error:
            errors.append(error)

    first = threading.Thread(target=one)
    first.start()
    while sum(step.kind == "sync" for step in storage.steps) == syncs:
        pass
    storage.fail(kind="sync")
    waiting = [threading.Thread(target=one) for _ in range(5)]
    for thread in waiting:
        thread.start()
    for thread in [first, *waiting]:
        thread.join(30)
    storage.sync_latency_seconds = 0
    assert len(errors) == 5
    assert all(isinstance(error, JournalClosed) for error in errors)
    assert [step.kind for step in storage.failed] == ["sync"]
    after = len(storage.steps)
    with pytest.raises(JournalClosed, match="sync"):
        work.append(METERS, {0: 1})
    assert not any(step.kind in ("write", "sync") for step in storage.steps[after:]), "it was tried again"
    assert "sync" in log.status().refused
    assert log.heads(METERS.id) == {0: 3, 1: 1, 2: 0}, "readers see only what was acknowledged"
    with contextlib.suppress(MillpondError):
        log.close()
    storage.power_cut(Variant.STRICT)
    work.recorder.power_cut()
    reopened_and_checked(root, work.recorder)


def test_a_failed_sync_is_not_believed_by_a_later_one(root: Path) -> None:
    """I1: the system forgets the pages whose writing failed, and the next sync says that all is well."""
    storage = FaultyStorage(LocalStorage(), root=root)
    work = opened_workload(root, storage)
    assert work.log is not None
    work.append(METERS, {0: 2})
    storage.fail(kind="sync")
    with pytest.raises(JournalClosed):
        work.append(METERS, {0: 2})
    for _ in range(3):
        with pytest.raises(MillpondError):
            work.append(METERS, {1: 1})
        with pytest.raises(MillpondError):
            work.log.sync()
    with contextlib.suppress(MillpondError):
        work.log.close()
    storage.power_cut(Variant.STRICT)
    work.recorder.power_cut()
    reopened_and_checked(root, work.recorder)


def test_a_log_opened_after_a_failed_sync_does_not_build_on_what_the_disk_never_got(root: Path) -> None:
    """I1: the next process reads the bytes of the failed sync from the cache, where they are marked as written."""
    storage = FaultyStorage(LocalStorage(), root=root)
    work = opened_workload(root, storage)
    assert work.log is not None
    work.append(METERS, {0: 2})
    storage.fail(kind="sync")
    with pytest.raises(JournalClosed):
        work.append(METERS, {0: 2})
    work.log.close()
    following = storage.restarted()
    again = LogWorkload(root / "pond", following, work.recorder)
    again.log = open_log(root / "pond", following, work.recorder)
    check(again.log, work.recorder)
    again.append(METERS, {0: 2})
    again.log.close()
    following.power_cut(Variant.STRICT)
    reopened_and_checked(root, work.recorder)


@pytest.mark.parametrize("room", [0, 1, 79, 80, 200, 1_000, 20_000, 70_000])
def test_a_full_disk_refuses_appends_and_nothing_else(root: Path, room: int) -> None:
    """Appends fail with DiskFull and leave nothing; reads and releases go on; with room back, appends work again."""
    storage = FaultyStorage(LocalStorage(), root=root)
    work = opened_workload(root, storage)
    assert work.log is not None
    log = work.log
    work.append(METERS, {0: 20}, filling=1_000)
    work.append(ALARMS, {0: 2}, durability="memory")
    storage.limit_room(room, under=str(root))
    refused = 0
    for n in range(30):
        try:
            work.append(METERS, {n % 3: 4}, filling=1_000, durability=("disk", "os")[n % 2])
        except DiskFull:
            refused += 1
    assert refused
    check(log, work.recorder)
    assert log.status().refused == "", "a full disk passes"
    with contextlib.suppress(DiskFull):
        work.settle(METERS)
    check(log, work.recorder)
    storage.heal()
    for n in range(30):
        work.append(METERS, {n % 3: 4}, filling=1_000)
    work.sync()
    check(log, work.recorder)
    storage.power_cut(Variant.STRICT)
    work.recorder.power_cut()
    with contextlib.suppress(MillpondError, Crash):
        log.close()
    reopened_and_checked(root, work.recorder)


def test_a_disk_that_is_nearly_full_is_left_alone(root: Path) -> None:
    """K10: below the reserve appends are refused before they write, so that settling has room."""
    storage, clock = FaultyStorage(LocalStorage(), root=root), ManualClock()
    settings = replace(SETTINGS, disk_reserve_bytes=50_000)
    log = EmbeddedLog.open(str(root / "pond"), storage=storage, clock=clock, settings=settings)
    log.add_stream(METERS)
    work = LogWorkload(root / "pond", storage, Recorder())
    work.log = log
    work.append(METERS, {0: 1})
    storage.limit_room(40_000, under=str(root))
    clock.advance("1s")  # room is looked at now and then, not at every append
    for _ in range(3):
        before = len(storage.durable_steps)
        with pytest.raises(DiskFull, match="kept"):
            work.append(METERS, {0: 1})
        assert len(storage.durable_steps) == before
        assert work.recorder.attempts[-1].fate is Fate.LOST
    storage.heal()
    work.append(METERS, {0: 1})
    assert log.heads(METERS.id) == {0: 2, 1: 0, 2: 0}
    log.close()


def test_closing_says_so_when_acknowledged_records_could_not_be_kept(root: Path) -> None:
    """I1, I6: a close that cannot flush what was acknowledged at `memory` or `os` raises; it lets go all the same."""
    for durability, code in [("memory", errno.EIO), ("os", errno.EIO), ("memory", errno.ENOSPC)]:
        fresh(root)
        storage = FaultyStorage(LocalStorage(), root=root)
        work = opened_workload(root, storage)
        assert work.log is not None
        work.append(METERS, {0: 1})
        if durability == "memory":  # acknowledged before it is written
            storage.fail(kind="write", code=code, sticky=True)
            work.append(METERS, {0: 1}, durability=durability)
        else:
            work.append(METERS, {0: 1}, durability=durability)
            storage.fail(kind="sync", code=code)
        with pytest.raises((JournalClosed, DiskFull)):
            work.log.close()
        work.recorder.power_cut()
        storage.power_cut(Variant.STRICT)
        reopened_and_checked(root, work.recorder)


def test_a_missing_end_mark_is_no_reason_to_fail_a_close(root: Path) -> None:
    storage = FaultyStorage(LocalStorage(), root=root)
    work = opened_workload(root, storage)
    assert work.log is not None
    work.append(METERS, {0: 1})
    storage.fail(kind="write")
    work.log.close()
    assert [step.kind for step in storage.failed] == ["write"]
    storage.power_cut(Variant.STRICT)
    reopened_and_checked(root, work.recorder)


def test_memory_that_cannot_be_spilled_refuses_appends_until_it_can(root: Path) -> None:
    """K10: a full disk under the spill files ends in MemoryFull, not in memory without end; reads go on."""
    storage = FaultyStorage(LocalStorage(), root=root)
    settings = replace(SETTINGS, memory_wait_seconds=0.05, segment_bytes=64_000)
    small = replace(ALARMS, memory_bytes=64_000)
    log = EmbeddedLog.open(str(root / "pond"), storage=storage, clock=ManualClock(), settings=settings)
    log.add_stream(small)
    work = LogWorkload(root / "pond", storage, Recorder())
    work.log = log
    storage.fail(path="/spill", code=errno.ENOSPC, sticky=True)
    for _ in range(2_000):
        try:
            work.append(small, {0: 1}, encoded=True, filling=500, durability="os")
        except MemoryFull:
            break
    else:
        pytest.fail("memory grew without end")
    assert log.status().memory_bytes < 400_000
    assert any("spill" in warning for warning in log.status().warnings)
    assert work.recorder.attempts[-1].fate is Fate.LOST
    head = log.heads(small.id)[0]
    assert sum(batch.num_rows for batch in log.read(small.id, 0, OffsetRange(0, head))) == head
    storage.heal()
    log.tend()
    work.append(small, {0: 1}, encoded=True, filling=500)
    assert log.heads(small.id)[0] == head + 1
    log.close()
