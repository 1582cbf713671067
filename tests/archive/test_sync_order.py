"""I5: nothing is named before it is durable, and nothing is promised before its name is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.archive.table import Added, DeltaLog, Removed
from millpond.storage import LocalStorage
from millpond.testing import FaultyStorage
from tests.archive.settled_stream import SettledStream


class Watched(DeltaLog):
    """Notes when a commit happens among the steps of the storage."""

    def __init__(self, root: str, storage: FaultyStorage) -> None:
        super().__init__(root)
        self.storage = storage
        self.commits: list[int] = []

    def commit(
        self,
        added: Sequence[Added],
        removed: Sequence[Removed],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        **more: Any,
    ) -> None:
        self.commits.append(self.storage.calls)
        super().commit(added, removed, transactions, metadata, **more)


@pytest.fixture
def watched(tmp_path: Path) -> tuple[SettledStream, FaultyStorage, Watched]:
    storage = FaultyStorage(LocalStorage())
    stream = SettledStream(tmp_path, storage=storage)
    stream.settle_to({0: 5})
    delta = Watched(stream.root, storage)
    stream.archive = stream.open(delta)
    return stream, storage, delta


def steps_between(storage: FaultyStorage, root: str, start: int, stop: int | None) -> list[tuple[str, str]]:
    return [(step.kind, step.path.removeprefix(root + "/")) for step in storage.steps[start:stop] if step.durable]


@pytest.mark.parametrize("work", ["settle", "compact"])
def test_objects_and_entries_are_durable_before_the_commit_and_it_before_the_answer(
    watched: tuple[SettledStream, FaultyStorage, Watched], work: str
) -> None:
    stream, storage, delta = watched
    if work == "compact":
        stream.settle_to({0: 8})
    begin = storage.calls
    if work == "settle":
        stream.settle_to({0: 9, 1: 4})
    else:
        assert stream.archive.compact(least_objects=2) is not None
    before = steps_between(storage, stream.root, begin, delta.commits[-1])
    after = steps_between(storage, stream.root, delta.commits[-1], None)

    path = stream.archive.snapshot().objects.paths[-1]
    directory = path.rpartition("/")[0]
    wanted = [("write", path), ("sync", path), ("sync_directory", directory)]
    assert [step for step in before if step in wanted] == wanted
    index = next(p for kind, p in before if kind == "create" and p.startswith("_index/"))
    entries = [("write", index), ("sync", index), ("sync_directory", "_index")]
    assert [step for step in before if step in entries] == entries
    written = {p for kind, p in before if kind == "write"}
    assert written == {p for kind, p in before if kind == "sync"}, "something was written and not synced"

    commit = f"_delta_log/{stream.archive.snapshot().version:020d}.json"
    assert after == [("sync_file", commit), ("sync_directory", "_delta_log")]


def test_a_new_directory_is_durable_before_anything_is_in_it(
    watched: tuple[SettledStream, FaultyStorage, Watched],
) -> None:
    _, storage, _ = watched
    steps = [(step.kind, step.path) for step in storage.steps if step.durable]
    made = [path for kind, path in steps if kind == "add_directory"]
    assert {Path(path).name for path in made} >= {"g00001", "_index", "_delta_log"}
    for path in made:
        at = steps.index(("add_directory", path))
        assert steps[at + 1] == ("sync_directory", str(Path(path).parent))


def test_opening_makes_durable_what_a_killed_process_left(tmp_path: Path) -> None:
    """The log lets go of records because of what opening finds, so it must be there after a power cut."""
    SettledStream(tmp_path).settle_to({0: 5})
    storage = FaultyStorage(LocalStorage())
    stream = SettledStream(tmp_path, storage=storage)
    synced = [(step.kind, step.path.removeprefix(stream.root)) for step in storage.steps if step.durable]
    log = "/_delta_log"
    assert synced == [
        ("sync_file", f"{log}/{0:020d}.json"),
        ("rewrite", f"{log}/{1:020d}.json"),
        ("sync_directory", log),
        ("sync_directory", ""),
    ]


def test_a_checkpoint_is_durable_before_it_is_vouched_for_and_before_anything_is_removed(
    watched: tuple[SettledStream, FaultyStorage, Watched],
) -> None:
    stream, storage, _ = watched
    stream.settle_to({0: 9})
    begin = storage.calls
    stream.archive.checkpoint()
    steps = steps_between(storage, stream.root, begin, None)
    version = stream.archive.snapshot().version
    order = [
        ("sync_file", f"_delta_log/{version:020d}.checkpoint.parquet"),
        ("sync_file", "_delta_log/_last_checkpoint"),
        ("sync_directory", "_delta_log"),
        ("sync", f"_index/{version:012d}.checkpoint.parquet"),
        ("rename", "_index/_last_checkpoint"),
    ]
    assert [step for step in steps if step in order] == order
    removals = [at for at, (kind, _) in enumerate(steps) if kind == "remove"]
    assert removals
    assert removals[0] > steps.index(("rename", "_index/_last_checkpoint")) + 1, "the hint was not synced yet"
