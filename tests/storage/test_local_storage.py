"""What the local byte layer owes: whole writes, real syncs, atomic replacement, and one holder of a lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.storage import LocalStorage

TRY_TO_LOCK = """
import sys
from millpond.storage import LocalStorage
try:
    LocalStorage().lock(sys.argv[1])
except BlockingIOError:
    print("refused")
else:
    print("taken")
"""


def lock_in_another_process(path: Path) -> str:
    run = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, str(path)], capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture
def storage() -> LocalStorage:
    return LocalStorage()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were really synced, in order."""
    seen: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def spy(descriptor: int, real=real) -> None:
            seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, name, spy)
    return seen


def test_append_writes_all_buffers_in_order_and_counts_them(storage: LocalStorage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = storage.create_append(path)
    # More buffers than one system call takes.
    pieces = [bytes([n % 251]) * (n % 7) for n in range(3_000)]
    assert file.write(pieces) == sum(map(len, pieces))
    assert file.position == os.path.getsize(path)
    file.close()
    assert storage.read(path) == b"".join(pieces)


def test_append_goes_on_where_the_file_ends(storage: LocalStorage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    storage.put(path, b"one")
    file = storage.open_append(path)
    assert file.position == 3
    file.write([b"two", bytearray(b"three"), memoryview(b"four")])
    file.truncate(6)
    file.write([b"!"])
    file.close()
    file.close()
    assert storage.read(path) == b"onetwo!"
    assert storage.read(path, 3, 3) == b"two"
    assert storage.read(path, 5) == b"o!"
    assert storage.size(path) == 7


def test_writes_larger_than_one_system_call_arrive_whole(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda d, buffers, at: real(d, [b"".join(buffers)[:5]], at))
    path = str(tmp_path / "file")
    file = storage.create_append(path)
    file.write([b"0123", b"4567", b"89"])
    file.write([b"ab"])
    file.close()
    assert storage.read(path) == b"0123456789ab"


class Writes:
    """`os.pwritev`, watched, and failing where the test says: at its n-th call, with an errno, or short."""

    def __init__(self, *errors: int, short: int | None = None) -> None:
        self.errors, self.short = list(errors), short
        self.flags: list[int] = []
        self._real = os.pwritev

    def __call__(self, descriptor: int, buffers: list[bytes], at: int, flags: int = 0) -> int:
        self.flags.append(flags)
        if self.errors and (error := self.errors.pop(0)):
            raise OSError(error, os.strerror(error))
        if self.short is not None:
            buffers, self.short = [b"".join(buffers)[: self.short]], None
        return self._real(descriptor, buffers, at, flags)


def written_synced(storage: LocalStorage, path: Path, pieces: list[bytes]) -> bytes:
    file = storage.create_append(str(path))
    try:
        file.write_synced([b"before"])
        assert file.write_synced(pieces) == sum(map(len, pieces))
        assert file.position == os.path.getsize(path)
    finally:
        file.close()
    return storage.read(str(path)).removeprefix(b"before")


def test_a_synced_write_is_one_call(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[str]
) -> None:
    writes = Writes()
    monkeypatch.setattr(os, "pwritev", writes)
    assert written_synced(storage, tmp_path / "file", [b"one", b"two"]) == b"onetwo"
    assert writes.flags == [os.RWF_DSYNC] * 2
    assert syncs == []


@pytest.mark.parametrize("writes", [Writes(0, errno.ENOSPC), Writes(0, errno.EOPNOTSUPP)])
def test_a_synced_write_that_fails_for_want_of_room_is_made_again_in_two_steps(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[str], writes: Writes
) -> None:
    """It may have been the sync that failed: the bytes are written again, then synced, never just synced again."""
    monkeypatch.setattr(os, "pwritev", writes)
    assert written_synced(storage, tmp_path / "file", [b"one", b"two"]) == b"onetwo"
    assert writes.flags == [os.RWF_DSYNC, os.RWF_DSYNC, 0]
    assert syncs == [str(tmp_path / "file")]


def test_a_synced_write_that_was_cut_short_arrives_whole(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[str]
) -> None:
    monkeypatch.setattr(os, "pwritev", Writes(short=3))
    assert written_synced(storage, tmp_path / "file", [b"one", b"two" * 3_000]) == b"one" + b"two" * 3_000
    assert syncs == [str(tmp_path / "file")]


@pytest.mark.parametrize(
    ("writes", "sync_error", "told"),
    [
        (Writes(0, errno.ENOSPC, errno.ENOSPC), 0, errno.ENOSPC),  # the disk is full, and nothing was written
        (Writes(0, errno.EIO), 0, errno.EIO),
        (Writes(0, errno.ENOSPC), errno.ENOSPC, errno.EIO),  # a sync that fails is never just a full disk
    ],
)
def test_a_synced_write_tells_a_full_disk_from_a_failed_sync(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes, sync_error: int, told: int
) -> None:
    def sync(descriptor: int) -> None:
        del descriptor
        raise OSError(sync_error, os.strerror(sync_error))

    monkeypatch.setattr(os, "pwritev", writes)
    if sync_error:
        monkeypatch.setattr(os, "fdatasync", sync)
    with pytest.raises(OSError) as failed:  # noqa: PT011
        written_synced(storage, tmp_path / "file", [b"one"])
    assert failed.value.errno == told


def test_a_new_file_may_not_exist(storage: LocalStorage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    storage.put(path, b"first")
    with pytest.raises(FileExistsError):
        storage.create_append(path)
    with pytest.raises(FileExistsError):
        storage.put(path, b"second")
    assert storage.read(path) == b"first"


def test_put_syncs_the_file_and_every_new_directory_entry(
    storage: LocalStorage, tmp_path: Path, syncs: list[str]
) -> None:
    storage.put(str(tmp_path / "a" / "b" / "file"), b"x")
    assert syncs == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b" / "file")]
    syncs.clear()
    storage.put(str(tmp_path / "a" / "b" / "other"), b"x", sync=False)
    assert syncs == []


def test_a_directory_that_is_found_has_its_entry_synced_once(
    storage: LocalStorage, tmp_path: Path, syncs: list[str]
) -> None:
    """Whoever made it may have been killed before its name was safe."""
    storage.make_directory(str(tmp_path / "pond"))
    (tmp_path / "pond" / "a" / "b").mkdir(parents=True)
    syncs.clear()
    storage.make_directory(str(tmp_path / "pond" / "a" / "b"))
    storage.make_directory(str(tmp_path / "pond" / "a" / "b"))
    assert syncs == [str(tmp_path / "pond"), str(tmp_path / "pond" / "a")]
    storage.remove_tree(str(tmp_path / "pond" / "a"))
    syncs.clear()
    storage.make_directory(str(tmp_path / "pond" / "a" / "b"))
    assert syncs == [str(tmp_path / "pond"), str(tmp_path / "pond" / "a")]


def test_replace_is_whole_durable_and_leaves_nothing_beside(
    storage: LocalStorage, tmp_path: Path, syncs: list[str]
) -> None:
    path = str(tmp_path / "file")
    storage.replace(path, b"old")
    before = os.stat(path).st_ino
    storage.replace(path, b"new")
    assert storage.read(path) == b"new"
    assert os.stat(path).st_ino != before, "written in place: a crash could leave a mixture"
    assert storage.list(str(tmp_path)) == ["file"]
    assert syncs[-1] == str(tmp_path)
    assert syncs[-2].startswith(path)


def test_a_map_outlives_its_file(storage: LocalStorage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    storage.put(path, b"content")
    mapped = storage.map(path)
    storage.remove(path)
    assert not storage.exists(path)
    assert bytes(mapped) == b"content"
    mapped.close()


def test_lists_are_sorted_and_empty_without_a_directory(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        storage.put(str(tmp_path / "d" / name), b"")
    assert storage.list(str(tmp_path / "d")) == ["a", "b", "c"]
    assert storage.list(str(tmp_path / "none")) == []


def test_remove_tree_takes_everything_and_nothing_else(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put(str(tmp_path / "gone" / "x" / "y"), b"")
    storage.put(str(tmp_path / "gone" / "z"), b"")
    storage.put(str(tmp_path / "stays"), b"")
    storage.remove_tree(str(tmp_path / "gone"))
    storage.remove_tree(str(tmp_path / "gone"))
    assert storage.list(str(tmp_path)) == ["stays"]


def test_files_of_others_can_be_synced(storage: LocalStorage, tmp_path: Path, syncs: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    storage.sync_file(str(tmp_path / "file"))
    storage.sync_directory(str(tmp_path))
    assert syncs == [str(tmp_path / "file"), str(tmp_path)]


@pytest.mark.parametrize("start", [0, 1, 1_048_576, 3_000_000])
def test_rewriting_leaves_the_bytes_and_syncs_them(
    storage: LocalStorage, tmp_path: Path, syncs: list[str], start: int
) -> None:
    path = tmp_path / "file"
    content = bytes(n % 251 for n in range(3_000)) * 1_000
    path.write_bytes(content)
    storage.rewrite(str(path), start)
    assert path.read_bytes() == content
    assert syncs == [str(path)]


def test_free_bytes_are_those_of_the_disk(storage: LocalStorage, tmp_path: Path) -> None:
    assert storage.free_bytes(str(tmp_path)) > 0


def test_a_lock_keeps_out_this_process_and_others_until_released(storage: LocalStorage, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = storage.lock(str(path))
    with pytest.raises(BlockingIOError):
        storage.lock(str(path))
    assert lock_in_another_process(path) == "refused"
    held.release()
    held.release()
    assert lock_in_another_process(path) == "taken"
    storage.lock(str(path)).release()
