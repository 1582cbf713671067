"""B7: small objects are merged in the background; no query can tell but by its speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from millpond.archive.objects import parse_name
from millpond.errors import Damaged, SettleFailed
from millpond.model.predicate import Compare
from millpond.testing import FaultyStorage
from tests.archive.meddling import Meddling
from tests.archive.settled_stream import DAY_MICROS, MIDNIGHT, SettledStream, define, expected, read_all, records


def settle_often(stream: SettledStream, times: int, **more: Any) -> None:
    for _ in range(times):
        boundary = stream.boundary
        stream.settle_to({0: boundary.get(0, 0) + 10, 1: boundary.get(1, 0) + 5}, **more)


def test_small_objects_become_one(stream: SettledStream) -> None:
    settle_often(stream, 4)
    before = stream.archive.snapshot()
    report = stream.archive.compact()
    assert report is not None
    assert (report.objects_before, report.objects_after, report.rows) == (4, 1, 60)
    assert report.bytes_before == before.objects.bytes_total
    snapshot = stream.archive.snapshot()
    assert report.bytes_after == snapshot.objects.bytes_total
    assert (len(snapshot.objects), snapshot.boundary) == (1, before.boundary)
    for one in (snapshot, stream.reopen(), before):
        assert read_all(one).equals(expected({0: 40, 1: 20}))
    assert not stream.archive.verify()
    assert stream.archive.compact() is None


def test_merged_rows_are_in_the_order_of_offsets(stream: SettledStream) -> None:
    settle_often(stream, 4)
    stream.archive.compact()
    (batch,) = stream.archive.snapshot().read()
    assert batch.column("_streamlet").to_pylist() == [0] * 40 + [1] * 20
    assert batch.column("_offset").to_pylist() == [*range(40), *range(20)]


def test_few_objects_are_left_alone(stream: SettledStream) -> None:
    settle_often(stream, 3)
    assert stream.archive.compact() is None
    assert stream.archive.compact(least_objects=3) is not None


def test_large_objects_are_left_alone(stream: SettledStream) -> None:
    settle_often(stream, 4)
    assert stream.archive.compact(small_bytes=10) is None


def test_partitions_are_never_mixed(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path, define(event_time="at"))
    for turn in range(4):
        start = stream.boundary
        offset = start.get(0, 0)
        parts = [records(0, offset, offset + 5), records(0, offset + 5, offset + 9, at=MIDNIGHT + DAY_MICROS)]
        stream.archive.settle(start, {0: offset + 9}, parts)
        assert len(stream.archive.snapshot().objects) == 2 * (turn + 1)
    report = stream.archive.compact()
    assert report is not None
    assert (report.objects_before, report.objects_after) == (8, 2)
    names = [parse_name(path) for path in stream.archive.snapshot().objects.paths]
    assert [name.start for name in names if name is not None] == [1699920000, 1699920000 + 86_400]
    assert not stream.archive.verify()


def test_a_compaction_changes_no_data_for_those_who_follow_the_table(stream: SettledStream) -> None:
    """B1: readers of changes must not see merged rows as new ones."""
    settle_often(stream, 4)
    stream.archive.compact()
    actions = DeltaTable(stream.root).history(1)[0]
    assert actions["millpond.kind"] == "compact"
    log = Path(stream.root, "_delta_log", f"{stream.archive.snapshot().version:020d}.json").read_text()
    assert log.count('"dataChange":false') == 5
    assert '"dataChange":true' not in log


def test_the_files_of_merged_objects_stay(stream: SettledStream) -> None:
    settle_often(stream, 4)
    old = [Path(stream.root, path) for path in stream.archive.snapshot().objects.paths]
    stream.archive.compact()
    assert all(path.exists() for path in old)


def test_a_compaction_that_another_settler_overtook_is_given_up(stream: SettledStream) -> None:
    settle_often(stream, 4)
    delta = Meddling(stream.root)
    stream.archive = stream.open(delta)
    other = stream.open()
    delta.before = lambda: other.settle({0: 40, 1: 20}, {0: 42, 1: 20}, [records(0, 40, 42)])
    files = len(list(Path(stream.root).rglob("b0*.parquet")))
    assert stream.archive.compact() is None
    assert len(list(Path(stream.root).rglob("b0*.parquet"))) == files + 1, "what was given up is gone"
    assert read_all(stream.reopen()).equals(expected({0: 42, 1: 20}))
    assert stream.archive.compact() is not None
    assert read_all(stream.reopen()).equals(expected({0: 42, 1: 20}))
    assert not stream.archive.verify()


def test_damage_is_not_merged(stream: SettledStream) -> None:
    settle_often(stream, 4)
    path = Path(stream.root, stream.archive.snapshot().objects.paths[2])
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(Damaged, match="checksum mismatch"):
        stream.archive.compact()
    assert len(stream.reopen().objects) == 4


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    storage = FaultyStorage(SettledStream(tmp_path).storage)
    stream = SettledStream(tmp_path, storage=storage)
    settle_often(stream, 4)
    storage.limit_room(100)
    with pytest.raises(SettleFailed, match="could not be compacted"):
        stream.archive.compact()
    assert len(stream.archive.snapshot().objects) == 4
    storage.heal()
    assert stream.archive.compact() is not None


def test_offsets_are_still_pruned_after_merging(stream: SettledStream) -> None:
    settle_often(stream, 8)
    stream.archive.compact()
    settle_often(stream, 1)
    kept = stream.archive.snapshot().objects.prune(Compare(">=", "_offset", 80)).keep
    assert kept.tolist() == [False, True]
