"""What survives a power cut: what was synced, with its name synced, and of the rest any part. The rules one by one."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from millpond.storage import LocalStorage
from millpond.testing import VARIANTS, Crash, DurableDisk, FaultyStorage, Variant
from millpond.testing.power_cut import surviving_bytes

EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS, ids=[v.value for v in VARIANTS])
LOSING = [v for v in VARIANTS if v is not Variant.KEPT]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(), root=root)


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def durable_file(storage: FaultyStorage, path: Path, data: bytes) -> None:
    storage.put(str(path), data)
    storage.sync_directory(str(path.parent))


@EVERY_VARIANT
@pytest.mark.parametrize("seed", range(3))
def test_what_was_synced_stays(storage: FaultyStorage, root: Path, variant: Variant, seed: int) -> None:
    durable_file(storage, root / "a" / "b" / "file", b"content")
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    for n in range(20):
        log.write([b"%04d" % n])
        log.sync()
    storage.replace(str(root / "state"), b"new")
    storage.power_cut(variant, seed)
    assert (root / "a" / "b" / "file").read_bytes() == b"content"
    assert (root / "log").read_bytes() == b"".join(b"%04d" % n for n in range(20))
    assert (root / "state").read_bytes() == b"new"


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "root" / "d").mkdir(parents=True)
    (tmp_path / "root" / "d" / "old").write_bytes(b"old")
    storage = FaultyStorage(LocalStorage(), root=tmp_path / "root")
    storage.power_cut()
    assert (tmp_path / "root" / "d" / "old").read_bytes() == b"old"


def test_a_name_vanishes_without_a_sync_of_its_directory(storage: FaultyStorage, root: Path) -> None:
    storage.put(str(root / "file"), b"synced content")
    storage.power_cut(Variant.STRICT)
    assert names(root) == []


def test_everything_in_a_directory_vanishes_with_its_name(storage: FaultyStorage, root: Path) -> None:
    storage.add_directory(str(root / "d"))
    durable_file(storage, root / "d" / "file", b"x")
    storage.power_cut(Variant.STRICT)
    assert names(root) == []


def test_a_synced_name_does_not_keep_the_bytes(storage: FaultyStorage, root: Path) -> None:
    storage.put(str(root / "file"), b"content", sync=False)
    storage.sync_directory(str(root))
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == b""


@EVERY_VARIANT
def test_unsynced_bytes_never_touch_the_synced_ones(storage: FaultyStorage, root: Path, variant: Variant) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"s" * 700])
    log.sync()
    log.write([b"u" * 20_000])
    storage.power_cut(variant, 1)
    left = (root / "log").read_bytes()
    assert left[:700] == b"s" * 700
    assert len(left) <= 20_700
    if variant in (Variant.STRICT, Variant.EMPTY):
        assert left == b"s" * 700
    if variant is Variant.KEPT:
        assert left == b"s" * 700 + b"u" * 20_000


def test_a_removal_without_a_sync_comes_back(storage: FaultyStorage, root: Path) -> None:
    durable_file(storage, root / "file", b"content")
    storage.remove(str(root / "file"))
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == b"content"


def test_a_synced_removal_does_not(storage: FaultyStorage, root: Path) -> None:
    durable_file(storage, root / "file", b"content")
    storage.remove(str(root / "file"))
    storage.sync_directory(str(root))
    storage.power_cut(Variant.STRICT)
    assert names(root) == []


def test_a_removed_tree_comes_back_whole_or_in_part(root: Path) -> None:
    seen = set()
    for seed in range(30):
        storage = FaultyStorage(LocalStorage(), root=root)
        for name in ("a", "b", "c"):
            durable_file(storage, root / "d" / name, name.encode())
        storage.remove_tree(str(root / "d"))
        storage.power_cut(Variant.STRICT if seed == 0 else Variant.MIXED, seed)
        seen.add(tuple(names(root)))
        for path in root.glob("d/*"):
            assert path.read_bytes() == path.name.encode()
        shutil.rmtree(root / "d", ignore_errors=True)
    assert ("d", "d/a", "d/b", "d/c") in seen
    assert () in seen
    assert len(seen) > 3


def test_a_file_made_anew_is_another_file(storage: FaultyStorage, root: Path) -> None:
    durable_file(storage, root / "file", b"old")
    storage.remove(str(root / "file"))
    storage.put(str(root / "file"), b"new")
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == b"old"


@pytest.mark.parametrize("seed", range(10))
def test_a_rename_is_rolled_back_or_kept_whole(storage: FaultyStorage, root: Path, seed: int) -> None:
    durable_file(storage, root / "source", b"new")
    durable_file(storage, root / "target", b"old")
    storage.rename(str(root / "source"), str(root / "target"))
    storage.power_cut(Variant.MIXED if seed else Variant.STRICT, seed)
    left = {path.name: path.read_bytes() for path in root.iterdir()}
    assert left in ({"source": b"new", "target": b"old"}, {"target": b"new"})
    if seed == 0:
        assert len(left) == 2


@EVERY_VARIANT
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_replacement_is_the_old_or_the_new(root: Path, variant: Variant, after: bool) -> None:
    steps = 5  # create, write, sync, rename, sync the directory
    for number in range(1, steps + 1):
        LocalStorage().replace(str(root / "state"), b"old")
        storage = FaultyStorage(LocalStorage(), root=root)
        storage.crash_at(number, after=after)
        with pytest.raises(Crash):
            storage.replace(str(root / "state"), b"new")
        storage.power_cut(variant, number)
        content = (root / "state").read_bytes()
        assert content in (b"old", b"new"), number
        if number == steps and after:
            assert content == b"new"


def test_a_cut_without_a_sync_is_undone(storage: FaultyStorage, root: Path) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"0123456789"])
    log.sync()
    log.truncate(4)
    log.write([b"ab"])
    storage.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"0123456789"


def test_a_synced_cut_stays(storage: FaultyStorage, root: Path) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"0123456789"])
    log.sync()
    log.truncate(4)
    log.sync()
    log.write([b"ab"])
    storage.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"0123"


def test_bytes_written_over_a_failed_write_are_not_durable_by_the_sync_before(
    storage: FaultyStorage, root: Path
) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    storage.limit_room(4, under=str(root))
    with pytest.raises(OSError, match="No space"):
        log.write([b"012345"])
    log.sync()
    storage.heal()
    log.write([b"new!"])
    storage.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"0123"


def test_a_failed_sync_loses_the_bytes_even_if_a_later_one_works(storage: FaultyStorage, root: Path) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"safe"])
    log.sync()
    log.write([b"lost"])
    storage.fail(kind="sync")
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    log.sync()
    log.write([b"later"])
    log.sync()
    assert (root / "log").read_bytes() == b"safelostlater", "the cache still has them"
    storage.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"safe\0\0\0\0later"


def test_bytes_of_a_failed_sync_are_durable_once_written_again(storage: FaultyStorage, root: Path) -> None:
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"safe"])
    log.sync()
    log.write([b"lost"])
    storage.fail(kind="sync")
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    following = storage.restarted()
    following.rewrite(str(root / "log"), 4)
    following.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"safelost"


def test_files_of_others_are_lost_unless_synced(storage: FaultyStorage, root: Path) -> None:
    (root / "d").mkdir()
    for name in ("nothing", "bytes", "both"):
        (root / "d" / name).write_bytes(b"content")
    storage.sync_file(str(root / "d" / "bytes"))
    storage.sync_file(str(root / "d" / "both"))
    storage.sync_directory(str(root))
    (root / "later").write_bytes(b"content")
    storage.power_cut(Variant.STRICT)
    assert names(root) == ["d"]

    storage = FaultyStorage(LocalStorage(), root=root)
    for name in ("nothing", "both"):
        (root / "d" / name).write_bytes(b"content")
    storage.sync_file(str(root / "d" / "both"))
    storage.sync_directory(str(root / "d"))
    storage.power_cut(Variant.STRICT)
    assert (root / "d" / "both").read_bytes() == b"content"
    assert (root / "d" / "nothing").read_bytes() == b""


def test_a_file_that_others_changed_after_its_sync_is_not_durable(storage: FaultyStorage, root: Path) -> None:
    (root / "file").write_bytes(b"one")
    storage.sync_file(str(root / "file"))
    storage.sync_directory(str(root))
    (root / "file").write_bytes(b"another")
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == b""


def test_a_file_that_others_replaced_comes_back(storage: FaultyStorage, root: Path) -> None:
    (root / "file").write_bytes(b"one")
    storage.sync_file(str(root / "file"))
    storage.sync_directory(str(root))
    (root / "file.tmp").write_bytes(b"another")
    os.replace(root / "file.tmp", root / "file")
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == b"one"


def test_a_failed_sync_of_anothers_file_is_not_mended_by_the_next(storage: FaultyStorage, root: Path) -> None:
    (root / "file").write_bytes(b"content")
    storage.sync_directory(str(root))
    storage.fail(kind="sync_file")
    with pytest.raises(OSError, match="Input/output"):
        storage.sync_file(str(root / "file"))
    storage.sync_file(str(root / "file"))
    storage.power_cut(Variant.STRICT)
    assert (root / "file").read_bytes() == bytes(7)


def test_what_a_killed_process_left_is_still_not_durable(storage: FaultyStorage, root: Path) -> None:
    """A kill loses nothing by itself, but the next process finds bytes that a power cut can still take."""
    log = storage.create_append(str(root / "log"))
    storage.sync_directory(str(root))
    log.write([b"unsynced"])
    following = storage.restarted()
    assert following.read(str(root / "log")) == b"unsynced"
    following.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b""


def test_what_the_next_process_syncs_is_durable(storage: FaultyStorage, root: Path) -> None:
    log = storage.create_append(str(root / "log"))
    log.write([b"unsynced"])
    following = storage.restarted()
    log = following.open_append(str(root / "log"))
    log.sync()
    following.sync_directory(str(root))
    following.power_cut(Variant.STRICT)
    assert (root / "log").read_bytes() == b"unsynced"


def test_power_cuts_can_follow_one_another(storage: FaultyStorage, root: Path) -> None:
    for n in range(5):
        log = storage.create_append(str(root / f"log-{n}"))
        log.write([b"kept"])
        log.sync()
        storage.sync_directory(str(root))
        log.write([b"lost"])
        storage.power_cut(Variant.STRICT)
        storage = storage.restarted()
    assert [(root / f"log-{n}").read_bytes() for n in range(5)] == [b"kept"] * 5
    assert sorted(path.name for path in root.parent.iterdir() if path != root) == [
        path.name for path in root.parent.glob("root.links-*")
    ]


@EVERY_VARIANT
def test_the_same_seed_leaves_the_same_disk(tmp_path: Path, variant: Variant) -> None:
    left = []
    for run in range(2):
        root = tmp_path / str(run)
        root.mkdir()
        storage = FaultyStorage(LocalStorage(), root=root)
        for n in range(10):
            storage.put(str(root / f"{n}"), bytes([n]) * 3_000, sync=n % 2 == 0)
            if n == 5:
                storage.sync_directory(str(root))
        storage.remove(str(root / "1"))
        storage.power_cut(variant, 7)
        left.append({path.name: path.read_bytes() for path in root.iterdir()})
    assert left[0] == left[1]


@pytest.mark.parametrize("variant", LOSING, ids=[v.value for v in LOSING])
def test_each_variant_loses_in_its_own_way(variant: Variant) -> None:
    durable, written = b"d" * 1_000, b"d" * 1_000 + b"u" * 30_000
    left = [surviving_bytes(durable, written, variant, random.Random(seed)) for seed in range(20)]
    assert all(content[:1_000] == durable for content in left)
    assert any(content != written for content in left)
    tails = [content[1_000:] for content in left]
    if variant is Variant.PART:
        assert all(set(tail) <= set(b"u") for tail in tails)
        assert len({len(tail) for tail in tails}) > 10
    if variant is Variant.ZEROS:
        assert all(len(tail) == 30_000 and tail == tail.rstrip(b"\0").ljust(30_000, b"\0") for tail in tails)
    if variant is Variant.GARBAGE:
        assert all(len(set(tail)) > 200 for tail in tails)
    if variant is Variant.SECTORS:
        assert all(b"\0u" in tail or b"u\0" in tail for tail in tails)
    if variant is Variant.LATER:
        assert all(tail.startswith(b"\0") and tail.endswith(b"u") for tail in tails)


def test_little_that_is_unsynced_comes_out_of_order_too() -> None:
    durable, written = b"d" * 100, b"d" * 100 + b"u" * 2_000
    left = {surviving_bytes(durable, written, Variant.LATER, random.Random(seed)) for seed in range(10)}
    assert all(content[100:512] == bytes(412) and content.endswith(b"u") for content in left)


def test_a_file_cut_since_its_sync_is_old_new_or_between() -> None:
    for seed in range(20):
        left = surviving_bytes(b"o" * 2_000, b"n" * 1_000, Variant.SECTORS, random.Random(seed))
        assert len(left) in (1_000, 2_000)
        assert set(left) <= set(b"on\0")


def test_closing_leaves_nothing_beside_the_tree(root: Path) -> None:
    disk = DurableDisk(root)
    (root / "file").write_bytes(b"x")
    disk.path_synced(str(root / "file"))
    disk.close()
    assert [path.name for path in root.parent.iterdir()] == ["root"]
