"""A whole pond whose disk answers with errors, or is full: ingestion, settling and reading each as far as they can."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from millpond.errors import DiskFull, JournalClosed, MillpondError, SettleFailed
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage, Variant
from tests.faults import pond_workload
from tests.faults.pond_workload import METERS, check_and_go_on, driver, fresh

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def run_with_error_at(root: Path, call: int, code: int, *, sticky: bool, thorough: bool) -> bool:
    """Run the workload with call N failing; whether it got that far."""
    fresh(root)
    storage = FaultyStorage(LocalStorage(), call, root=root)
    storage.fail(at=call, code=code, sticky=sticky)
    drive = driver(root, storage, tolerant=True)
    try:
        pond_workload.run(drive)
        if not storage.failed:
            return False
        # The process ends; in every other run so does the power, and with it what a failed sync left behind.
        if call % 2:
            storage.power_cut(Variant.STRICT, call)
            drive.model.power_cut()
        else:
            storage.crash()
            drive.model.killed()
        check_and_go_on(root, drive.model, thorough=thorough)
    except BaseException as error:
        error.add_note(f"{errno.errorcode[code]} at call {call}: {storage.failed[:1]}, {sticky=}")
        raise
    finally:
        assert storage.disk is not None
        storage.disk.close()
    return True


def calls_of(root: Path) -> int:
    storage = FaultyStorage(LocalStorage(), root=root)
    pond_workload.run(driver(root, storage))
    assert storage.disk is not None
    storage.disk.close()
    return storage.calls


# The whole number of calls of the workload, in strides that share no factor with anything that repeats in it.
@pytest.mark.parametrize(
    ("code", "sticky", "stride"),
    [
        (errno.EIO, False, 13),
        (errno.EIO, True, 41),
        (errno.ENOSPC, False, 37),
        pytest.param(errno.EIO, False, 1, marks=pytest.mark.long),
        pytest.param(errno.EIO, True, 1, marks=pytest.mark.long),
        pytest.param(errno.ENOSPC, False, 1, marks=pytest.mark.long),
    ],
)
def test_an_error_at_a_call_loses_nothing_promised(root: Path, code: int, sticky: bool, stride: int) -> None:
    """I1, I2, I3: an error at call N, for every N of the workload; `make test` takes every so many."""
    count = calls_of(root)
    assert count > 400
    for call in range(1, count - 20, stride):  # towards the end, runs differ by a few calls
        assert run_with_error_at(root, call, code, sticky=sticky, thorough=stride == 1), call


def test_a_failing_archive_leaves_ingestion_alone(root: Path) -> None:
    """K7: a settle that fails raises and is shown in status; appends and reads go on; it works when the disk does."""
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.append(METERS, 10)
    storage.fail(path="/archive/", sticky=True)
    for _ in range(3):
        with pytest.raises(SettleFailed):
            drive.settle(METERS)
        drive.append(METERS, 5)
        drive.check(resolve=False)
    assert drive.pond.stream(METERS).status().settling.failures == 3
    storage.heal()
    drive.settle(METERS)
    assert drive.pond.stream(METERS).status().settling.failures == 0
    assert drive.pond.stream(METERS).status().rows_live == 0
    drive.check()
    drive.close()


def test_a_pond_opened_after_a_failed_sync_of_a_commit_does_not_build_on_it(root: Path) -> None:
    """I5: a commit whose sync failed is found by the next process, in the cache and marked there as written. Before
    the journal lets go of what it settled, it must really be on the disk."""
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.append(METERS, 10)
    drive.settle(METERS)
    drive.append(METERS, 10)
    storage.fail(kind="sync_file", path="_delta_log")
    storage.fail(kind="rewrite", path="_delta_log", sticky=True)  # the way around it fails too
    with pytest.raises(SettleFailed):
        drive.settle(METERS)
    drive.close()
    following = storage.restarted()
    again = driver(root, following, drive.model)
    again.open()
    again.check()
    again.append(METERS, 3)
    again.settle(METERS)
    following.power_cut(Variant.STRICT)
    again.abandon()
    drive.model.power_cut()
    check_and_go_on(root, drive.model)


def test_a_closed_journal_still_reads_and_settles_what_is_safe(root: Path) -> None:
    """I1: after a failed sync appends are refused; reads go on; a reopened pond takes appends again."""
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.append(METERS, 10)
    storage.fail(kind="sync", path="journal")
    for _ in range(2):
        with pytest.raises(JournalClosed):
            drive.append(METERS, 5)
        drive.check(resolve=False)
    assert drive.pond.status().log.refused
    with contextlib.suppress(MillpondError):
        drive.settle(METERS)
    drive.check(resolve=False)
    with contextlib.suppress(MillpondError):
        drive.close()
    storage.power_cut(Variant.STRICT)
    drive.model.power_cut()
    check_and_go_on(root, drive.model)


@pytest.mark.parametrize("room", [0, 500, 5_000, 40_000, 90_000])
def test_a_full_disk_refuses_appends_and_settling_makes_room(root: Path, room: int) -> None:
    """K10: appends fail with DiskFull and leave nothing; reads and settling go on; with room back, appends work."""
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.append(METERS, 30, form="batch", filling="x" * 1_000)
    storage.limit_room(room, under=str(root / "pond" / "journal"))
    refused = 0
    for n in range(12):
        try:
            drive.append(METERS, 10, form="batch" if n % 2 else "dicts", filling="y" * 1_000)
        except DiskFull:
            refused += 1
    assert refused
    drive.check(resolve=False)
    drive.settle(METERS)
    drive.check(resolve=False)
    assert drive.pond.stream(METERS).status().rows_live == 0
    storage.heal()
    for _ in range(3):
        drive.append(METERS, 10, form="batch", filling="z" * 1_000)
    drive.settle(METERS)
    drive.check()
    storage.power_cut(Variant.STRICT)
    with contextlib.suppress(MillpondError, Crash):
        drive.close()
    drive.model.power_cut()
    check_and_go_on(root, drive.model)


def test_a_disk_that_is_full_for_all_fails_settles_too_and_nothing_is_lost(root: Path) -> None:
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.append(METERS, 10)
    drive.settle(METERS)
    drive.append(METERS, 10)
    storage.limit_room(0, under=str(root))
    with pytest.raises(DiskFull):
        drive.append(METERS, 1)
    with pytest.raises((SettleFailed, DiskFull)):
        drive.settle(METERS)
    drive.check(resolve=False)
    storage.heal()
    drive.append(METERS, 1)
    drive.settle(METERS)
    drive.check()
    drive.close()


def test_a_pond_that_cannot_be_opened_is_not_left_locked(root: Path) -> None:
    """An error while opening gives the lock back, whatever else fails on the way out."""
    drive = driver(root, LocalStorage())
    drive.open()
    drive.create(METERS)
    drive.append(METERS, 3)
    drive.settle(METERS)
    drive.append(METERS, 3)
    drive.close()
    storage = FaultyStorage(LocalStorage())
    probe = driver(root, storage, drive.model)
    probe.open()
    calls = storage.calls
    probe.close()
    for call in range(1, calls + 1):
        failing = FaultyStorage(LocalStorage())
        failing.fail(at=call, sticky=True)
        trying = driver(root, failing, drive.model, tolerant=True)
        trying.open()
        trying.abandon()
        lock = LocalStorage().lock(str(root / "pond" / "lock"))
        lock.release()
    check_and_go_on(root, drive.model)
