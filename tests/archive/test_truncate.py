"""I7, C11: a truncation takes everything out of the table, and whoever slept through it can never commit.

Another archive on the same directory stands for the one that sleeps: a settler of another process, say. It is put to
sleep before every single step that it takes, and wakes up after the truncation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.archive.state import app_id
from millpond.archive.stream_archive import StreamArchive
from millpond.errors import Damaged, MillpondError, SettleConflict, Truncated
from millpond.model.schema import STREAMLET, stored_schema
from millpond.storage import LocalStorage
from millpond.testing import Crash, FaultyStorage
from tests.archive.settled_stream import SCHEMA, SettledStream, define, expected, read_all, records

T = TypeVar("T")


class Sleeper(FaultyStorage):
    """Storage whose user is put to sleep before step `at`, once it is set, while `meanwhile` happens."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(LocalStorage())
        self._meanwhile, self.at, self.slept = meanwhile, 0, False

    def step(self, kind: str, path: str, act: Callable[[], T], **more: Any) -> T:
        if self.calls + 1 == self.at and not self.slept:
            self.slept = True
            self._meanwhile()
        return super().step(kind, path, act, **more)


def truncated(stream: SettledStream) -> StreamArchive:
    """The stream's archive after one more truncation."""
    stream.definition = replace(stream.definition, generation=stream.definition.generation + 1)
    archive = stream.archive
    archive.begin_generation(stream.definition.generation)
    assert archive.finish_truncation()
    return archive


def listed(stream: SettledStream) -> set[str]:
    """What other engines find in the table."""
    return set(deltalake.DeltaTable(stream.root).file_uris())


def stated(stream: SettledStream, generation: int, streamlet: int = 0) -> int | None:
    name = app_id("pond-1", replace(stream.definition, generation=generation), streamlet)
    return deltalake.DeltaTable(stream.root).transaction_version(name)


def test_one_commit_takes_everything_out_and_begins_at_zero(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 8, 1: 3})
    stream.settle_to({0: 10, 1: 3})
    before = stream.archive.snapshot()
    archive = truncated(stream)
    snapshot = archive.snapshot()
    assert (snapshot.version, snapshot.generation) == (before.version + 1, 2)
    assert (snapshot.boundary, len(snapshot.objects)) == ({0: 0, 1: 0}, 0)
    assert listed(stream) == set()
    assert (stated(stream, 1), stated(stream, 2)) == (2**63 - 1, 0)
    assert archive.verify() == []
    assert read_all(before).num_rows == 13, "a query that began before reads on"
    stream.settle_to({0: 4, 1: 2}, generation=2)
    assert read_all(stream.archive.snapshot()).equals(expected({0: 4, 1: 2}))
    assert read_all(stream.reopen()).equals(expected({0: 4, 1: 2}))
    assert stream.archive.verify() == []
    assert pa.table(deltalake.DeltaTable(stream.root).to_pyarrow_table()).num_rows == 6


def test_truncating_again_and_checkpoints_change_nothing_about_it(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    for generation in range(1, 5):
        stream.settle_to({0: generation, 1: 0}, generation=generation)
        assert read_all(stream.archive.snapshot()).num_rows == generation
        if generation % 2:
            stream.archive.checkpoint()
        truncated(stream)
        if generation % 3:
            stream.archive.checkpoint()
        assert stream.reopen().boundary == {0: 0, 1: 0}
        assert stream.archive.snapshot().generation == generation + 1
    assert stream.archive.verify() == []


def test_a_stream_that_never_settled_gets_a_table_that_says_so(tmp_path: Path) -> None:
    """For whoever was about to make its first settle."""
    stream = SettledStream(tmp_path)
    asleep = stream.open()
    truncated(stream)
    assert (stated(stream, 1), stated(stream, 2)) == (None, 0)
    with pytest.raises(SettleConflict, match="generation 1 is gone"):
        asleep.settle({}, {0: 5}, [records(0, 0, 5)])
    never = SettledStream(tmp_path / "never", define(settle=None))
    truncated(never)
    assert not Path(never.root).exists()


def test_what_other_engines_added_goes_as_well(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 3, 1: 0})
    foreign = pa.Table.from_batches([records(0, 100, 105)], stored_schema(SCHEMA))
    deltalake.write_deltalake(stream.root, foreign, mode="append")
    stream.archive.snapshot(refresh=True)
    assert read_all(stream.archive.snapshot()).num_rows == 8
    truncated(stream)
    assert listed(stream) == set()
    assert read_all(stream.reopen()).num_rows == 0
    deltalake.write_deltalake(stream.root, foreign, mode="append")
    assert read_all(stream.reopen()).num_rows == 5, "added to the new generation"


def sleeping_runs(
    tmp_path: Path, prepare: Callable[[SettledStream], None], work: Callable[[StreamArchive], object]
) -> int:
    """Let `work` on an old archive sleep before each of its steps in turn, and check what is left; how many there
    were."""
    at = 0
    while True:
        at += 1
        stream = SettledStream(tmp_path / str(at))
        prepare(stream)
        old = stream.definition

        def meanwhile(stream: SettledStream = stream) -> None:
            truncated(stream)
            stream.settle_to({0: 2, 1: 1}, generation=2)

        storage = Sleeper(meanwhile)
        asleep = StreamArchive.open(storage, stream.root, old, "pond-1", stream.clock)
        storage.at = storage.calls + at
        with contextlib.suppress(SettleConflict):
            work(asleep)
        if not storage.slept:
            return at - 1
        stream.archive.snapshot(refresh=True)
        found = [path for path in listed(stream) if "/g00002/" not in path]
        if found:  # it had committed before it slept, and the truncation took that out again
            raise AssertionError(f"asleep before step {at} ({storage.steps[-1]}), then committed {found}")
        assert read_all(stream.archive.snapshot()).equals(expected({0: 2, 1: 1})), at
        assert read_all(stream.reopen()).equals(expected({0: 2, 1: 1})), at
        assert [each for each in stream.archive.verify() if each.severity == "error"] == []


@pytest.mark.parametrize("settled", [{}, {0: 6, 1: 4}], ids=["the first settle", "a later settle"])
def test_a_settle_that_slept_through_it_never_commits(tmp_path: Path, settled: dict[int, int]) -> None:
    def work(archive: StreamArchive) -> None:
        start = dict(archive.snapshot().boundary)
        stop = {0: start.get(0, 0) + 5, 1: start.get(1, 0)}
        archive.settle(start, stop, [records(0, stop[0] - 5, stop[0])])

    def prepare(stream: SettledStream) -> None:
        if settled:
            stream.settle_to(settled)

    assert sleeping_runs(tmp_path, prepare, work) > 10


def test_a_merge_that_slept_through_it_never_commits(tmp_path: Path) -> None:
    def prepare(stream: SettledStream) -> None:
        for stop in range(1, 4):
            stream.settle_to({0: stop, 1: 0})

    assert sleeping_runs(tmp_path, prepare, lambda archive: archive.compact(least_objects=2)) > 10


def test_a_load_that_slept_through_it_never_commits(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 2, 1: 0})
    load = stream.archive.begin_load(1_000_000)
    assert load is not None
    truncated(stream)
    report = pa.table({"path": pa.array([], pa.string())})
    with pytest.raises(MillpondError):
        stream.archive.commit_load(load, report)
    assert listed(stream) == set()


def test_a_settle_that_sleeps_in_this_very_process_never_commits(tmp_path: Path) -> None:
    """Whatever the locks let through: the records are of a generation that is over."""
    stream = SettledStream(tmp_path)

    def batches() -> Any:
        yield records(0, 0, 3)
        truncated(stream)
        yield records(0, 3, 5)

    with pytest.raises(SettleConflict):
        stream.archive.settle({}, {0: 5}, batches(), generation=1)
    assert stream.archive.snapshot().boundary == {0: 0, 1: 0}
    assert listed(stream) == set()
    with pytest.raises(Truncated, match="generation 1 is gone, this is 2"):
        stream.archive.settle({}, {0: 5}, [records(0, 0, 5)], generation=1)


def test_a_crash_before_the_commit_is_made_good_by_the_next_open(tmp_path: Path) -> None:
    """At every step of it, and however often it crashes."""
    at = 0
    while True:
        at += 1
        stream = SettledStream(tmp_path / str(at))
        stream.settle_to({0: 6, 1: 4})
        storage = FaultyStorage(LocalStorage())
        archive = StreamArchive.open(storage, stream.root, stream.definition, "pond-1", stream.clock)
        stream.definition = replace(stream.definition, generation=2)
        storage.crash_at(len(storage.durable_steps) + at, after=bool(at % 2))
        try:
            archive.begin_generation(2)
            archive.finish_truncation()
        except Crash:
            pass
        else:
            assert at > 2
            return
        again = FaultyStorage(LocalStorage())
        again.crash_at(1 + at % 3)
        with contextlib.suppress(Crash):
            stream.open(storage=again)
        stream.reopen()
        assert (stream.boundary, stream.archive.snapshot().generation) == ({0: 0, 1: 0}, 2)
        assert listed(stream) == set()
        stream.settle_to({0: 2, 1: 1}, generation=2)
        assert read_all(stream.reopen()).equals(expected({0: 2, 1: 1}))
        assert stream.archive.verify() == []


def test_a_failing_disk_leaves_the_commit_to_the_next_writer(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 6, 1: 4})
    storage = FaultyStorage(LocalStorage())
    stream.archive = StreamArchive.open(storage, stream.root, stream.definition, "pond-1", stream.clock)
    stream.definition = replace(stream.definition, generation=2)
    storage.fail(at=storage.calls + 1)
    stream.archive.begin_generation(2)
    assert not stream.archive.finish_truncation()
    assert stream.archive.snapshot().boundary == {}
    assert any("truncated" in warning for warning in stream.archive.snapshot().warnings)
    assert len(listed(stream)) == 1, "the table is behind, and nobody here reads it"
    assert read_all(stream.archive.snapshot()).num_rows == 0
    stream.settle_to({0: 2, 1: 1}, generation=2)
    assert read_all(stream.archive.snapshot()).equals(expected({0: 2, 1: 1}))
    assert all("/g00002/" in path for path in listed(stream))


def test_a_table_ahead_of_the_catalog_is_not_opened(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 6, 1: 4})
    truncated(stream)
    stream.definition = replace(stream.definition, generation=1)
    with pytest.raises(Damaged, match="the table has 2"):
        stream.open()


def test_objects_say_which_generation_they_are_of(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    stream.settle_to({0: 2, 1: 0})
    truncated(stream)
    stream.settle_to({0: 1, 1: 0}, generation=2)
    (path,) = stream.archive.snapshot().objects.paths
    assert path.startswith("g00002/")
    assert pq.read_table(Path(stream.root) / path).column(STREAMLET).to_pylist() == [0]
