"""C11: a pond killed or unplugged at every durable step of a truncation: done or not, and the pond works on."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.storage import LocalStorage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Variant
from millpond.testing.pond_driver import PondDriver
from tests.faults.pond_workload import METERS, NOTES, check_and_go_on, driver, fresh

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def prepare(drive: PondDriver) -> None:
    drive.open()
    drive.create(METERS, streamlets=3)
    drive.create(NOTES, durability="memory", settle=None)
    drive.append(METERS, 12, form="batch")
    drive.settle(METERS)
    drive.append(METERS, 3, producer="p", sequence=1)
    drive.append(METERS, 2, durability="memory")
    drive.append(NOTES, 4)


def work(drive: PondDriver) -> None:
    """Truncations of a stream that is archived and of one that is not, and what comes right behind them."""
    drive.truncate(METERS)
    drive.append(METERS, 2, producer="p", sequence=2)
    drive.truncate(NOTES)
    drive.append(NOTES, 1)
    drive.settle(METERS)
    drive.append(METERS, 1)
    drive.truncate(METERS)
    drive.append(METERS, 1, form="dict", durability="os")
    drive.close()
    drive.open()
    drive.check()


def steps_of(root: Path) -> range:
    """The durable steps of the work when nothing goes wrong."""
    storage = FaultyStorage(LocalStorage(), root=root)
    drive = driver(root, storage)
    try:
        prepare(drive)
        first = len(storage.durable_steps)
        work(drive)
        return range(first + 1, len(storage.durable_steps) + 1)
    finally:
        drive.abandon()
        assert storage.disk is not None
        storage.disk.close()


def crashed(root: Path, number: int, *, after: bool, variant: Variant | None) -> None:
    """Into a crash at a durable step, with or without a power cut, and what must hold then."""
    fresh(root)
    storage = FaultyStorage(LocalStorage(), number, root=root)
    storage.crash_at(number, after=after)
    drive = driver(root, storage)
    try:
        with contextlib.suppress(Crash, MillpondError):
            prepare(drive)
            work(drive)
    finally:
        drive.abandon()
    assert storage.crashed is not None, f"no durable step {number}"
    try:
        if variant is None:
            drive.model.killed()
        else:
            storage.power_cut(variant, number)
            drive.model.power_cut()
        check_and_go_on(root, drive.model, thorough=False)
    except BaseException as error:
        error.add_note(f"at durable step {number} ({storage.crashed}), {after=}, {variant=}")
        raise
    finally:
        assert storage.disk is not None
        storage.disk.close()


def test_a_kill_at_every_step_leaves_it_done_or_undone(root: Path) -> None:
    numbers = steps_of(root)
    assert len(numbers) > 30
    for number, after in zip(numbers, itertools.cycle((False, True)), strict=False):
        crashed(root, number, after=after, variant=None)


def test_a_power_cut_at_every_step_leaves_it_done_or_undone(root: Path) -> None:
    turns = itertools.cycle(VARIANTS)
    for number, after in zip(steps_of(root), itertools.cycle((True, False)), strict=False):
        crashed(root, number, after=after, variant=next(turns))


@pytest.mark.long
@pytest.mark.parametrize("variant", [None, *VARIANTS], ids=["killed", *(v.value for v in VARIANTS)])
def test_before_and_after_every_step_in_every_variant(root: Path, variant: Variant | None) -> None:
    for number, after in itertools.product(steps_of(root), (False, True)):
        crashed(root, number, after=after, variant=variant)
