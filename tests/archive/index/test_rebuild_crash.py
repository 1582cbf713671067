"""A rebuild of indexes that ends anywhere, with or without a power cut, leaves all rows and only true entries."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.model.definition import StreamDefinition
from millpond.model.predicate import Compare
from millpond.model.spec import parse_spec
from millpond.storage import LocalStorage, Storage
from millpond.testing import VARIANTS, Crash, FaultyStorage, Step, Variant
from tests.archive.settled_stream import SettledStream, define, expected, read_all, records

BOUNDARY = {0: 30, 1: 0}
INDEXED = replace(define(), indexes=tuple(map(parse_spec, ("values:vid", "bloom:n"))))


def settled(root: Path, definition: StreamDefinition, storage: Storage | None = None) -> SettledStream:
    return SettledStream(root, definition, storage)


def prepared(root: Path) -> Path:
    """Three objects of ten records, without indexes."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()
    stream = settled(root, define())
    for start in (0, 10, 20):
        stream.archive.settle({0: start}, {0: start + 10, 1: 0}, [records(0, start, start + 10)])
    return root


def rebuild(root: Path, storage: Storage) -> None:
    archive = settled(root, INDEXED, storage).archive
    archive.rebuild_indexes()
    archive.checkpoint()


def check_and_go_on(root: Path, storage: Storage | None = None) -> None:
    stream = settled(root, INDEXED, storage)
    assert read_all(stream.archive.snapshot()).equals(expected(BOUNDARY))
    errors = [finding for finding in stream.archive.verify() if finding.severity == "error"]
    assert not errors
    for offset in (0, 5, 17, 29):
        found = stream.archive.snapshot().objects.prune(Compare("=", "n", offset * 10))
        assert found.keep[offset // 10]
        assert not found.failures
    stream.archive.rebuild_indexes()
    objects = settled(root, INDEXED).archive.snapshot().objects
    assert objects.prune(Compare("=", "n", 55)).keep.tolist() == [False, False, False]
    assert all(entries.known().all() for _, entries in objects.indexes)


def steps_of(root: Path) -> list[Step]:
    storage = FaultyStorage(LocalStorage(), root=prepared(root))
    rebuild(root, storage)
    assert storage.disk is not None
    storage.disk.close()
    return storage.steps


def test_a_rebuild_that_crashes_at_any_step(quick_path: Path) -> None:
    root = quick_path / "root"
    durable = [step for step in steps_of(root) if step.durable]
    assert any(str(step).endswith("_index/#.blobs") for step in durable), sorted(map(str, durable))
    for step, variant in zip(durable, itertools.cycle(VARIANTS)):
        for cut in (False, True):
            storage = FaultyStorage(LocalStorage(), step.durable_number, root=prepared(root))
            storage.crash_at(step.durable_number, after=False)
            with pytest.raises(Crash):
                rebuild(root, storage)
            if cut:
                storage.power_cut(variant, seed=step.durable_number)
            check_and_go_on(root, None if cut else storage.restarted())


def test_a_rebuild_on_a_failing_disk(quick_path: Path) -> None:
    root = quick_path / "root"
    failed = 0
    for number in range(1, len(steps_of(root)) + 1, 3):
        storage = FaultyStorage(LocalStorage(), number, root=prepared(root))
        storage.fail(at=number)
        try:
            rebuild(root, storage)
        except (MillpondError, OSError):
            failed += 1
        storage.power_cut(Variant.STRICT, number)
        check_and_go_on(root)
    assert failed
