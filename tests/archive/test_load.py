"""Loads: objects that others wrote (O1), made visible with one commit, which alone says what counts (O2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from millpond.archive.ledger import Change, Ledger
from millpond.archive.load import ROW_BITS, Load, LoadReport, LoadWriter
from millpond.errors import InvalidInput, OffsetGone, SettleConflict, SettleFailed
from millpond.model.schema import OFFSET, STREAMLET
from millpond.storage import LocalStorage
from tests.archive.settled_stream import MIDNIGHT, SCHEMA, SettledStream, define, read_all, records


def rows(start: int, stop: int) -> pa.RecordBatch:
    return records(0, start, stop).select(SCHEMA.names)


def begin(stream: SettledStream, **marks: int) -> Load:
    load = stream.archive.begin_load(MIDNIGHT, marks)
    assert load is not None
    return load


def write(stream: SettledStream, load: Load, task: int, *batches: pa.RecordBatch) -> pa.Table | None:
    with LoadWriter(
        LocalStorage(), stream.root, stream.definition, load, task, ROW_BITS, object_bytes=1 << 20
    ) as writer:
        for batch in batches:
            writer.add(batch)
        return writer.finish()


def commit(stream: SettledStream, load: Load, *reports: pa.Table | None) -> LoadReport:
    return stream.archive.commit_load(load, pa.concat_tables([each for each in reports if each is not None]))


def places(stream: SettledStream) -> tuple[list[int], list[int]]:
    table = read_all(stream.archive.snapshot())
    return table.column(STREAMLET).to_pylist(), table.column(OFFSET).to_pylist()


def ns(stream: SettledStream) -> list[int]:
    return sorted(read_all(stream.archive.snapshot()).column("n").to_pylist())


def test_records_of_all_tasks_are_there_once_under_offsets_of_their_own(stream: SettledStream) -> None:
    load = begin(stream)
    done = commit(stream, load, write(stream, load, 0, rows(0, 5)), write(stream, load, 7, rows(5, 9)))
    table = read_all(stream.archive.snapshot())
    assert set(table.column(STREAMLET).to_pylist()) == {2}
    assert table.column(OFFSET).to_pylist() == [*range(5), *((7 << 32) + n for n in range(4))]
    assert (done.rows, done.boundary) == (9, (7 << 32) + 4)
    assert stream.boundary == {2: (7 << 32) + 4}
    assert stream.archive.verify() == []


def test_the_next_load_goes_on_behind_the_last(stream: SettledStream) -> None:
    for start in (0, 10):
        load = begin(stream)
        commit(stream, load, write(stream, load, 0, rows(start, start + 10)))
    assert read_all(stream.reopen()).column(OFFSET).to_pylist() == list(range(20))
    assert ns(stream) == [n * 10 for n in range(20)]


def test_what_was_not_reported_is_not_there(stream: SettledStream) -> None:
    load = begin(stream)
    write(stream, load, 0, rows(100, 200))
    commit(stream, load, write(stream, load, 0, rows(0, 5)))
    assert ns(stream) == [n * 10 for n in range(5)]


def test_settles_and_loads_do_not_touch_each_other(stream: SettledStream) -> None:
    stream.settle_to({0: 10, 1: 5})
    load, start = begin(stream), stream.boundary
    commit(stream, load, write(stream, load, 0, rows(0, 3)))
    stream.archive.settle(start, {0: 20, 1: 5}, [records(0, 10, 20)])  # began before the load's commit
    load = begin(stream)
    stream.settle_to({0: 25})
    commit(stream, load, write(stream, load, 1, rows(3, 4)))  # began before that settle
    assert stream.boundary == {0: 25, 1: 5, 2: 3 + (1 << 32) + 1}
    assert read_all(stream.reopen()).num_rows == 34
    assert stream.archive.verify() == []


def test_an_expiry_that_began_before_a_load_leaves_its_boundary_alone(stream: SettledStream) -> None:
    stream.settle_to({0: 10})
    first = begin(stream)
    commit(stream, first, write(stream, first, 0, rows(0, 3)))
    looked = stream.boundary
    second = begin(stream)
    commit(stream, second, write(stream, second, 0, rows(3, 8)))
    stream.archive.expire(MIDNIGHT - 1, looked, {**looked, 0: 12}, lambda _: None)
    assert stream.boundary == {0: 12, 2: 8}
    third = begin(stream)
    commit(stream, third, write(stream, third, 0, rows(8, 9)))
    loaded = [o for s, o in zip(*places(stream), strict=True) if s == 2]
    assert loaded == list(range(9))
    assert stream.archive.verify() == []


def test_no_commit_sets_a_boundary_back(stream: SettledStream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.settle_to({0: 10, 1: 5})
    load = begin(stream)
    commit(stream, load, write(stream, load, 0, rows(0, 3)))
    ledger = stream.archive._ledger
    for back in ({0: 9, 1: 5, 2: 3}, {0: 10, 1: 5}, {0: 10, 1: 5, 2: 2}):
        with pytest.raises(SettleFailed, match="would set streamlet"):
            ledger.commit(Change("expire", back))
    assert stream.boundary == {0: 10, 1: 5, 2: 3}
    assert stream.archive.verify() == []
    monkeypatch.setattr(Ledger, "_check_forward", lambda *_: None)
    ledger.commit(Change("expire", {0: 10, 1: 5, 2: 2}))
    assert any("s2 back from 3 to 2" in finding.message for finding in stream.archive.verify())


def test_an_independent_reader_counts_the_same(stream: SettledStream) -> None:
    stream.settle_to({0: 10})
    load = begin(stream)
    commit(stream, load, *(write(stream, load, task, rows(0, 100)) for task in range(3)))
    assert DeltaTable(stream.root).to_pyarrow_table().num_rows == 310


def test_a_commit_that_is_asked_for_again_is_made_once(stream: SettledStream) -> None:
    load = begin(stream)
    report = write(stream, load, 0, rows(0, 5))
    first = commit(stream, load, report)
    assert commit(stream, load, report).version == first.version
    stream.reopen()  # another process, which never heard of the load
    assert commit(stream, load, report).version == first.version
    assert len(ns(stream)) == 5


def test_a_load_that_another_one_overtook_is_refused_whole(stream: SettledStream) -> None:
    late, load = begin(stream), begin(stream)
    commit(stream, load, write(stream, load, 0, rows(0, 5)))
    with pytest.raises(SettleConflict, match="another load"):
        commit(stream, late, write(stream, late, 0, rows(5, 9)))
    assert ns(stream) == [n * 10 for n in range(5)]


def test_numbered_loads_happen_once(stream: SettledStream) -> None:
    load = begin(stream, query=7)
    commit(stream, load, write(stream, load, 0, rows(0, 5)))
    stream.reopen()
    assert stream.archive.begin_load(MIDNIGHT, {"query": 7}) is None
    assert stream.archive.begin_load(MIDNIGHT, {"query": 6}) is None
    assert begin(stream, query=8).base == 5
    assert begin(stream, another=0).base == 5
    assert stream.archive.verify() == []


def test_a_report_that_cannot_be_right_is_refused_before_anything_is_written(stream: SettledStream) -> None:
    load = begin(stream)
    report = write(stream, load, 0, rows(0, 5))
    assert report is not None

    def with_column(name: str, value: object) -> pa.Table:
        kind = report.schema.field(name).type
        return report.set_column(report.schema.get_field_index(name), name, pa.array([value], kind))

    wrong = [
        with_column("path", "g00001/0.86400/b0000-000000000000-00000000.parquet"),
        with_column("path", "../outside.parquet"),
        with_column("bytes", 1),
        with_column(f"min.{STREAMLET}", 0),
        with_column(f"max.{OFFSET}", None),
        with_column(f"max.{OFFSET}", 2**62),
        report.drop_columns(["delta_stats"]),
        pa.concat_tables([report, report]),
    ]
    for each in wrong:
        with pytest.raises(InvalidInput):
            stream.archive.commit_load(load, each)
    assert stream.archive.snapshot(refresh=True).boundary == {}
    commit(stream, load, report)
    assert len(ns(stream)) == 5


def test_offsets_before_the_load_are_refused(stream: SettledStream) -> None:
    first, second = begin(stream), begin(stream)
    report = write(stream, second, 0, rows(0, 5))
    commit(stream, first, write(stream, first, 0, rows(0, 5)))
    later = begin(stream)
    with pytest.raises(InvalidInput, match="offsets"):
        commit(stream, later, report)


def test_a_load_of_an_old_generation_is_refused(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path)
    load = begin(stream)
    report = write(stream, load, 0, rows(0, 5))
    stream.definition = define(generation=2)
    stream.reopen()
    with pytest.raises(OffsetGone, match="truncated"):
        commit(stream, load, report)


def test_merging_keeps_loaded_records_apart_and_loses_none(stream: SettledStream) -> None:
    for number in range(5):
        stream.settle_to({0: 10 * (number + 1)})
        load = begin(stream)
        commit(stream, load, *(write(stream, load, task, rows(task, task + 1)) for task in range(3)))
    before = read_all(stream.archive.snapshot())
    assert stream.archive.compact() is not None
    snapshot = stream.archive.snapshot()
    assert len(snapshot.objects) == 2
    assert read_all(snapshot).equals(before)
    lows, highs = (snapshot.objects.entries.column(f"{kind}.{STREAMLET}") for kind in ("min", "max"))
    assert pc.all(pc.equal(lows, highs)).as_py()
    assert stream.archive.verify() == []


def test_rows_lie_in_their_time_partitions(tmp_path: Path) -> None:
    stream = SettledStream(tmp_path, define(event_time="at"))
    load = begin(stream)
    days = [pa.array(MIDNIGHT + day * 86_400_000_000 + np.arange(4), pa.timestamp("us", "UTC")) for day in range(3)]
    batches = [rows(0, 4).set_column(3, SCHEMA.field("at"), day) for day in days]
    done = commit(stream, load, write(stream, load, 0, *batches))
    assert done.objects == 3
    starts = {path.split("/")[1] for path in stream.archive.snapshot().objects.paths}
    assert starts == {f"{MIDNIGHT // 1_000_000 + day * 86_400}.86400" for day in range(3)}


def test_a_load_from_before_a_truncation_that_the_table_does_not_know_is_refused(stream: SettledStream) -> None:
    """It would be acknowledged into the generation that has ended, and gone with it."""
    load = begin(stream)
    report = write(stream, load, 0, rows(0, 5))
    stream.archive.begin_generation(2)
    with pytest.raises(OffsetGone, match="truncated while it was loaded"):
        commit(stream, load, report)
    assert len(stream.archive.snapshot().objects) == 0
    assert DeltaTable(stream.root).file_uris() == []
    load = begin(stream)
    assert load.generation == 2
