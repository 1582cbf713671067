"""Streams are created, listed, described, altered and dropped; bad names and schemas are refused with the rule."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.errors import (
    FormatTooNew,
    InvalidName,
    InvalidSchema,
    InvalidValue,
    PondClosed,
    PondLocked,
    StreamExists,
    StreamNotFound,
)
from millpond.storage import FileLock, LocalStorage
from tests.pond.conftest import METERS, Ponds, rows, temps


def test_a_stream_is_what_it_was_created_as_also_after_a_reopen(ponds: Ponds) -> None:
    with ponds() as pond:
        pond.create_stream(
            "grid/meters",
            METERS,
            keys=["vid", "city"],
            streamlets=3,
            durability="os",
            settle=millpond.Settle(every="5s", bytes="1MB"),
            partition="1h",
            memory="50MB",
        )
        pond.create_stream("raw")
        before = [stream.definition for stream in pond.streams()]
    with ponds() as pond:
        assert [stream.name for stream in pond.streams()] == ["grid/meters", "raw"]
        after = [stream.definition for stream in pond.streams()]
        assert [(d.id, d.schema, d.keys, d.streamlets, d.durability) for d in after] == [
            (d.id, d.schema, d.keys, d.streamlets, d.durability) for d in before
        ]
        assert after[0].settle is not None
        assert (after[0].settle.every_seconds, after[0].settle.bytes_live) == (5.0, 1_000_000)
        assert (after[0].partition_seconds, after[0].memory_bytes) == (3_600, 50_000_000)
        assert after[1].raw
        assert after[1].schema.names == ["time", "headers", "body"]


def test_a_schema_may_be_text(pond: millpond.Pond) -> None:
    stream = pond.create_stream("grid/meters", "vid string NOT NULL, temp double", keep="temp > 0")
    assert stream.schema.equals(pa.schema([pa.field("vid", pa.string(), nullable=False), ("temp", pa.float64())]))
    stream.append([{"vid": "m-1", "temp": 21.5}, {"vid": "m-2", "temp": -1.0}])
    altered = pond.alter_stream("grid/meters", "vid string NOT NULL, temp double, unit string")
    assert altered.scan().to_pylist() == [{"vid": "m-1", "temp": 21.5, "unit": None}]
    with pytest.raises(InvalidSchema, match="strin"):
        pond.create_stream("other", "vid strin")
    with pytest.raises(StreamNotFound):
        pond.stream("other")


@pytest.mark.parametrize(
    "name",
    ["", "a//b", "/a", "a/", "..", "a/../b", "a/.hidden", "_pond/catalog", "_x", "a b", "a\n", "a\x00", "é", "x" * 201,
     "y" * 65, "a\\b", "a:b", "a*"],
)  # fmt: skip
def test_unsafe_names_are_refused_with_the_rule(pond: millpond.Pond, name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        pond.create_stream(name, METERS)
    assert "letter or digit" in caught.value.hint
    assert pond.streams() == []


def test_two_streams_may_nest_in_name_without_mixing(pond: millpond.Pond) -> None:
    outer = pond.create_stream("grid", METERS)
    inner = pond.create_stream("grid/g00001", METERS)
    outer.append(rows(0, 5))
    inner.append(rows(5, 7))
    outer.settle()
    inner.settle()
    assert (temps(outer), temps(inner)) == ([0, 1, 2, 3, 4], [5, 6])
    pond.drop_stream("grid")
    assert temps(inner) == [5, 6]


def test_an_alteration_adds_nullable_columns_and_nothing_else(meters: millpond.Stream, pond: millpond.Pond) -> None:
    meters.append(rows(0, 3))
    meters.settle()
    meters.append(rows(3, 5))
    wider = METERS.append(pa.field("load", pa.int32()))
    pond.alter_stream("grid/meters", wider)
    meters.append([{"vid": "v9", "load": 7}])
    assert sorted(map(str, meters.scan(columns=["load"])["load"].to_pylist())) == ["7", *["None"] * 5]
    meters.settle()
    assert meters.scan("load = 7").to_pylist() == [{"vid": "v9", "city": None, "temp": None, "load": 7}]
    refused = {
        "is missing": METERS,
        "would change from": wider.set(2, pa.field("temp", pa.float32())),
        "would move": pa.schema([wider.field(1), wider.field(0), wider.field(2), wider.field(3)]),
        "not nullable": wider.append(pa.field("more", pa.int8(), nullable=False)),
    }
    for reason, schema in refused.items():
        with pytest.raises(InvalidSchema, match=reason):
            pond.alter_stream("grid/meters", schema)


def test_altered_streams_read_old_records_after_a_reopen(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 40))
        stream.append({"vid": "one", "temp": 40.0})
        pond.alter_stream("s", METERS.append(pa.field("load", pa.int32())))
        stream.append({"vid": "two", "temp": 41.0, "load": 1})
    with ponds() as pond:
        assert temps(pond.stream("s")) == list(range(42))
        assert pond.stream("s").scan("load is not null").num_rows == 1


def test_a_dropped_stream_is_gone_with_its_records_and_its_id_is_not_used_again(ponds: Ponds) -> None:
    with ponds() as pond:
        first = pond.create_stream("s", METERS)
        first.append(rows(0, 10))
        first.settle()
        first.append(rows(10, 20))
        old = first.definition
        pond.drop_stream("s")
        with pytest.raises(StreamNotFound, match="dropped"):
            first.append(rows(0, 1))
        assert not (ponds.path / "archive" / old.directory).exists()
        second = pond.create_stream("s", METERS)
        assert second.definition.id > old.id
        assert second.count() == 0
    with ponds() as pond:
        assert pond.stream("s").count() == 0
        assert pond.stream("s").definition.id > old.id
        audit = pond.audit().to_pylist()
        assert [(each["action"], each["stream"]) for each in audit] == [("drop", "s")], "I6: nothing goes silently"
        assert "rows_live=10 rows_settled=10" in audit[0]["detail"]


@pytest.mark.embedded
def test_a_drop_cut_short_is_finished_at_the_next_open(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 10))
        stream.settle()
        directory = ponds.path / "archive" / stream.definition.directory
        pond._record("drop", stream.definition)  # as far as a crash right after the record would come
    assert directory.exists()
    with ponds() as pond:
        assert pond.streams() == []
    assert not directory.exists()


def test_a_stream_that_is_there_already(pond: millpond.Pond, meters: millpond.Stream) -> None:
    with pytest.raises(StreamExists):
        pond.create_stream("grid/meters", METERS)
    assert pond.create_stream("grid/meters", METERS, exist_ok=True) is meters
    assert pond.create_stream("grid/meters", exist_ok=True) is meters
    pond.alter_stream("grid/meters", METERS.append(pa.field("note", pa.string())))
    assert pond.create_stream("grid/meters", METERS, exist_ok=True) is meters, "columns were added since"
    for other in (METERS.set(2, pa.field("temp", pa.int64())), pa.schema([*meters.schema, ("more", pa.int8())])):
        with pytest.raises(StreamExists, match="another schema: column"):
            pond.create_stream("grid/meters", other, exist_ok=True)
    with pytest.raises(StreamNotFound, match="no stream 'grid/metres'") as caught:
        pond.stream("grid/metres")
    assert "grid/meters" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ["nope"]}, "key 'nope' is not a column"),
        ({"keys": ["vid", "vid"]}, "twice"),
        ({"event_time": "vid"}, "event time 'vid' has type string"),
        ({"streamlets": 0}, "0 streamlets"),
        ({"durability": "paper"}, "no durability 'paper'"),
        ({"partition": "1s"}, "too short"),
        ({"memory": 5}, "has no unit"),
        ({"memory": "5 parsecs"}, "no unit of size 'parsecs'"),
    ],
)
def test_options_out_of_range_are_refused(pond: millpond.Pond, options: dict[str, object], message: str) -> None:
    with pytest.raises(millpond.MillpondError, match=message):
        pond.create_stream("s", METERS, **options)  # type: ignore[arg-type]
    assert pond.streams() == []


@pytest.mark.embedded
def test_a_pond_belongs_to_one_process_at_a_time(ponds: Ponds) -> None:
    with ponds(), pytest.raises(PondLocked, match="another process"):
        ponds()
    ponds().close()


def test_a_closed_pond_says_so(ponds: Ponds) -> None:
    pond = ponds()
    stream = pond.create_stream("s", METERS)
    pond.close()
    pond.close()
    for use in (lambda: pond.stream("s"), pond.streams, pond.status, lambda: stream.append(rows(0, 1)), stream.count):
        with pytest.raises(PondClosed):
            use()


@pytest.mark.embedded
def test_a_directory_that_is_not_a_pond_is_left_alone(ponds: Ponds) -> None:
    ponds.path.mkdir()
    (ponds.path / "letters.txt").write_text("dear ...")
    with pytest.raises(InvalidValue, match=r"not a pond and not empty \(it holds 'letters.txt'\)"):
        ponds()
    assert [path.name for path in ponds.path.iterdir()] == ["letters.txt"]


def test_a_path_that_cannot_be_a_pond_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(InvalidValue, match="cannot be a pond: Not a directory"):
            millpond.open(path)


@pytest.mark.embedded
def test_a_pond_that_one_may_not_write_to_is_not_called_locked(ponds: Ponds) -> None:
    class Forbidding(LocalStorage):
        def lock(self, path: str) -> FileLock:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    ponds().close()
    with pytest.raises(InvalidValue, match="Permission denied"):
        ponds(storage=Forbidding())


@pytest.mark.embedded
def test_a_pond_from_the_future_is_refused(ponds: Ponds) -> None:
    ponds().close()
    described = ponds.path / "pond.json"
    described.write_text(described.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(FormatTooNew, match="format 2"):
        ponds()


def test_sizes_and_durations_may_have_a_unit(pond_dir: Path) -> None:
    with millpond.open(
        pond_dir, background=False, object_bytes_min="0B", memory_bytes="64MB", flush_seconds="20ms"
    ) as p:
        assert (p._settings.object_bytes_min, p._settings.memory_bytes) == (0, 64_000_000)
        assert p._settings.flush_seconds == 0.02
    for wrong in ("8", "8 parsecs"):
        with pytest.raises(InvalidValue, match="8") as caught:
            millpond.open(pond_dir, object_bytes_min=wrong)
        assert "units: B, KB" in str(caught.value)
    with pytest.raises(InvalidValue, match="memory_bytes = 1000"):
        millpond.open(pond_dir, memory_bytes="1KB")


@pytest.mark.embedded
def test_an_unknown_setting_is_refused_with_those_there_are(ponds: Ponds) -> None:
    with pytest.raises(InvalidValue, match="no setting 'memory_byte'") as caught:
        ponds(memory_byte=5)
    assert "memory_bytes" in caught.value.hint


@pytest.mark.embedded
@pytest.mark.parametrize(
    "setting",
    [
        {"memory_bytes": 5},
        {"memory_bytes": float("nan")},
        {"flush_seconds": float("inf")},
        {"memory_wait_seconds": 1e10},
        {"append_bytes_max": 2**32},
        {"streams_max": True},
    ],
)
def test_a_setting_out_of_range_is_refused(ponds: Ponds, setting: dict[str, float]) -> None:
    """A wait that the system's timers do not take would end the thread that everybody waits for."""
    with pytest.raises(InvalidValue, match=next(iter(setting))):
        ponds(**setting)


@pytest.mark.embedded
def test_an_archive_elsewhere_is_remembered(ponds: Ponds, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with ponds(archive=elsewhere) as pond:
        stream = pond.create_stream("s", METERS)
        stream.append(rows(0, 5))
        stream.settle()
    assert list(elsewhere.glob("s-16/_delta_log/*.json"))
    with ponds() as pond:
        assert temps(pond.stream("s")) == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidValue, match="keeps its archive in"):
        ponds(archive=tmp_path / "another")
    with pytest.raises(InvalidValue, match="not a local directory"):
        ponds(archive="s3://bucket/pond")
