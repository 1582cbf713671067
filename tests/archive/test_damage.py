"""A flipped bit anywhere in an archive is found, or harmless: never another row, never a missing one."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.archive.checksums import BLOCK_BYTES, CheckedFile, block_checksums
from millpond.errors import Damaged
from millpond.storage import LocalStorage
from millpond.testing import FaultyStorage
from tests.archive.settled_stream import SettledStream, expected, read_all, records

BOUNDARY = {0: 100, 1: 60}


@pytest.fixture
def settled(quick_path: Path) -> SettledStream:
    stream = SettledStream(quick_path / "sound")
    stream.settle_to({0: 50, 1: 30})
    stream.settle_to({0: 80, 1: 30})
    stream.archive.checkpoint()
    stream.settle_to(BOUNDARY)
    return stream


def flip_and_look(sound: SettledStream, work: Path, name: str, position: int, bit: int) -> str:
    """What comes of one flipped bit; fails if other rows do."""
    shutil.copytree(Path(sound.root).parent, work)
    path = work / Path(sound.root).name / name
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
    try:
        stream = SettledStream(work)
        snapshot = stream.archive.snapshot()
        if any(aside.startswith("_torn/00000000000000000003.json") for aside in stream.archive.set_aside):
            # Taken for an unsynced commit. The log knows better: it no longer has what lies below the boundary.
            assert snapshot.boundary == {0: 80, 1: 30}
            return "set aside"
        seen = read_all(snapshot)
    except Damaged:
        return "refused"
    finally:
        shutil.rmtree(work)
    assert snapshot.boundary == BOUNDARY, f"bit {bit} of byte {position} of {name}"
    assert seen.equals(expected(BOUNDARY)), f"bit {bit} of byte {position} of {name}"
    return "right"


def test_a_flipped_bit_in_any_file_is_never_served(settled: SettledStream, quick_path: Path) -> None:
    rng = random.Random(7)
    files = sorted(path for path in Path(settled.root).rglob("*") if path.is_file())
    assert len(files) == 12
    for path in files:
        name = str(path.relative_to(settled.root))
        size = path.stat().st_size
        outcomes = Counter(
            flip_and_look(settled, quick_path / "work", name, rng.randrange(size), rng.randrange(8)) for _ in range(15)
        )
        if name.startswith("g"):
            assert outcomes == {"refused": 15}, name
        elif name.endswith("0003.json"):
            assert outcomes["refused"]
        else:
            assert outcomes["set aside"] == 0, name


def test_every_byte_of_an_object_is_covered(stream: SettledStream) -> None:
    """Headers, footer and statistics, too, which Parquet's own checksums leave out."""
    stream.settle_to({0: 20})
    (name,) = stream.archive.snapshot().objects.paths
    path = Path(stream.root, name)
    whole = path.read_bytes()
    snapshot = stream.archive.snapshot()
    for position in range(0, len(whole), 7):
        data = bytearray(whole)
        data[position] ^= 1 << (position % 8)
        path.write_bytes(data)
        with pytest.raises(Damaged, match="checksum mismatch"):
            read_all(snapshot)


def test_without_an_index_entry_pages_are_still_checked(stream: SettledStream) -> None:
    stream.settle_to({0: 2_000})
    for file in Path(stream.root, "_index").glob("*.parquet"):
        file.unlink()
    (name,) = stream.archive.snapshot().objects.paths
    path = Path(stream.root, name)
    whole = path.read_bytes()
    path.write_bytes(whole[:600] + bytes([whole[600] ^ 1]) + whole[601:])
    with pytest.raises(Damaged, match="cannot be read"):
        read_all(stream.reopen())


def test_an_object_that_was_cut_off_is_refused(stream: SettledStream) -> None:
    stream.settle_to({0: 20})
    (name,) = stream.archive.snapshot().objects.paths
    path = Path(stream.root, name)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match="ends after"):
        read_all(stream.archive.snapshot())


@pytest.fixture(scope="module")
def large() -> bytes:
    return random.Random(3).randbytes(3 * BLOCK_BYTES + 1234)


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 10), (BLOCK_BYTES - 5, 10), (3 * BLOCK_BYTES, 1234), (5, 2 * BLOCK_BYTES), (0, -1), (4 * BLOCK_BYTES, 1)],
)
def test_a_checked_file_reads_like_any_other(large: bytes, start: int, length: int) -> None:
    file = CheckedFile("x", len(large), block_checksums(large), lambda at, size: large[at : at + size])
    file.seek(start)
    assert file.read(length) == (large[start:] if length < 0 else large[start : start + length])
    assert file.tell() == max(start, min(len(large), start + length) if length >= 0 else len(large))


def test_a_checked_file_reads_only_the_blocks_it_needs(large: bytes) -> None:
    asked: list[tuple[int, int]] = []

    def read_at(at: int, size: int) -> bytes:
        asked.append((at, size))
        return large[at : at + size]

    file = CheckedFile("x", len(large), block_checksums(large), read_at)
    file.seek(BLOCK_BYTES + 7)
    file.read(3)
    assert asked == [(BLOCK_BYTES, BLOCK_BYTES)]


def test_a_bit_that_flips_in_a_large_object_is_found_where_it_is_read(tmp_path: Path) -> None:
    """Objects over a few megabytes are read in parts, through pyarrow's threads."""
    storage = FaultyStorage(LocalStorage())
    stream = SettledStream(tmp_path, storage=storage)
    rows = [records(0, start, start + 50_000) for start in range(0, 400_000, 50_000)]
    stream.archive.settle({}, {0: 400_000}, rows)
    snapshot = stream.archive.snapshot()
    (size,) = snapshot.objects.sizes.tolist()
    assert size > 4 * BLOCK_BYTES
    assert read_all(snapshot).equals(pa.Table.from_batches(rows).combine_chunks())
    storage.flip_when_read(r"b0000-.*\.parquet", size // 2, 3)
    with pytest.raises(Damaged, match="checksum mismatch"):
        read_all(snapshot)
    storage.heal()
    storage.flip_when_read(r"b0000-.*\.parquet", size - 100, 3)
    with pytest.raises(Damaged, match="checksum mismatch"):
        list(snapshot.read(columns=["n"]))
    storage.heal()
    storage.fail(kind="read", path=r"b0000-.*\.parquet")
    with pytest.raises(Damaged, match="cannot be read"):
        read_all(snapshot)
