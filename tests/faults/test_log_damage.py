"""Bytes of the journal that are not what was written: a torn tail is cut and kept, the rest is refused (I1, C5)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import Damaged
from millpond.log.embedded import frame as frames
from millpond.log.embedded.journal_file import FILE_HEADER_BYTES, scan
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage
from millpond.testing.pond_model import Fate
from tests.faults.log_workload import ALARMS, METERS, LogWorkload, Recorder, check, open_log

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def root(quick_path: Path) -> Path:
    path = quick_path / "root"
    (path / "pond").mkdir(parents=True)
    return path


def fill(root: Path, *, clean: bool) -> Recorder:
    """A journal of a few files; not `clean`: the process was killed behind its last append."""
    storage = FaultyStorage(LocalStorage(), root=root)
    work = LogWorkload(root / "pond", storage, Recorder())
    work.log = open_log(root / "pond", storage, work.recorder)
    for n in range(3):
        work.append(METERS, {0: 30, 1: 5}, filling=1_000)
        work.append(METERS, {n: 1}, encoded=True, producer="p", sequence=n)
        work.append(ALARMS, {0: 2})
        work.append(METERS, {0: 30}, filling=1_000, durability="os")
    work.append(METERS, {0: 1, 1: 2, 2: 1}, producer="last", sequence=1)
    if clean:
        work.log.close()
    else:
        storage.crash()
        with contextlib.suppress(Crash):
            work.log.close()
    assert storage.disk is not None
    storage.disk.close()
    return work.recorder


def journals(root: Path) -> list[Path]:
    return sorted((root / "pond" / "journal").glob("*.journal"))


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    copy = root.parent / "copy"
    shutil.copytree(root, copy)
    yield copy
    shutil.rmtree(copy)


def last_group(path: Path) -> tuple[int, int]:
    """Where the last group of a journal file begins, and how many frames it has."""
    data = path.read_bytes()
    number = int(path.name.split(".")[0])
    found = scan(memoryview(data), str(path), number, bytes(16), last=True).frames
    begin, count = found[-1].position, 1
    while not found[-count - 1].flags & frames.LAST_OF_GROUP:
        count += 1
        begin = found[-count].position
    return begin, count


def test_a_tail_torn_at_every_byte_is_cut_and_kept(root: Path) -> None:
    """I1, C5: the last group is there whole or not at all; everything before it is there; the rest is kept aside."""
    recorder = fill(root, clean=False)
    path = journals(root)[-1]
    begin, count = last_group(path)
    assert count == 3, "the last append has three frames"
    size = path.stat().st_size
    for cut in range(begin, size + 1):
        with copied(root) as copy:
            torn = journals(copy)[-1]
            os.truncate(torn, cut)
            attempt = recorder.attempts[-1]
            attempt.fate, attempt.ranges = Fate.UNKNOWN, {}
            log = open_log(copy / "pond", LocalStorage(), recorder)
            check(log, recorder)
            whole = cut >= size - 7  # the zeros behind a payload are not needed
            if cut == size:
                assert attempt.fate is Fate.PROMISED
            elif not whole:
                assert attempt.fate is Fate.LOST
            assert bool(log.status().warnings) == (begin < cut and attempt.fate is Fate.LOST)
            kept = list((copy / "pond" / "journal").glob("*.torn*"))
            assert sum(p.stat().st_size for p in kept) == (cut - begin if attempt.fate is Fate.LOST else 0)
            # A retry of what was cut is a new append; of what was kept, a duplicate.
            work = LogWorkload(copy / "pond", LocalStorage(), recorder)
            work.log = log
            work.send(attempt)
            check(log, recorder)
            log.close()
            again = open_log(copy / "pond", LocalStorage(), recorder)
            check(again, recorder)
            again.close()


def test_a_write_torn_at_every_byte_leaves_all_or_nothing(root: Path) -> None:
    """I1: as above, torn by a crash in the middle of the write instead of afterwards."""
    fill(root, clean=True)
    shutil.rmtree(root / "pond")
    (root / "pond").mkdir()
    storage = FaultyStorage(LocalStorage(), root=root)
    work = LogWorkload(root / "pond", storage, Recorder())
    work.log = open_log(root / "pond", storage, work.recorder)
    work.append(METERS, {0: 1})
    size = os.path.getsize(journals(root)[-1])
    steps = len(storage.durable_steps)
    work.append(METERS, {0: 2, 1: 1})
    length = os.path.getsize(journals(root)[-1]) - size
    work.log.close()
    for tear in range(0, length + 1, 3):
        shutil.rmtree(root / "pond")
        (root / "pond").mkdir()
        storage = FaultyStorage(LocalStorage(), root=root)
        recorder = Recorder()
        work = LogWorkload(root / "pond", storage, recorder)
        work.log = open_log(root / "pond", storage, recorder)
        work.append(METERS, {0: 1})
        storage.crash_at(steps + 1, tear_bytes=tear)
        with pytest.raises(Crash):
            work.append(METERS, {0: 2, 1: 1})
        with contextlib.suppress(Crash):
            work.log.close()
        log = open_log(root / "pond", LocalStorage(), recorder)
        check(log, recorder)
        log.close()
        assert storage.disk is not None
        storage.disk.close()


def flip(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def check_flips(root: Path, recorder: Recorder, flips: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Flip each (file, position, bit) of a copy: the journal is refused, or everything is there unharmed."""
    refused = unharmed = 0
    with copied(root) as copy:
        files = journals(copy)
        for index, position, bit in flips:
            flip(files[index], position, bit)
            log = None
            try:
                log = open_log(copy / "pond", LocalStorage(), recorder)
                check(log, recorder)
                unharmed += 1
            except Damaged as error:
                refused += 1
                if files[index].name not in error.message or not error.hint:
                    raise AssertionError("the error does not name the file, or not what to do") from error
            finally:
                if log is not None:
                    log.close()
            # Opening may have added an end mark, or cut one: start from the same bytes each time.
            shutil.rmtree(copy)
            shutil.copytree(root, copy)
    return refused, unharmed


def sample(root: Path, count: int, seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    files = journals(root)
    flips = []
    for _ in range(count):
        index = rng.randrange(len(files))
        flips.append((index, rng.randrange(files[index].stat().st_size), rng.randrange(8)))
    return flips


def test_a_flipped_bit_is_detected_and_never_served(root: Path) -> None:
    """I1: all of the headers of a file and of its first frames, its end mark, and bytes drawn from everywhere."""
    recorder = fill(root, clean=True)
    size = journals(root)[0].stat().st_size
    front = [(0, position, position % 8) for position in range(0, FILE_HEADER_BYTES + 2 * frames.HEADER_BYTES)]
    end = [(0, position, position % 8) for position in range(size - frames.HEADER_BYTES, size)]
    refused, _ = check_flips(root, recorder, front + end)
    assert refused >= len(front + end) * 0.8
    refused, unharmed = check_flips(root, recorder, sample(root, 150, seed=1))
    # Only the zeros between frames, and what an end mark does not need, may change without harm.
    assert refused > 140, (refused, unharmed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_flipped_bits_everywhere(root: Path, seed: int) -> None:
    """I1"""
    recorder = fill(root, clean=True)
    check_flips(root, recorder, sample(root, 2_000, seed))


def test_a_bit_flipped_while_the_log_is_open_is_not_served(root: Path) -> None:
    """A page read back from the disk later is checked again."""
    recorder = fill(root, clean=True)
    path = journals(root)[0]
    storage = FaultyStorage(LocalStorage(), root=root)
    log = open_log(root / "pond", storage, recorder)
    flip(path, 20_000, 3)
    with pytest.raises(Damaged, match=path.name):
        check(log, recorder)
    flip(path, 20_000, 3)
    check(log, recorder)
    log.close()


def test_a_missing_file_is_noticed(root: Path) -> None:
    recorder = fill(root, clean=True)
    for index in range(len(journals(root)) - 1):
        with copied(root) as copy:
            journals(copy)[index].unlink()
            with pytest.raises(Damaged):
                open_log(copy / "pond", LocalStorage(), recorder)
