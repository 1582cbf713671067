"""A flipped bit anywhere in a pond: journal, spill file, object, index entry, Delta log, `pond.json`.

It is detected (an error that says which file, and what to do), or it lies where nothing is read from; it is never
served. What the index lost is read from the objects themselves.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from millpond.errors import Damaged, MillpondError
from millpond.storage import LocalStorage
from millpond.testing.pond_driver import PondDriver
from millpond.testing.pond_model import PondModel
from tests.faults.pond_workload import ALARMS, METERS, driver, fresh

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def root(quick_path: Path) -> Path:
    fresh(quick_path / "root")
    return quick_path / "root"


def fill(root: Path) -> PondModel:
    """A pond with a bit of everything, closed cleanly."""
    drive = driver(root, LocalStorage())
    drive.open()
    drive.create(METERS, streamlets=2)
    drive.create(ALARMS)
    for n in range(4):
        drive.append(METERS, 20, form="batch", filling="x" * 200)
        drive.append(ALARMS, 3, producer="p", sequence=n)
        drive.settle(METERS)
        if n == 1:
            drive.compact(METERS)
            drive.checkpoint(METERS)
    drive.append(METERS, 15, form="batch", filling="y" * 200)
    drive.append(METERS, 1, form="dict")
    drive.check()
    drive.close()
    return drive.model


KINDS = {
    "journal": "journal/*.journal",
    "objects": "archive/*/g*/*/*.parquet",
    "index": "archive/*/_index/*",
    "commits": "archive/*/_delta_log/*.json",
    "checkpoint": "archive/*/_delta_log/*checkpoint*",
    "pond.json": "pond.json",
}


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def outcome(root: Path, model: PondModel) -> str:
    """How a pond with a flipped bit answers; an error of the model goes through."""
    drive = driver(root, LocalStorage(), model)
    try:
        drive.open()
        drive.check()
        findings = [f for name in (METERS, ALARMS) for f in drive.pond.stream(name).archive.verify()]
        return "found by verify" if findings else "unharmed"
    except MillpondError as error:
        if not error.hint:
            raise AssertionError("an error without a hint") from error
        return type(error).__name__
    finally:
        drive.abandon()


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_flipped_bit_is_detected_and_never_served(root: Path, kind: str, count: int) -> None:
    """I1, I4, I5"""
    model = fill(root)
    rng = random.Random(f"{kind}/{count}")
    outcomes: Counter[str] = Counter()
    copy = root.parent / "copy"
    for _ in range(count):
        shutil.copytree(root, copy)
        path = rng.choice(sorted((copy / "pond").glob(KINDS[kind])))
        position, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip(path, position, bit)
        try:
            outcomes[outcome(copy, model)] += 1
        except BaseException as error:
            error.add_note(f"bit {bit} of byte {position} of {path.relative_to(copy)}")
            raise
        shutil.rmtree(copy)
    if kind == "journal":
        assert outcomes["Damaged"] > 0.9 * count, outcomes
    if kind == "objects":
        # Those that were merged away are still there for older versions, and no query of now reads them.
        assert outcomes["Damaged"] > 0.4 * count, outcomes
    if kind in ("index", "commits"):
        assert outcomes.total() - outcomes["unharmed"] > 0.4 * count, outcomes


def test_a_damaged_spill_file_is_not_served_and_made_anew_by_a_reopen(root: Path) -> None:
    """K4: a spill file is memory, not a record: the journal has what it holds."""
    drive = PondDriver(root / "pond", LocalStorage(), segment_bytes=64_000)
    drive.open()
    drive.create(METERS, memory="64KB", settle=None)
    deadline = time.monotonic() + 60
    while not (files := list((root / "pond" / "spill").glob("grid.meters-*/*.arrow"))):
        assert time.monotonic() < deadline, "nothing was spilled"
        for _ in range(200):
            drive.append(METERS, 1, form="dict", durability="os", filling="x" * 100)
        drive.pond.log.tend()
    drive.check(resolve=False)
    # Not in the padding of the file, which nobody reads.
    flip(files[0], files[0].stat().st_size // 2, 0)
    with pytest.raises(Damaged, match=r"\.arrow"):
        drive.check(resolve=False)
    drive.close()
    drive.open()
    drive.check()
    drive.close()
