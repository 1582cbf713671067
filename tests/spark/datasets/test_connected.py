"""Data sets of a connected pond: Spark describes and reads files here, and the node keeps what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.archive.index.blobs import BlobWriter
from millpond.client import bulk
from millpond.client import datasets as client_datasets
from millpond.errors import DatasetExists, DatasetNotFound, Fenced, Forbidden, InvalidInput, TooLarge
from millpond.flight import FlightDoor
from millpond.pond import dataset_desk
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire import dataset_requests as ask
from millpond.wire.access import EVERYTHING, Grant
from tests.spark.datasets.conftest import files_read, numbers, same

SCHEMA = "n int, city string"
CITIES = ("Nice", "Lyon", "Lille", "Brest")


@contextmanager
def served(pond: millpond.Pond, grant: Grant) -> Iterator[Any]:
    with (
        closing(FlightDoor(PondDesk(pond, SecretGate("for-tests", grant)))) as door,
        millpond.connect(door.location, "for-tests") as connected,
    ):
        yield connected


@pytest.fixture
def remote(pond: millpond.Pond) -> Iterator[Any]:
    with served(pond, EVERYTHING) as connected:
        yield connected


@pytest.fixture
def files(data: Path) -> Path:
    for at, city in enumerate(CITIES):
        numbers(data / f"{at}.csv", 10 * at, 10 * at + 10, city=city, at_seconds=1_500_000_000 + at)
    return data


def indexed(pond: Any, spark: SparkSession, files: Path) -> millpond.Dataset:
    kinds = ["minmax:n", "values:city", "bloom:city"]
    made: millpond.Dataset = pond.index(
        files, format="csv", name="weather", options={"header": True}, schema=SCHEMA, indexes=kinds, spark=spark
    )
    return made


def plain(spark: SparkSession, files: Path) -> DataFrame:
    return spark.read.csv(str(files), schema=SCHEMA, header=True)


def test_files_are_indexed_and_read_as_by_an_embedded_pond(
    spark: SparkSession, pond: millpond.Pond, remote: Any, files: Path
) -> None:
    told: list[tuple[int, int]] = []
    made = indexed(remote, spark, files)
    kept = pond.dataset("weather")
    assert (kept.id, kept.status()) == (made.id, made.status())
    assert made.status().files == 4
    for where in ("n = 25", "city = 'Lyon'", "n > 12 AND city IN ('Lille', 'Brest')", "city = 'Paris'"):
        frame = made.to_spark(spark).where(where)
        read = files_read(spark, frame, plain(spark, files).where(where))
        assert read == files_read(spark, kept.to_spark(spark).where(where), plain(spark, files).where(where))
        assert read[0] < read[1] == 4
    numbers(files / "new.csv", 5, 7, at_seconds=1_500_000_000)
    (files / "2.csv").unlink()
    same(made.to_spark(spark), plain(spark, files))
    report = remote.dataset(str(files)).refresh(spark, progress=lambda *at: told.append(at))
    assert (report.added, report.removed, report.described) == (1, 1, 1)
    assert told[-1] == (1, 1)
    made.drop_index("values(city)")
    assert made.add_index("values:n", spark=spark).described == 4
    assert [spec.key for spec in kept.indexes] == ["minmax(n)", "bloom(city)", "values(n)"]
    # A change that the pond itself makes is seen.
    kept.drop_index("bloom(city)")
    assert made.rebuild(spark).described == 4
    assert made.status() == kept.status()
    with pytest.raises(DatasetExists):
        indexed(remote, spark, files)
    remote.drop_dataset("weather")
    assert pond.datasets() == remote.datasets() == []
    for call in (lambda: remote.dataset("weather"), made.status, lambda: kept.status()):
        with pytest.raises(DatasetNotFound):
            call()
    assert (files / "0.csv").exists()


def test_a_change_in_many_pieces_is_one_step(
    spark: SparkSession, pond: millpond.Pond, remote: Any, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_datasets, "_PIECE_BYTES", 50)
    monkeypatch.setattr(bulk, "_PART_ROWS", 1)
    made = indexed(remote, spark, files)
    kept = pond.dataset("weather").keeper
    assert (kept.definition.version, kept.entries()[1].num_rows) == (1, 4)
    found = files_read(spark, made.to_spark(spark).where("city = 'Nice'"), plain(spark, files).where("city = 'Nice'"))
    assert found == (1, 4)
    assert made.keeper.entries()[1].equals(kept.entries()[1])


def test_views_follow_the_data_sets_of_a_served_pond(
    spark: SparkSession, pond: millpond.Pond, remote: Any, files: Path
) -> None:
    attached = remote.attach(spark)
    try:
        indexed(remote, spark, files)
        assert attached.dataset_views == {"weather": "weather"}
        assert spark.sql("SELECT max(n) FROM weather WHERE city = 'Lyon'").collect()[0][0] == 19
        pond.drop_dataset("weather")
        remote._watch.look()
        assert attached.dataset_views == {}
    finally:
        attached.detach()


def test_what_cannot_be_described_leaves_nothing(
    spark: SparkSession, pond: millpond.Pond, remote: Any, data: Path
) -> None:
    (data / "bad.parquet").write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(InvalidInput, match=r"bad\.parquet"):
        remote.index(data, format="parquet", schema="id long", indexes=["minmax:id"], spark=spark)
    assert pond.datasets() == []


def test_two_who_change_it_at_once(spark: SparkSession, pond: millpond.Pond, remote: Any, files: Path) -> None:
    made = indexed(remote, spark, files)
    stale = made.keeper
    entries = stale.entries()[1]
    pond.dataset("weather").rebuild(spark)
    with pytest.raises(Fenced, match="changed meanwhile"):
        stale.add(entries, BlobWriter(0), 0)
    assert made.refresh(spark).described == 0, "it is seen before the next change"


def test_what_is_sent_is_checked(
    spark: SparkSession, pond: millpond.Pond, remote: Any, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = indexed(remote, spark, files)
    before, entries = made.definition, made.keeper.entries()[1]
    (text,) = bulk.report_parts(entries)
    (other,) = bulk.report_parts(pa.table({"n": [1]}))

    def asked(request: Any) -> None:
        remote._connection.ask(request, Any)

    def change(**fields: Any) -> ask.ChangeDataset:
        given: dict[str, Any] = {"version": before.version, "change": "c", "piece": 0, "pieces": 1, "data": text}
        return ask.ChangeDataset("weather", before.id, **given | fields)

    def definition(**fields: Any) -> str:
        return msgspec.json.encode(msgspec.structs.replace(before, **fields)).decode()

    for request, kind in (
        (ask.CreateDataset("{}"), InvalidInput),
        (ask.CreateDataset(definition(name="more", id="../../../x")), InvalidInput),
        (ask.CreateDataset(definition(name="a b", id="01234567")), InvalidInput),
        (ask.CreateDataset(definition(name="more", files="exe")), InvalidInput),
        (ask.CreateDataset(definition()), DatasetExists),
        (change(data="no base64"), InvalidInput),
        (change(data=other), InvalidInput),
        (change(data="AA==", blobs="../../x"), InvalidInput),
        (change(data="?", blobs="000000000001-01234567.blobs"), InvalidInput),
        (change(version=77), Fenced),
        (change(piece=1, pieces=2), Fenced),
        (change(whole=True, definition=definition(name="more")), InvalidInput),
        (ask.DropDataset("weather", "01234567"), DatasetNotFound),
        (ask.DescribeDataset("weather", "01234567"), DatasetNotFound),
    ):
        with pytest.raises(kind):
            asked(request)
    monkeypatch.setattr(dataset_desk, "WAITING_BYTES_MAX", 10)
    with pytest.raises(TooLarge):
        asked(change(pieces=2))
    assert pond.dataset("weather").definition == before
    assert [each.name for each in pond.datasets()] == ["weather"]


def test_reading_takes_one_right_and_changing_another(spark: SparkSession, pond: millpond.Pond, files: Path) -> None:
    indexed(pond, spark, files)
    for grant, reads in ((Grant("", frozenset({"read"})), True), (Grant("grid", frozenset({"read"})), False)):
        with served(pond, grant) as remote:
            assert [each.name for each in remote.served_datasets()] == (["weather"] if reads else [])
            if reads:
                assert remote.dataset("weather").to_spark(spark).where("n = 25").count() == 1
                changes = (
                    lambda r=remote: r.drop_dataset("weather"),
                    lambda r=remote: r.dataset("weather").rebuild(spark),
                )
            else:
                changes = (remote.datasets, lambda r=remote: r.dataset("weather"))
            for call in changes:
                with pytest.raises(Forbidden):
                    call()
    assert pond.dataset("weather").status().files == 4
