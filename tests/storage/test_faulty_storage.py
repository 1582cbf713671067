"""The faults that proofs are built on, each shown to be what it says."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from millpond.storage import LocalStorage, Storage
from millpond.testing import Crash, FaultyStorage


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(), root=tmp_path)


def workload(storage: Storage, root: Path) -> None:
    """A little of everything."""
    storage.put(str(root / "d" / "file-17"), b"content")
    storage.replace(str(root / "d" / "state"), b"one")
    log = storage.create_append(str(root / "d" / "log"))
    log.write([b"abc", b"def"])
    log.sync()
    log.truncate(3)
    log.close()
    storage.sync_directory(str(root / "d"))
    storage.remove(str(root / "d" / "file-17"))
    storage.remove_tree(str(root / "d"))


DURABLE = [
    "add_directory d",
    "sync_directory ",
    "create d/file-#",
    "write d/file-#",
    "sync d/file-#",
    "create d/state.#.tmp",
    "write d/state.#.tmp",
    "sync d/state.#.tmp",
    "rename d/state",
    "sync_directory d",
    "create d/log",
    "write d/log",
    "sync d/log",
    "truncate d/log",
    "sync_directory d",
    "remove d/file-#",
    "remove d/log",
    "remove d/state",
    "remove_directory d",
]


def test_every_step_is_named_and_counted(storage: FaultyStorage, tmp_path: Path) -> None:
    workload(storage, tmp_path)
    assert [str(step) for step in storage.durable_steps] == DURABLE
    assert [step.number for step in storage.steps] == list(range(1, storage.calls + 1))
    assert [step.durable_number for step in storage.durable_steps] == list(range(1, len(DURABLE) + 1))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, len(DURABLE) + 1))
def test_a_crash_happens_before_or_after_the_step(tmp_path: Path, number: int, after: bool) -> None:
    def tree() -> dict[str, bytes | None]:
        return {str(p.relative_to(tmp_path)): None if p.is_dir() else p.read_bytes() for p in tmp_path.rglob("*")}

    storage = FaultyStorage(LocalStorage(), root=tmp_path)
    storage.crash_at(number, after=after)
    with pytest.raises(Crash):
        workload(storage, tmp_path)
    assert str(storage.crashed) == DURABLE[number - 1]
    left = tree()
    for call in (
        lambda: storage.read(str(tmp_path / "d")),
        lambda: storage.list(str(tmp_path)),
        lambda: storage.exists(str(tmp_path)),
        lambda: storage.put(str(tmp_path / "late"), b""),
        lambda: storage.lock(str(tmp_path / "lock")),
    ):
        with pytest.raises(Crash):
            call()
    assert tree() == left, "a dead process changed the disk"
    kind, _, name = DURABLE[number - 1].partition(" ")
    if kind == "create" and name in ("d/log", "d/file-#"):
        assert (tmp_path / name.replace("#", "17")).exists() == after
    if kind == "write" and name == "d/log":
        assert (tmp_path / "d/log").read_bytes() == (b"abcdef" if after else b"")


def test_a_write_is_torn_at_a_byte(storage: FaultyStorage, tmp_path: Path) -> None:
    file = storage.create_append(str(tmp_path / "log"))
    file.write([b"whole"])
    storage.crash_at(3, tear_bytes=4)
    with pytest.raises(Crash):
        file.write([b"ab", b"cdef"])
    assert (tmp_path / "log").read_bytes() == b"wholeabcd"
    file.close()


def test_a_crash_gives_locks_back_and_closes_files(storage: FaultyStorage, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    storage.lock(str(tmp_path / "lock"))
    storage.create_append(str(tmp_path / "log"))
    with pytest.raises(BlockingIOError):
        LocalStorage().lock(str(tmp_path / "lock"))
    storage.crash()
    LocalStorage().lock(str(tmp_path / "lock")).release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_crash_is_not_an_exception_that_code_could_handle() -> None:
    assert not issubclass(Crash, Exception)


def test_the_nth_call_fails_once(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.fail(at=2)
    path = str(tmp_path / "file")
    file = storage.create_append(path)
    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert [str(step) for step in storage.failed] == ["sync file"]


def test_failures_are_chosen_by_kind_and_path_and_may_stay(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.fail(kind="read", path="bad", sticky=True, code=errno.EACCES)
    for name in ("good", "bad"):
        storage.put(str(tmp_path / name), b"x")
    assert storage.read(str(tmp_path / "good")) == b"x"
    for _ in range(3):
        with pytest.raises(PermissionError):
            storage.read(str(tmp_path / "bad"))
    assert storage.size(str(tmp_path / "bad")) == 1
    storage.heal()
    assert storage.read(str(tmp_path / "bad")) == b"x"


def test_a_failed_write_leaves_part_of_its_bytes_beyond_the_position(tmp_path: Path) -> None:
    lengths = set()
    for seed in range(20):
        storage = FaultyStorage(LocalStorage(), seed)
        path = tmp_path / f"log-{seed}"
        file = storage.create_append(str(path))
        file.write([b"before"])
        storage.fail(kind="write")
        with pytest.raises(OSError, match="Input/output"):
            file.write([b"0123456789"])
        assert file.position == 6
        left = path.read_bytes()
        assert left.startswith(b"before")
        assert b"0123456789".startswith(left[6:])
        lengths.add(len(left) - 6)
        file.write([b"after"])
        assert path.read_bytes()[:11] == b"beforeafter"
        file.close()
    assert len(lengths) > 5


def test_room_runs_out_and_comes_back(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.put(str(tmp_path / "old"), b"12345")
    storage.limit_room(8, under=str(tmp_path))
    assert storage.free_bytes(str(tmp_path)) == 8
    file = storage.create_append(str(tmp_path / "log"))
    file.write([b"1234"])
    with pytest.raises(OSError, match="No space") as caught:
        file.write([b"567890"])
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "log").read_bytes() == b"12345678", "what fits is written"
    assert file.position == 4
    with pytest.raises(OSError, match="No space"):
        storage.put(str(tmp_path / "new"), b"")
    assert storage.read(str(tmp_path / "old")) == b"12345"
    file.truncate(4)
    storage.remove(str(tmp_path / "old"))
    assert storage.free_bytes(str(tmp_path)) == 9
    file.write([b"567890"])
    storage.heal()
    file.write([b"x" * 100])
    assert storage.free_bytes(str(tmp_path)) > 1_000
    file.close()


def test_room_is_limited_only_under_a_path(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.limit_room(0, under=str(tmp_path / "journal"))
    storage.put(str(tmp_path / "elsewhere"), b"x")
    with pytest.raises(OSError, match="No space"):
        storage.make_directory(str(tmp_path / "journal"))


def test_a_bit_is_flipped_in_what_is_read_and_not_on_disk(storage: FaultyStorage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    storage.put(path, bytes(10))
    storage.flip_when_read("file$", 4, bit=3)
    assert storage.read(path) == bytes(4) + b"\x08" + bytes(5)
    assert storage.read(path, 4, 1) == b"\x08"
    assert storage.read(path, 5) == bytes(5)
    assert bytes(storage.map(path)) == bytes(4) + b"\x08" + bytes(5)
    assert Path(path).read_bytes() == bytes(10)
    storage.heal()
    assert storage.read(path) == bytes(10)
    assert bytes(storage.map(path)) == bytes(10)


def test_syncs_can_be_slow(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.sync_latency_seconds = 0.02
    start = time.monotonic()
    storage.put(str(tmp_path / "file"), b"")
    storage.sync_directory(str(tmp_path))
    assert time.monotonic() - start >= 0.04


def test_threads_take_one_step_at_a_time_and_all_die(storage: FaultyStorage, tmp_path: Path) -> None:
    storage.crash_at(150)
    died = []

    def work(number: int) -> None:
        try:
            for n in range(100):
                storage.put(str(tmp_path / f"{number}-{n}"), b"x")
        except Crash as crash:
            died.append(crash)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(died) == 4
    assert len(storage.durable_steps) == 150
