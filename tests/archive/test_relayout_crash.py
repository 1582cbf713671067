"""A relayout that is killed at any step: exactly the old or the new objects of each unit, and the rest is done later.

Every durable step of a relayout of two days is crashed before it, or followed by a power cut; what is there afterwards
holds every row once, and another relayout finishes what was begun.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millpond.errors import MillpondError
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Step, Variant
from tests.archive.crash_points import crash_points
from tests.archive.laid_out import LAID_OUT, PLAIN, expected_days, planned, relaid, settle_days
from tests.archive.settled_stream import SettledStream, read_all

BOUNDARY = {0: 40, 1: 31}
AFTER = {0: 45, 1: 31}


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days in four objects, without a layout."""
    root = tmp_path_factory.mktemp("settled") / "root"
    root.mkdir()
    stream = SettledStream(root, PLAIN)
    settle_days(stream.archive, {0: 25, 1: 10})
    settle_days(stream.archive, BOUNDARY)
    return root


@pytest.fixture
def root(quick_path: Path) -> Path:
    return quick_path / "root"


def renew(root: Path, settled: Path) -> Path:
    for left in root.parent.glob(f"{root.name}*"):
        shutil.rmtree(left)
    shutil.copytree(settled, root)
    return root


def relay_all(root: Path, storage: Storage) -> None:
    stream = SettledStream(root, LAID_OUT, storage)
    for _ in relaid(stream):
        pass
    stream.archive.checkpoint()


def check_and_go_on(root: Path, storage: Storage | None = None) -> None:
    """Every row is there once, whatever has come of the relayout; the rest of it is done, and settling goes on."""
    stream = SettledStream(root, LAID_OUT, storage)
    assert stream.boundary == BOUNDARY
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))
    assert DeltaTable(stream.root).to_pyarrow_table().num_rows == 71
    assert not [finding for finding in stream.archive.verify() if finding.severity == "error"]
    for _ in relaid(stream):
        pass
    assert planned(stream.archive) == []
    settle_days(stream.archive, AFTER)
    assert read_all(stream.reopen()).equals(expected_days(AFTER))
    assert not [finding for finding in stream.archive.verify() if finding.severity == "error"]


def clean_steps(root: Path) -> list[Step]:
    storage = FaultyStorage(LocalStorage(), root=root)
    relay_all(root, storage)
    assert storage.disk is not None
    storage.disk.close()
    return storage.steps


def crashed(root: Path, number: int, *, after: bool, seed: int = 0) -> FaultyStorage:
    storage = FaultyStorage(LocalStorage(), seed, root=root)
    storage.crash_at(number, after=after)
    with pytest.raises(Crash):
        relay_all(root, storage)
    assert storage.crashed is not None
    return storage


def kill_everywhere(root: Path, settled: Path, *, each: bool) -> None:
    hit = set()
    for number, after in crash_points(clean_steps(renew(root, settled)), each=each):
        storage = crashed(renew(root, settled), number, after=after)
        check_and_go_on(root, storage.restarted())
        hit.add(str(storage.crashed).split(" ")[0])
    assert {"sync", "sync_directory", "sync_file", "rename"} <= hit


def cut_power_everywhere(root: Path, settled: Path, *, each: bool) -> None:
    variants = itertools.cycle(VARIANTS)
    for number, after in crash_points(clean_steps(renew(root, settled)), each=each):
        for variant in itertools.islice(variants, len(VARIANTS) if each else 1):
            crashed(renew(root, settled), number, after=after, seed=number).power_cut(variant, seed=number)
            check_and_go_on(root)


def test_killed_at_any_step_no_row_is_lost_or_doubled_and_the_rest_is_done_later(root: Path, settled: Path) -> None:
    kill_everywhere(root, settled, each=False)


def test_a_power_cut_at_any_step_neither(root: Path, settled: Path) -> None:
    cut_power_everywhere(root, settled, each=False)


def test_an_error_in_any_call_neither(root: Path, settled: Path) -> None:
    total = len(clean_steps(renew(root, settled)))
    for number in range(1, total + 1, 7):
        storage = FaultyStorage(LocalStorage(), number, root=renew(root, settled))
        storage.fail(at=number)
        with contextlib.suppress(OSError, MillpondError):
            relay_all(root, storage)
        storage.power_cut(Variant.STRICT if number % 2 else Variant.GARBAGE, number)
        check_and_go_on(root)


@pytest.mark.long
def test_killed_at_each_single_step(root: Path, settled: Path) -> None:
    kill_everywhere(root, settled, each=True)


@pytest.mark.long
def test_every_power_cut_at_each_single_step(root: Path, settled: Path) -> None:
    cut_power_everywhere(root, settled, each=True)
