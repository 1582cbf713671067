"""I4, F5: an index file that is missing, damaged or stale costs time, never rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.archive.index.entries import BASE_FIELDS
from millpond.archive.index.minmax import entry_columns
from millpond.archive.object_index import ObjectIndex
from millpond.model.predicate import And, Compare, Or, Predicate
from millpond.model.schema import stored_schema
from millpond.model.stats import collect_stats
from tests.archive.settled_stream import SCHEMA, SettledStream, expected, read_all, records

ONE = Compare("=", "_offset", 7)


@pytest.fixture
def three(stream: SettledStream) -> SettledStream:
    """Three objects of five records each."""
    for stop in (5, 10, 15):
        stream.settle_to({0: stop})
    return stream


def index_files(stream: SettledStream) -> list[Path]:
    return sorted(Path(stream.root, "_index").glob("*.parquet"))


def found(stream: SettledStream, predicate: Predicate) -> list[int]:
    batches = stream.archive.snapshot().read(columns=["_offset"], predicate=predicate)
    return [offset for batch in batches for offset in batch.column("_offset").to_pylist()]


def test_entries_are_the_same_after_reopening(three: SettledStream) -> None:
    before = three.archive.snapshot().objects.entries.combine_chunks()
    assert three.reopen().objects.entries.combine_chunks().equals(before)
    assert three.archive.snapshot().objects.prune(ONE).keep.tolist() == [False, True, False]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "replaced"])
def test_objects_of_a_bad_index_file_are_read(three: SettledStream, damage: str) -> None:
    path = index_files(three)[1]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "replaced":
        path.write_bytes(index_files(three)[0].read_bytes())
    else:
        flipped = data[:500] + bytes([data[500] ^ 4]) + data[501:]
        path.write_bytes({"empty": b"", "cut": data[:-1], "flipped": flipped}[damage])
    snapshot = three.reopen()
    assert snapshot.objects.unknown == 1
    assert [path.name in warning for warning in snapshot.warnings] == [True]
    assert snapshot.objects.prune(ONE).keep.tolist() == [False, True, False]
    assert snapshot.objects.prune(Compare("=", "_offset", 1_000)).keep.tolist() == [False, True, False]
    assert found(three, ONE) == [7]
    assert read_all(snapshot).equals(expected({0: 15}))
    assert {finding.severity for finding in three.archive.verify()} == {"warning"}


def test_a_stale_entry_is_ignored(three: SettledStream) -> None:
    """F5: rows or bytes that are not the object's say that the entry is of something else."""
    objects = three.archive.snapshot().objects
    entries = objects.entries.combine_chunks()
    for column, at in (("bytes", 0), ("rows", 2)):
        values = entries.column(column).to_pylist()
        values[at] += 1
        entries = entries.set_column(entries.schema.get_field_index(column), column, pa.array(values, pa.int64()))
    plain = pa.table({"path": objects.paths, "bytes": objects.sizes, "rows": objects.rows})
    aligned = ObjectIndex.empty(stored_schema(SCHEMA)).aligned(plain, entries)
    assert aligned.unknown == 2
    assert aligned.prune(Compare("=", "_offset", 1_000)).keep.tolist() == [True, False, True]


def test_an_entry_without_an_object_is_ignored(three: SettledStream) -> None:
    objects = three.archive.snapshot().objects
    plain = pa.table({"path": objects.paths[:2], "bytes": objects.sizes[:2], "rows": objects.rows[:2]})
    assert len(ObjectIndex.empty(stored_schema(SCHEMA)).aligned(plain, objects.entries)) == 2


def test_a_checkpoint_merges_index_files(three: SettledStream) -> None:
    """B7"""
    three.archive.checkpoint()
    assert [path.name for path in index_files(three)] == ["000000000003.checkpoint.parquet"]
    three.settle_to({0: 20})
    assert len(index_files(three)) == 2
    snapshot = three.reopen()
    assert snapshot.objects.unknown == 0
    assert not snapshot.warnings
    assert read_all(snapshot).equals(expected({0: 20}))
    assert pq.read_table(index_files(three)[0]).num_rows == 3


def test_checkpoints_come_by_themselves(stream: SettledStream) -> None:
    """B7: opening reads a bounded number of files, however many settles there were."""
    for stop in range(1, 40):
        stream.settle_to({0: stop})
    assert len(index_files(stream)) < 34
    log = {path.name for path in Path(stream.root, "_delta_log").iterdir()}
    assert any(name.endswith(".checkpoint.parquet") for name in log)
    snapshot = stream.reopen()
    assert (snapshot.objects.unknown, snapshot.warnings) == (0, ())
    assert read_all(snapshot).equals(expected({0: 39}))
    assert not stream.archive.verify()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1}', b"\xff\xfe"])
def test_a_bad_hint_to_the_index_checkpoint_is_survived(three: SettledStream, content: bytes) -> None:
    three.archive.checkpoint()
    three.settle_to({0: 20})
    Path(three.root, "_index", "_last_checkpoint").write_bytes(content)
    snapshot = three.reopen()
    assert snapshot.warnings
    assert snapshot.objects.unknown == 0, "the newest checkpoint is found without the hint"
    assert read_all(snapshot).equals(expected({0: 20}))


def many_objects(count: int) -> ObjectIndex:
    """Entries of objects that do not exist: object i holds offsets [10 i, 10 i + 10)."""
    one = collect_stats(records(0, 0, 10))
    ranges = []
    for i in range(count):
        offsets = one["_offset"]._replace(min=10 * i, max=10 * i + 9)
        ranges.append(one | {"_offset": offsets, "n": one["n"]._replace(min=100 * i, max=100 * i + 90)})
    schema = stored_schema(SCHEMA)
    base = [
        pa.array([f"g00001/0.86400/b0000-{i:012d}-00000000.parquet" for i in range(count)]),
        pa.array(np.full(count, 10)),
        pa.array(np.full(count, 4_000)),
        pa.array([b"\0\0\0\0"] * count, pa.binary()),
    ]
    columns = {field.name: column for field, column in zip(BASE_FIELDS, base, strict=False)}
    return ObjectIndex(pa.table(columns | entry_columns(schema, ranges)), schema)


def test_ten_thousand_objects_are_pruned_to_the_few_that_matter() -> None:
    objects = many_objects(10_000)
    some = Or((Compare("=", "_offset", 55_555), And((Compare(">=", "n", 3_000), Compare("<", "n", 3_100)))))
    keep = objects.prune(some).keep
    assert np.flatnonzero(keep).tolist() == [30, 5_555]
    grown = objects.changed(many_objects(3).entries, objects.paths[:5_000])
    assert len(grown) == 5_003
    assert grown.prune(Compare("=", "_offset", 55_555)).keep.sum() == 1


def test_bounds_really_bound_what_objects_hold(three: SettledStream) -> None:
    """F5: for every value there is, the object that holds it is kept."""
    objects = three.archive.snapshot().objects
    for row in expected({0: 15}).to_pylist():
        holder = row["_offset"] // 5
        for column in ("vid", "n", "temp", "at", "_offset", "_ingest_time"):
            assert objects.prune(Compare("=", column, row[column])).keep[holder]
