"""A whole pond, killed and unplugged at every step of a fixed workload (I1, I2, I3, I5, B1, K7).

The workload takes some 300 durable steps of 80 kinds. `make fault` interrupts it before and after each of them, and
cuts the power at each in every variant; `make test` does so at the last step of each kind, before and after it in turn.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from millpond.storage import LocalStorage
from millpond.testing import VARIANTS, FaultyStorage, Step, Variant
from tests.faults import pond_workload
from tests.faults.pond_workload import check_and_go_on, crash, driver, fresh

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def clean_run(root: Path) -> list[Step]:
    """The durable steps of the workload when nothing goes wrong."""
    fresh(root)
    storage = FaultyStorage(LocalStorage(), root=root)
    pond_workload.run(driver(root, storage))
    assert storage.disk is not None
    storage.disk.close()
    return storage.durable_steps


def points(root: Path, *, every: bool) -> list[tuple[Step, bool]]:
    """Where to interrupt: before (False) and after (True) all durable steps, or the last one of each kind, in turn."""
    steps = clean_run(root)
    if every:
        return [(step, after) for step in steps for after in (False, True)]
    last = sorted({str(step): step for step in steps}.values(), key=lambda step: step.number)
    return list(zip(last, itertools.cycle((False, True)), strict=False))


def commit_points(root: Path) -> list[tuple[Step, bool]]:
    """Between a commit and what makes it durable."""
    return [
        (step, False)
        for step in clean_run(root)
        if step.kind in ("sync_file", "sync_directory") and "meters-#/_delta_log" in step.place
    ]


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "every"])


@EVERY
def test_a_kill_at_a_step_loses_nothing(root: Path, every: bool) -> None:
    """I1, I2, I3: killed before and after the step; no record lost, none doubled, offsets dense, the pond works on."""
    hit = set()
    planned = points(root, every=every)
    for step, after in planned:
        storage, model = crash(root, step.durable_number, after=after)
        hit.add(str(storage.crashed))
        model.killed()
        check_and_go_on(root, model, thorough=every)
        assert storage.disk is not None
        storage.disk.close()
    missed = {str(step) for step, _ in planned} - hit
    assert not missed, f"kinds of steps at which no run died: {missed}"


def cut_at(root: Path, number: int, after: bool, variant: Variant, seed: int) -> None:
    storage, model = crash(root, number, after=after, seed=seed)
    storage.power_cut(variant, seed)
    model.power_cut()
    try:
        check_and_go_on(root, model, thorough=False)
    except BaseException as error:
        error.add_note(f"power cut at durable step {number} ({storage.crashed}), {after=}, {variant=}, {seed=}")
        raise
    assert storage.disk is not None
    storage.disk.close()


def test_a_power_cut_at_some_steps_loses_nothing_promised(root: Path) -> None:
    """I1, I5: what was acknowledged at `disk` is there, once; the archive's files too, whoever wrote them."""
    turns = itertools.cycle(VARIANTS)
    for step, after in points(root, every=False):
        cut_at(root, step.durable_number, not after, next(turns), seed=step.number)


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS, ids=[v.value for v in VARIANTS])
def test_a_power_cut_at_every_step_in_every_variant(root: Path, variant: Variant) -> None:
    """I1, I5"""
    for step, after in points(root, every=True):
        cut_at(root, step.durable_number, after, variant, seed=step.number)


@EVERY
def test_what_the_next_process_shows_survives_a_power_cut(root: Path, every: bool) -> None:
    """E7: a killed process leaves bytes that only the system's cache has; the next one must not build on them."""
    turns = itertools.cycle((True, False))
    runs = [(step, after, next(turns)) for step, after in points(root, every=every)]
    runs += [(step, after, works) for step, after in commit_points(root) for works in (False, True)]
    # The next process only looks, or goes on working.
    for step, after, works in runs:
        storage, model = crash(root, step.durable_number, after=after)
        model.killed()
        following = storage.restarted()
        drive = driver(root, following, model)
        drive.open()
        drive.check()
        if works:
            for name in list(model.streams):
                drive.append(name, 2, durability="disk")
                drive.settle(name)
        following.power_cut(Variant.STRICT)
        drive.abandon()
        model.power_cut()
        try:
            check_and_go_on(root, model, thorough=every)
        except BaseException as error:
            error.add_note(f"killed at durable step {step.durable_number} ({step}), {after=}, {works=}, then cut")
            raise
        assert storage.disk is not None
        storage.disk.close()
