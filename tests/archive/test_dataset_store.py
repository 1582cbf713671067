"""The directory of a data set: after a crash at any step it is the old data set or the new one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from millpond.archive.dataset.definition import DatasetDefinition, decode_dataset, encode_dataset
from millpond.archive.dataset.files import Listing, match
from millpond.archive.dataset.store import BASE, DatasetStore
from millpond.archive.index.blobs import BlobWriter
from millpond.errors import Damaged, FormatTooNew
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage, Variant

DEFINITION = DatasetDefinition(
    id="5f0c91d2",
    name="grid/weather",
    path="/data/weather",
    files="csv",
    options={"timeZone": "UTC"},
    schema='{"type": "struct", "fields": []}',
    partitions='{"type": "struct", "fields": []}',
    reading={},
    indexes=({"kind": "minmax", "columns": ["n"]},),
    created_micros=1,
)


def entries(*names: str, size: int = 10) -> pa.Table:
    rows = [{"path": f"file:/data/{name}", "bytes": size, "modified_millis": 5, "rows": 3} for name in names]
    return pa.Table.from_pylist(rows, BASE).append_column("min.n", pa.array([1] * len(names), pa.int32()))


def paths(store: DatasetStore) -> list[str]:
    return sorted(path.removeprefix("file:/data/") for path in store.entries()[1].column("path").to_pylist())


def test_a_definition_comes_back_and_damage_is_told() -> None:
    data = encode_dataset(DEFINITION)
    assert decode_dataset(data, "dataset.json") == DEFINITION
    assert DEFINITION.directory == "grid.weather-5f0c91d2"
    for at in range(data.index(b"format"), len(data) - 4, 7):
        broken = bytearray(data)
        broken[at] ^= 0x01
        with pytest.raises(Damaged, match=r"dataset\.json"):
            decode_dataset(bytes(broken), "dataset.json")
    with pytest.raises(FormatTooNew):
        decode_dataset(encode_dataset(msgspec.structs.replace(DEFINITION, format=2)), "dataset.json")


def test_entries_are_added_replaced_and_merged(tmp_path: Path) -> None:
    store = DatasetStore.create(LocalStorage(), str(tmp_path / "set"), DEFINITION)
    for at in range(40):
        store.add(entries(f"{at}.csv"), BlobWriter(at), at)
        assert len(store.definition.entries) <= 16
    again = DatasetStore.open(LocalStorage(), str(tmp_path / "set"))
    assert len(paths(again)) == 40
    again.add(entries("7.csv", size=99), BlobWriter(1), 41)
    (seven,) = [row for row in again.entries()[1].to_pylist() if row["path"].endswith("/7.csv")]
    assert seven["bytes"] == 99
    assert len(list((tmp_path / "set" / "_index").iterdir())) == len(again.definition.entries)


@pytest.mark.parametrize("variant", list(Variant))
def test_a_crash_at_any_step_leaves_the_old_or_the_new(tmp_path: Path, variant: Variant) -> None:
    """A store with one file of entries gets another, then is rewritten; the power goes before each durable step."""
    for number in range(1, 200):
        root = tmp_path / f"{number}"
        root.mkdir()
        storage = FaultyStorage(LocalStorage(), root=root)
        store = DatasetStore.create(storage, str(root / "set"), DEFINITION)
        store.add(entries("a.csv"), BlobWriter(1), 1)
        storage.crash_at(len(storage.durable_steps) + number)
        try:
            store.add(entries("b.csv"), BlobWriter(2), 2)
            store.rewrite(entries("a.csv", "c.csv"), BlobWriter(3), 3)
        except Crash:
            storage.power_cut(variant)
            found = DatasetStore.open(LocalStorage(), str(root / "set"))
            assert paths(found) in (["a.csv"], ["a.csv", "b.csv"], ["a.csv", "c.csv"])
            assert found.warnings() == ()
            continue
        assert number > 8
        storage.power_cut(variant)
        final = DatasetStore.open(LocalStorage(), str(root / "set"))
        assert (paths(final), final.warnings()) == (["a.csv", "c.csv"], ())
        return
    pytest.fail("it never came to an end")


def test_an_entry_counts_only_for_the_same_size_and_time() -> None:
    known = entries("same.csv", "larger.csv", "later.csv", "gone.csv")
    listing = Listing(
        paths=["file:/data/larger.csv", "file:/data/new.csv", "file:/data/same.csv", "file:/data/later.csv"],
        sizes=np.array([11, 10, 10, 10]),
        modified_millis=np.array([5, 5, 5, 6]),
        partition_of=np.zeros(4, dtype=np.int64),
        partitions={},
    )
    found = match(listing, known)
    assert found.known.tolist() == [False, False, True, False]
    assert found.changed.tolist() == [True, False, False, True]
    assert found.removed == 1
