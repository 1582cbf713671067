"""Relayout: the same rows in other objects, unit by unit, proven, on top of whatever others commit meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import tests.archive.laid_out as laid_out
from millpond.archive import relayout
from millpond.archive.layout.kdtree import KdModel
from millpond.archive.relayout import Overtaken
from millpond.errors import Damaged, InvalidInput
from millpond.storage import LocalStorage
from tests.archive.laid_out import LAID_OUT, PLAIN, expected_days, planned, relaid, rewritten, settle_days
from tests.archive.settled_stream import SettledStream, read_all

BOUNDARY = {0: 60, 1: 45}


@pytest.fixture
def stream(tmp_path: Path) -> SettledStream:
    """Three days in nine objects, settled before the stream had a layout."""
    made = SettledStream(tmp_path, PLAIN)
    for stop in ({0: 25, 1: 0}, {0: 50, 1: 30}, BOUNDARY):
        settle_days(made.archive, stop)
    made.definition = LAID_OUT
    made.archive = made.open()
    return made


def partitions(stream: SettledStream) -> list[str]:
    return [path.split("/")[1] for path in stream.archive.snapshot().objects.paths]


def test_objects_lie_as_the_model_says_and_hold_the_same_rows(stream: SettledStream) -> None:
    before = stream.archive.snapshot()
    reports = list(relaid(stream))
    after = stream.archive.snapshot()
    assert [report.units for report in reports] == [1, 1, 1]
    assert sum(report.rows for report in reports) == 105
    assert after.boundary == before.boundary == BOUNDARY
    assert set(after.objects.paths).isdisjoint(before.objects.paths)
    assert sorted(set(partitions(stream))) == sorted({path.split("/")[1] for path in before.objects.paths})
    assert set(after.objects.entries.column("model").to_pylist()) == {laid_out.model_of(stream.archive).id}
    assert read_all(after).equals(expected_days(BOUNDARY))
    assert read_all(before).equals(expected_days(BOUNDARY)), "who took a snapshot before goes on reading it"
    assert DeltaTable(stream.root).to_pyarrow_table().num_rows == 105
    assert not stream.archive.verify()
    assert read_all(stream.reopen()).equals(expected_days(BOUNDARY))


def test_rows_of_an_object_are_of_its_bucket_and_partition(stream: SettledStream) -> None:
    list(relaid(stream))
    snapshot, model = stream.archive.snapshot(), laid_out.model_of(stream.archive)
    entries = snapshot.objects.entries.to_pylist()
    places = {(day, one["bucket"]) for day, one in zip(partitions(stream), entries, strict=True)}
    assert len(places) == len(entries)
    for at, entry in enumerate(entries):
        keep = np.arange(len(entries)) == at
        rows = pa.Table.from_batches(snapshot.read(keep))
        assert set(model.assign(rows, entry["buckets"]).tolist()) == {entry["bucket"]}
        assert len(set(pc.floor_temporal(rows["at"], unit="day").to_pylist())) == 1


def test_what_lies_right_is_left_alone(stream: SettledStream) -> None:
    list(relaid(stream))
    assert planned(stream.archive) == []
    assert planned(stream.open()) == [], "after a restart, too"
    settle_days(stream.archive, {0: 80, 1: 45})
    assert planned(stream.archive) == [], "a day of its own was laid out when it settled"
    settle_days(stream.archive, {0: 80, 1: 46})
    (unit,) = planned(stream.archive)
    assert len(unit.paths) > 1, "small objects of one day are merged on the way"


def test_a_new_model_is_reason_to_rewrite(stream: SettledStream) -> None:
    list(relaid(stream))
    rows = read_all(stream.archive.snapshot()).slice(0, 20)
    stream.archive.put_model(laid_out.LAYOUT.fit(rows))
    assert len(planned(stream.archive)) == 3
    list(relaid(stream))
    assert planned(stream.archive) == []
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))


def test_few_small_buckets_become_one_object(stream: SettledStream) -> None:
    model = laid_out.model_of(stream.archive)
    for unit in relayout.plan(stream.archive.snapshot(), LAID_OUT, model, object_bytes_min=10**6):
        report = relayout.rewrite(
            LocalStorage(), stream.root, LAID_OUT, laid_out.LAYOUT, model, unit, 0, object_bytes_min=10**6
        )
        assert stream.archive.relayout(unit, [report]).objects_after == 1
    assert relayout.plan(stream.archive.snapshot(), LAID_OUT, model, object_bytes_min=10**6) == []


def test_parts_of_a_unit_share_its_rows(stream: SettledStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout, "PART_BYTES", 1)
    units = planned(stream.archive)
    assert [unit.parts for unit in units] == [4, 4, 4]
    for unit in units:
        stream.archive.relayout(unit, rewritten(stream, unit))
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))
    assert planned(stream.archive) == []


def test_more_than_fits_in_memory_becomes_several_objects_of_a_bucket(
    stream: SettledStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayout, "_MEMORY_BYTES", 100)
    reports = list(relaid(stream))
    buckets = stream.archive.snapshot().objects.entries.column("bucket").to_pylist()
    assert sum(report.objects_after for report in reports) > len(set(zip(partitions(stream), buckets, strict=True)))
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))


def test_loads_stay_apart(stream: SettledStream) -> None:
    from millpond.archive.load import LoadWriter

    archive = stream.archive
    load = archive.begin_load(0)
    assert load is not None
    with LoadWriter(LocalStorage(), stream.root, LAID_OUT, load, 0, 8, object_bytes=10**6) as writer:
        writer.add(laid_out.records(0, 0, 5).select(["vid", "n", "temp", "at"]))
        report = writer.finish()
    assert report is not None
    archive.commit_load(load, report)
    units = planned(archive)
    assert [unit.loaded for unit in units] == [False, True, False, False]
    reports = list(relaid(stream))
    assert sum(report.rows for report in reports) == 110
    assert read_all(archive.snapshot()).num_rows == 110
    assert not archive.verify()


# Others who write meanwhile.


def test_settles_meanwhile_do_not_matter(stream: SettledStream) -> None:
    for number, unit in enumerate(planned(stream.archive)):
        reports = rewritten(stream, unit)
        settle_days(stream.archive, {0: 61 + number, 1: 45})
        stream.archive.relayout(unit, reports)
    assert stream.boundary == {0: 63, 1: 45}
    assert read_all(stream.archive.snapshot()).equals(expected_days({0: 63, 1: 45}))
    assert not stream.archive.verify()


def test_another_process_that_commits_first_is_committed_on_top_of(stream: SettledStream) -> None:
    (unit, *_) = planned(stream.archive)
    reports = rewritten(stream, unit)
    settle_days(stream.open(), {0: 70, 1: 45})
    stream.archive.relayout(unit, reports)
    assert read_all(stream.archive.snapshot()).equals(expected_days({0: 70, 1: 45}))


def merge(stream: SettledStream) -> None:
    assert stream.archive.compact(least_objects=2) is not None


def truncate(stream: SettledStream) -> None:
    stream.archive.begin_generation(2)
    stream.archive.finish_truncation()


def expire(stream: SettledStream) -> None:
    boundary = dict(stream.archive.snapshot().boundary)
    assert stream.archive.expire(2**62, boundary, boundary, lambda _: None).objects


def relay(stream: SettledStream) -> None:
    list(relaid(stream))


@pytest.mark.parametrize("other", [merge, truncate, expire, relay])
def test_a_unit_whose_objects_are_gone_is_overtaken(
    stream: SettledStream, other: Callable[[SettledStream], None]
) -> None:
    unit = planned(stream.archive)[1]
    reports = rewritten(stream, unit)
    other(stream)
    before = stream.archive.snapshot()
    with pytest.raises(Overtaken):
        stream.archive.relayout(unit, reports)
    after = stream.archive.snapshot(refresh=True)
    assert (after.version, after.objects.paths) == (before.version, before.objects.paths)
    assert not [one for one in stream.archive.verify() if one.severity == "error"]


def test_the_same_unit_twice_is_committed_once(stream: SettledStream) -> None:
    (unit, *_) = planned(stream.archive)
    first, second = rewritten(stream, unit), rewritten(stream, unit)
    stream.archive.relayout(unit, first)
    with pytest.raises(Overtaken):
        stream.archive.relayout(unit, second)
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))


def test_a_column_that_was_added_meanwhile_is_null(stream: SettledStream) -> None:
    (unit, *_) = planned(stream.archive)
    reports = rewritten(stream, unit)
    wider = pa.schema([*LAID_OUT.schema, pa.field("note", pa.string())])
    stream.archive.alter(replace(LAID_OUT, schemas=(*LAID_OUT.schemas, wider)))
    stream.archive.relayout(unit, reports)
    seen = read_all(stream.archive.snapshot())
    assert seen.column("note").null_count == 105
    assert seen.drop_columns(["note"]).equals(expected_days(BOUNDARY))


# What must not be believed.


def nothing_changed(stream: SettledStream, version: int) -> None:
    assert stream.archive.snapshot(refresh=True).version == version
    assert read_all(stream.archive.snapshot()).equals(expected_days(BOUNDARY))


def test_a_part_that_is_missing_or_doubled_is_refused(stream: SettledStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout, "PART_BYTES", 1)
    version = stream.archive.snapshot().version
    (unit, *_) = planned(stream.archive)
    parts = rewritten(stream, unit)
    for wrong in (parts[1:], parts[:-1], [*parts, parts[-1]], [parts[0], *parts[:-1]]):
        with pytest.raises((Damaged, InvalidInput)):
            stream.archive.relayout(unit, wrong)
    with pytest.raises(InvalidInput, match="not a report"):
        stream.archive.relayout(unit, [part.replace_schema_metadata(None) for part in parts])
    nothing_changed(stream, version)


def test_a_report_of_other_objects_is_refused(stream: SettledStream) -> None:
    version = stream.archive.snapshot().version
    first, second, _ = planned(stream.archive)
    with pytest.raises((Damaged, InvalidInput)):
        stream.archive.relayout(first, rewritten(stream, second))
    reports = rewritten(stream, first)
    path = Path(stream.root) / reports[0].column("path")[0].as_py()
    path.unlink()
    with pytest.raises(InvalidInput, match="is not in the archive"):
        stream.archive.relayout(first, reports)
    nothing_changed(stream, version)


def test_a_model_that_changes_its_mind_loses_no_row(stream: SettledStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout of a user's may be anything: rows that no part takes, or two do, are seen before the commit."""
    monkeypatch.setattr(relayout, "PART_BYTES", 1)
    version = stream.archive.snapshot().version
    (unit, *_) = planned(stream.archive)
    rng = np.random.default_rng(0)

    def by_chance(self: KdModel, rows: pa.Table) -> Any:
        return rng.integers(0, self.buckets, rows.num_rows).astype(np.int32)

    with monkeypatch.context() as broken:
        broken.setattr(KdModel, "_assign", by_chance)
        reports = rewritten(stream, unit)
        with pytest.raises(Damaged, match="not the same"):
            stream.archive.relayout(unit, reports)
    nothing_changed(stream, version)


def test_what_was_written_is_read_back(stream: SettledStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that changes between being read and being on disk fails its part, which leaves nothing behind."""
    (unit, *_) = planned(stream.archive)
    kept = relayout.ObjectWriter.add_block

    def spoil(self: Any, start: int, seconds: int, table: pa.Table, within: int = 1) -> None:
        at = table.schema.get_field_index("temp")
        kept(self, start, seconds, table.set_column(at, table.schema.field(at), pc.negate(table["temp"])), within)

    objects = set(Path(stream.root).rglob("*.parquet"))
    monkeypatch.setattr(relayout.ObjectWriter, "add_block", spoil)
    with pytest.raises(Damaged, match="other contents"):
        rewritten(stream, unit)
    assert set(Path(stream.root).rglob("*.parquet")) == objects


def test_a_damaged_object_is_not_rewritten(stream: SettledStream) -> None:
    (unit, *_) = planned(stream.archive)
    path = Path(stream.root) / unit.paths[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        rewritten(stream, unit)


def test_vacuum_takes_what_was_replaced_and_what_came_to_nothing(stream: SettledStream) -> None:
    def files() -> Iterator[str]:
        return (str(path.relative_to(stream.root)) for path in Path(stream.root).glob("g*/*/*.parquet"))

    (unit, *_) = planned(stream.archive)
    rewritten(stream, unit)  # its driver was killed
    list(relaid(stream))
    kept = set(stream.archive.snapshot().objects.paths)
    assert kept < set(files())
    assert stream.archive.vacuum(0).objects == 0, "all of it was there a moment ago"
    stream.archive.vacuum(2**62)
    assert set(files()) == kept
    assert read_all(stream.reopen()).equals(expected_days(BOUNDARY))


def test_a_day_that_the_model_does_not_know_is_laid_out_by_one_that_stands_in_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers only grow, so that a model of the first day would put all of the last day into one bucket."""
    from millpond.archive.layout import arranging

    monkeypatch.setattr(arranging, "_FEW_PER_BUCKET", 2)
    stream = SettledStream(tmp_path, PLAIN)
    settle_days(stream.archive, {0: 60, 1: 60})
    stream.definition = LAID_OUT
    stream.archive = stream.open()
    first_day = read_all(stream.archive.snapshot()).filter(pc.field("_offset") < 20)
    model = stream.archive.put_model(laid_out.LAYOUT.fit(first_day)).model
    assert [len(unit.paths) for unit in planned(stream.archive)] == [1, 1, 1]
    list(relaid(stream))
    entries = stream.archive.snapshot().objects.entries.to_pylist()
    by_day = {day: one["model"] for day, one in zip(partitions(stream), entries, strict=True)}
    names = [by_day[day] for day in sorted(by_day)]
    assert names[0] == model.id
    assert all(name.startswith(f"{model.id}+") for name in names[1:])
    assert len(entries) == 12, "four buckets of each day are filled"
    assert planned(stream.archive) == []
    assert read_all(stream.archive.snapshot()).equals(expected_days({0: 60, 1: 60}))
