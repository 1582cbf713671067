"""Indexes of a stream: made as objects are written, added and rebuilt later, and believed in what they prove only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import Bloom, Boxes, IndexKind, MinMax, Values
from millpond.archive.index.inverted import Lists
from millpond.archive.index.registry import INDEXES
from millpond.archive.index.view import Entries
from millpond.archive.object_index import ObjectIndex
from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, StartsWith
from millpond.model.spec import Spec, parse_spec

SCHEMA = pa.schema(
    [("vid", pa.string()), ("city", pa.string()), ("lat", pa.float64()), ("lon", pa.float64()), ("note", pa.string())]
)
INDEXES_OF_ALL = ["values:city", "boxes:lat,lon", "bloom:vid", "values:note,words=true", "minmax:lat"]
# Every object has two towns far apart and ids from everywhere, so that ranges alone rule out nothing.
TOWNS = [(48.0, 2.0), (43.0, 7.0), (-33.0, 179.9), (-33.0, -179.9)]


def rows_of(number: int) -> list[dict[str, Any]]:
    made = []
    for row in range(40):
        lat, lon = TOWNS[(number + row % 2) % len(TOWNS)]
        made.append(
            {
                "vid": f"v{(row * 7919 + number * 104729) % 99991}",
                "city": f"city-{'az'[row % 2]}-{number}",
                "lat": lat + row / 1000,
                "lon": lon,
                "note": f"a meter, number {number}; all-is-well",
            }
        )
    return made


def fill(stream: millpond.Stream, objects: int, first: int = 0) -> None:
    for number in range(first, first + objects):
        stream.append(rows_of(number))
        stream.settle()


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", background=False) as opened:
        yield opened


def objects_of(stream: millpond.Stream) -> ObjectIndex:
    return stream.archive.snapshot().objects


def kept(stream: millpond.Stream, predicate: Predicate) -> list[int]:
    found = objects_of(stream).prune(predicate)
    assert not found.failures
    return np.flatnonzero(found.keep).tolist()


def ruled_out_by_each(stream: millpond.Stream) -> None:
    """Each index rules out what ranges cannot, and nothing else."""
    vid = rows_of(3)[5]["vid"]
    for predicate, wanted in [
        (In("city", ("city-a-2", "city-m-0")), [2]),
        (And((Compare(">", "lat", 45.0), Compare("<", "lon", 5.0))), [0, 3, 4]),
        (Compare("=", "vid", vid), [3]),
        (Like("note", "%number 4; all%"), [4]),
        (Or((Compare("=", "vid", vid), Compare("=", "city", "city-z-1"))), [1, 3]),
        (Not(In("city", ("city-a-1", "city-z-1"))), [0, 2, 3, 4, 5]),
    ]:
        assert kept(stream, predicate) == wanted, predicate


def test_what_indexes_rule_out_and_what_a_query_then_reads(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=INDEXES_OF_ALL)
    fill(stream, 6)
    ruled_out_by_each(stream)
    report = stream.explain("city IN ('city-a-2', 'city-m-0')")
    assert (report.objects_read, dict(report.skipped_by)) == (1, {"values(city)": 5})
    assert stream.count("city = 'city-a-2'") == 20
    assert stream.scan("vid = 'v0'").num_rows == 1


def test_entries_survive_a_reopen_and_checkpoints(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("m", SCHEMA, indexes=[Values("city"), Boxes("lat", "lon"), Bloom("vid")])
        pond.alter_stream("m", indexes=INDEXES_OF_ALL)
        fill(stream, 6)
        stream.archive.checkpoint()
    with millpond.open(tmp_path / "pond", background=False) as pond:
        ruled_out_by_each(pond.stream("m"))


def test_objects_that_go_while_indexes_are_rebuilt_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.archive.reindex._COMMIT_OBJECTS", 1)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("m", SCHEMA)
        fill(stream, 6)
        pond.alter_stream("m", indexes=INDEXES_OF_ALL)
        told: list[tuple[int, int]] = []

        def progress(done: int, total: int) -> None:
            if not told:  # the objects are merged, and their files removed
                assert stream.archive.compact(least_objects=2) is not None
                assert stream.archive.vacuum(2**62).objects >= 6
            told.append((done, total))

        assert stream.rebuild_indexes(progress=progress).objects == 1
        assert told == [(done, 6) for done in range(1, 7)]
        assert stream.rebuild_indexes().objects == 0, "what was merged has entries"
        assert not [finding for finding in stream.archive.verify() if finding.severity == "error"]


def test_an_index_that_is_added_later_is_rebuilt(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("m", SCHEMA)
        fill(stream, 6)
        before = stream.scan().sort_by("vid")
        version = stream.snapshot().version
        pond.alter_stream("m", indexes=INDEXES_OF_ALL)
        assert kept(stream, Compare("=", "vid", "v5000x")) == [0, 1, 2, 3, 4, 5]
        told: list[tuple[int, int]] = []
        report = stream.rebuild_indexes(progress=lambda done, total: told.append((done, total)))
        assert (report.objects, told) == (6, [(6, 6)])
        assert stream.snapshot().version == version + 1
        ruled_out_by_each(stream)
        assert stream.rebuild_indexes().objects == 0
        assert stream.rebuild_indexes(everything=True).objects == 6
        assert stream.scan().sort_by("vid").equals(before)
        assert not [finding for finding in stream.archive.verify() if finding.severity == "error"]
    with millpond.open(tmp_path / "pond", background=False) as pond:
        ruled_out_by_each(pond.stream("m"))
        fill(pond.stream("m"), 1, first=6)
        pond.stream("m").archive.checkpoint()
    with millpond.open(tmp_path / "pond", background=False) as pond:
        assert kept(pond.stream("m"), Compare("=", "city", "city-a-6")) == [6]
        pond.alter_stream("m", indexes=())
        assert objects_of(pond.stream("m")).indexes == []


def test_what_merging_makes_is_described_too(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=INDEXES_OF_ALL)
    fill(stream, 4)
    assert stream.archive.compact() is not None
    assert len(objects_of(stream)) == 1
    assert kept(stream, Compare("=", "city", "city-m-0")) == []
    assert kept(stream, Compare("=", "city", "city-z-3")) == [0]


class Raising(IndexKind):
    """Fails in one way or another."""

    name = "raising"

    def __init__(self, column: str, how: str = "keep") -> None:
        super().__init__(column, how=how)
        self._how = how

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("n", pa.int64())]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        if self._how == "describe":
            raise RuntimeError("cannot describe")
        return {"n": "not a number"} if self._how == "type" else {"n": 1}

    def keep(self, term: Predicate, entries: Entries) -> npt.NDArray[np.bool_] | None:
        match self._how:
            case "keep":
                raise RuntimeError("cannot keep")
            case "length":
                return np.zeros(len(entries) + 1, dtype=np.bool_)
            case "kind":
                return np.zeros(len(entries), dtype=np.int64)  # type: ignore[return-value]
        return np.zeros(len(entries), dtype=np.bool_)


@pytest.mark.parametrize(
    ("how", "failure"),
    [
        ("keep", "RuntimeError: cannot keep"),
        ("length", "an answer of bool(3,) about 2 objects"),
        ("kind", "an answer of int64(2,) about 2 objects"),
        ("describe", None),
        ("type", None),
    ],
)
def test_a_kind_that_fails_costs_time_and_no_rows(pond: millpond.Pond, how: str, failure: str | None) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=[Raising("city", how=how), Values("city")])
    fill(stream, 3)
    report = stream.explain("city = 'city-a-1'")
    assert report.objects_read == 1
    assert dict(report.failures) == ({"raising(city)": failure} if failure else {})
    assert stream.count("city = 'city-a-1'") == 20
    pond.alter_stream("m", indexes=[Raising("city", how=how)])
    assert stream.count("city = 'city-a-1'") == 20


def test_a_kind_that_is_not_known_any_more_is_told_and_its_entries_wait(tmp_path: Path) -> None:
    class Here(Values):
        name = "here"

    with millpond.open(tmp_path / "pond", background=False) as pond:
        fill(pond.create_stream("m", SCHEMA, indexes=[Here("city")]), 3)
    INDEXES.forget("here")
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.stream("m")
        (warning,) = stream.archive.snapshot().warnings
        assert "index here(city) is not used" in warning
        assert kept(stream, Compare("=", "city", "city-m-1")) == [0, 1, 2]
        assert stream.count("city = 'city-a-1'") == 20
        stream.archive.checkpoint()
        with pytest.raises(InvalidValue, match="no index kind 'here'"):
            pond.create_stream("n", SCHEMA, indexes=["here:city"])
    INDEXES.register(Here)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        assert kept(pond.stream("m"), In("city", ("city-a-1", "city-m-1"))) == [1]
    INDEXES.forget("here")


def test_an_entry_of_another_version_of_a_kind_is_not_used(tmp_path: Path) -> None:
    class Newer(Values):
        name = "aging"

        def fields(self, schema: pa.Schema) -> list[pa.Field]:
            return [pa.field("values", pa.int64())]

        def keep(self, term: Predicate, entries: Entries) -> npt.NDArray[np.bool_] | None:
            return np.zeros(len(entries), dtype=np.bool_)

    class Older(Values):
        name = "aging"

    with millpond.open(tmp_path / "pond", background=False) as pond:
        fill(pond.create_stream("m", SCHEMA, indexes=[Older("city")]), 2)
    INDEXES.register(Newer)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        fill(pond.stream("m"), 1, first=2)
        assert kept(pond.stream("m"), Compare(">", "city", "a")) == [0, 1, 2]
    with millpond.open(tmp_path / "pond", background=False) as pond:
        assert pond.stream("m").count("city > 'a'") == 120
    INDEXES.forget("aging")


def blob_files(stream: millpond.Stream) -> list[Path]:
    return sorted((Path(stream.archive.root) / "_index").glob("*.blobs"))


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "empty"])
def test_a_blob_that_is_damaged_costs_time_and_no_rows(tmp_path: Path, damage: str) -> None:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("m", SCHEMA, indexes=["bloom:vid"])
        fill(stream, 3)
        files = blob_files(stream)
        assert len(files) == 3
    for file in files:
        data = bytearray(file.read_bytes())
        match damage:
            case "missing":
                file.unlink()
            case "truncated":
                os.truncate(file, len(data) // 2)
            case "empty":
                os.truncate(file, 0)
            case _:
                data[len(data) // 2] ^= 0xFF
                file.write_bytes(data)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.stream("m")
        assert kept(stream, Compare("=", "vid", "nowhere in there")) == []  # outside of the range of text
        assert kept(stream, Compare("=", "vid", "v5000x")) == [0, 1, 2]
        assert stream.count(f"vid = '{rows_of(1)[7]['vid']}'") == 1
        assert stream.rebuild_indexes(everything=True).objects == 3
        assert kept(stream, Compare("=", "vid", "v5000x")) == []


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_an_index_file_that_is_damaged_costs_time_and_can_be_rebuilt(tmp_path: Path, damage: str) -> None:
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("m", SCHEMA, indexes=INDEXES_OF_ALL)
        fill(stream, 6)
        files = sorted((Path(stream.archive.root) / "_index").glob("*.parquet"))
    for file in files[:3]:
        if damage == "missing":
            file.unlink()
        else:
            data = bytearray(file.read_bytes())
            data[len(data) // 3] ^= 0x10
            file.write_bytes(data)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.stream("m")
        assert len(stream.archive.snapshot().warnings) == 3
        assert kept(stream, Compare("=", "city", "city-a-5")) == [0, 1, 2, 5]
        assert stream.count("city = 'city-a-1'") == 20
        assert stream.rebuild_indexes().objects == 3
        ruled_out_by_each(stream)
    with millpond.open(tmp_path / "pond", background=False) as pond:
        ruled_out_by_each(pond.stream("m"))


def test_blobs_stay_as_long_as_an_entry_names_them(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=["bloom:vid"])
    fill(stream, 4)
    stream.archive.checkpoint()
    old = blob_files(stream)
    for file in old:
        os.utime(file, (0, 0))
    assert stream.vacuum("7d").objects == 0
    assert blob_files(stream) == old
    assert stream.archive.compact() is not None
    for file in blob_files(stream):
        os.utime(file, (0, 0))
    assert stream.vacuum("7d", preview=True).objects == 4
    assert stream.vacuum("7d").objects == 4
    (left,) = blob_files(stream)
    assert left not in old
    assert kept(stream, Compare("=", "vid", "v5000x")) == []


def test_an_entry_never_leads_out_of_the_index(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=["bloom:vid"])
    fill(stream, 1)
    objects = objects_of(stream)
    column = objects.entries.column("bloom(vid).filter").to_pylist()
    for name in ("../../../etc/passwd", "/etc/passwd", ""):
        entries = objects.entries.set_column(
            objects.entries.schema.get_field_index("bloom(vid).filter"),
            "bloom(vid).filter",
            pa.array([{**column[0], "file": name}], objects.entries.schema.field("bloom(vid).filter").type),
        )
        changed = objects.aligned(objects.entries.select(["path", "bytes", "rows"]), entries)
        assert changed.prune(Compare("=", "vid", "v5000x")).keep.tolist() == [True]


def test_too_many_values_are_no_entry(pond: millpond.Pond) -> None:
    stream = pond.create_stream(
        "m", SCHEMA, indexes=[Values("vid", limit=39), Values("note"), Bloom("lat", bytes_max=64)]
    )
    stream.append([*rows_of(0), {**rows_of(0)[0], "note": "x" * 5000}])
    stream.settle()
    assert objects_of(stream).entries.column("values(vid).values").null_count == 1
    assert objects_of(stream).entries.column("values(note).values").null_count == 1
    assert objects_of(stream).entries.column("bloom(lat).filter").null_count == 1
    assert kept(stream, StartsWith("note", "b")) == [0]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("values:nothing", "values: 'nothing' is not a column"),
        ("values:tags", "column 'tags' has type"),
        ("values:city,limit=0", "a limit of 0 values"),
        ("values:lat,words=true", "column 'lat' has type double"),
        ("values:city,colour=red", "unexpected keyword"),
        ("boxes:lat", "is over 1 columns"),
        ("boxes:lat,city", "column 'city' has type string"),
        ("boxes:lat,lon,boxes=0", "0 boxes"),
        ("bloom:vid,rate=2", "a rate of 2"),
        ("bloom:vid,bytes_max=1", "bytes_max=1"),
        ("os.system:vid", "no kind can be called"),
        ("nosuch:vid", "no index kind 'nosuch'"),
        ("values", "is no index and no layout"),
        ("", "is no index and no layout"),
    ],
)
def test_an_index_that_cannot_work_is_refused(pond: millpond.Pond, index: str, message: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("tags", pa.list_(pa.string()))])
    with pytest.raises((InvalidValue, InvalidSchema), match=message.replace("(", r"\(")):
        pond.create_stream("m", schema, indexes=[index])
    pond.create_stream("m", schema)
    with pytest.raises((InvalidValue, InvalidSchema), match=message.replace("(", r"\(")):
        pond.alter_stream("m", indexes=[index])


def test_an_index_is_named_once(pond: millpond.Pond) -> None:
    with pytest.raises(InvalidValue, match="name one twice"):
        pond.create_stream("m", SCHEMA, indexes=["values:city", Values("city", limit=3)])


def test_the_built_in_kinds_cannot_be_replaced(pond: millpond.Pond) -> None:
    class Mine(Values):
        pass

    Mine.__qualname__ = "Mine"
    with pytest.raises(InvalidValue, match="built in"):
        pond.create_stream("m", SCHEMA, indexes=[Mine("city")])


@pytest.mark.parametrize("text", ["values:city", "bloom:vid,rate=0.01", "kdtree:lat,lon,buckets=128,fine=true,x=a b"])
def test_a_spec_is_a_text_and_a_value(text: str) -> None:
    spec = parse_spec(text)
    assert parse_spec(str(spec)) == spec
    assert Spec(spec.kind, spec.columns, tuple(reversed(spec.options))) == spec


def test_minmax_is_there_already(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=[MinMax("lat")])
    fill(stream, 2)
    assert [name for name in objects_of(stream).entries.schema.names if name.startswith("minmax")] == []
    assert stream.definition.indexes == (Spec("minmax", ("lat",)),)


def test_index_files_are_plain_parquet(pond: millpond.Pond) -> None:
    stream = pond.create_stream("m", SCHEMA, indexes=["values:city"])
    fill(stream, 1)
    (file,) = (Path(stream.archive.root) / "_index").glob("*.parquet")
    assert pq.read_table(file).column("values(city).values").to_pylist() == [["city-a-0", "city-z-0"]]


def test_value_lists_that_are_turned_round_say_the_same(pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many objects, lists are looked at as they are at first, and turned round chunk by chunk while they are."""
    monkeypatch.setattr("millpond.archive.index.values._FEW", 0)
    stream = pond.create_stream("m", SCHEMA, indexes=INDEXES_OF_ALL)
    fill(stream, 6)
    stream.append([{"vid": None, "city": None, "lat": None, "lon": None, "note": None}])
    stream.settle()
    for _ in range(8):
        ruled_out_by_each(stream)
        assert kept(stream, Or((IsNull("city"), Compare("=", "city", "city-z-4")))) == [4, 6]
    for (kind, entries), name in zip(objects_of(stream).indexes, ("values", "boxes", "bloom", "values"), strict=False):
        assert kind.name == name
        if name == "values":
            assert entries.cached("lists", lambda all: Lists(all.column("values"))).turned


def test_boxes_rule_out_as_much_if_the_columns_are_also_asked_not_to_be_null(pond: millpond.Pond) -> None:
    """As Spark asks of every column that it compares."""
    stream = pond.create_stream("m", SCHEMA, indexes=["boxes:lat,lon"])
    fill(stream, 3)
    both = (Compare(">", "lat", 45.0), Compare("<", "lon", 5.0))
    named = tuple(Not(IsNull(column)) for column in ("lat", "lon"))
    assert kept(stream, And((*named, *both))) == kept(stream, And(both)) == [0]


def test_an_index_that_comes_back_after_a_vacuum_is_built_anew(tmp_path: Path) -> None:
    """Its entries are still in the index files, but what they point to is gone."""
    place = tmp_path / "pond"
    with millpond.open(place, background=False) as pond:
        stream = pond.create_stream("m", SCHEMA, indexes=["bloom:vid"])
        fill(stream, 3)
        pond.alter_stream("m", indexes=[])
        for file in blob_files(stream):
            os.utime(file, (0, 0))
        assert stream.vacuum("7d").objects == 3
        pond.alter_stream("m", indexes=["bloom:vid"])
    with millpond.open(place, background=False) as pond:
        stream = pond.stream("m")
        assert stream.rebuild_indexes().objects == 3
        assert kept(stream, Compare("=", "vid", rows_of(1)[5]["vid"])) == [1]
        assert stream.rebuild_indexes().objects == 0
