"""Relayout and the analysis by executors, and what Spark's queries leave on record for them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import millpond
from millpond.archive.layout.grid import Grid
from millpond.errors import InvalidValue
from millpond.flight import FlightDoor
from millpond.model import predicate as predicates
from millpond.model.predicate import columns_of
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING
from millpond.wire.relayout_requests import PutModel

PLACES = pa.schema([("vid", pa.string()), ("city", pa.string()), ("lat", pa.float64()), ("lon", pa.float64())])
LAYOUT = "kdtree:lat,lon,buckets=8"
SQUARE = "lat >= 43.5 AND lat < 43.6 AND lon >= 6.5 AND lon < 6.6"


def places(count: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    cities = rng.choice(["Nice", "Lyon", "Lille"], count)
    columns = [pa.array([f"m{n}" for n in range(count)]), pa.array(cities, pa.string())]
    columns += [pa.array(rng.uniform(43, 44, count)), pa.array(rng.uniform(6, 7, count))]
    return pa.record_batch(columns, schema=PLACES)


@pytest.fixture
def stream(pond: millpond.Pond) -> millpond.Stream:
    """2,000 places in four objects, settled before there was a layout, and 50 that are live."""
    made = pond.create_stream("grid/places", PLACES)
    for seed in range(4):
        made.append(places(500, seed))
        made.settle()
    pond.alter_stream("grid/places", layout=LAYOUT, indexes=["values:city"])
    made.append(places(50, 9))
    return made


def rows(stream: Any) -> pa.Table:
    return stream.scan(columns=["_streamlet", "_offset", *PLACES.names]).sort_by("_offset")


def test_queries_of_spark_are_on_record(meters: millpond.Stream, pond: millpond.Pond, spark: SparkSession) -> None:
    frame = meters.to_spark(spark)
    assert frame.where("lat >= 41 AND lat < 41.5").count() == 50
    (found,) = pond.queries("grid/meters").to_pylist()
    assert columns_of(predicates.decode(found["predicate"])) == {"lat"}
    assert (found["objects_read"], found["objects_total"]) == (1, 3)
    frame.where("n > 5").limit(3).collect()
    assert len(pond.queries("grid/meters")) == 2, "each once, however often Spark plans it"


def test_a_micro_batch_is_no_query(
    meters: millpond.Stream, pond: millpond.Pond, spark: SparkSession, tmp_path: Path
) -> None:
    millpond.spark.register(spark)
    source = spark.readStream.format("millpond").option("pond", pond.path).option("stream", meters.name).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(pond.queries("grid/meters")) == 0


def test_executors_sample_what_the_process_would(stream: millpond.Stream, spark: SparkSession) -> None:
    for _ in range(5):
        stream.to_spark(spark).where(SQUARE).count()
    here, there = stream.analyse(swap=False), stream.analyse(spark, swap=False)
    assert there == here
    assert there.queries == 5
    assert there.bytes_new < there.bytes_current


def test_executors_rewrite_and_nobody_notices(
    stream: millpond.Stream, pond: millpond.Pond, spark: SparkSession
) -> None:
    before, told = rows(stream), []
    frame = stream.to_spark(spark)
    pinned = frame.where(SQUARE)
    wanted = pinned.count()
    report = stream.relayout(spark, object_bytes_min="0B", progress=lambda *at: told.append(at))
    assert (report.units, report.rows, report.objects_before, report.objects_after) == (1, 2_000, 4, 8)
    assert told == [(report.bytes_before, report.bytes_before)]
    assert rows(stream).equals(before)
    assert DeltaTable(stream.archive.root).to_pyarrow_table().num_rows == 2_000
    assert pinned.count() == wanted
    assert millpond.spark.last_query(spark).objects_read < 8
    assert frame.count() == 2_050
    entries = stream.snapshot().settled.objects.entries
    assert entries.column("values(city).values").null_count == 0, "indexes are made on the way"
    assert stream.relayout(spark, object_bytes_min="0B").units == 0
    assert not pond.verify().findings


def test_a_frame_that_was_planned_before_reads_what_it_was_planned_with(
    stream: millpond.Stream, spark: SparkSession
) -> None:
    """The objects of its snapshot stay, though the table has others by now."""
    planned = stream.to_spark(spark).where("lat > 43.2").rdd
    partitions = planned.getNumPartitions()  # plans the query, snapshot and all
    wanted = stream.count("lat > 43.2")
    stream.relayout(spark, object_bytes_min="0B")
    assert partitions > 0
    assert planned.count() == wanted


class Bands(millpond.IndexKind):
    """Which degrees of latitude an object has."""

    name = "bands"

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field("tenths", pa.list_(pa.int64()))]

    def describe(self, table: pa.Table) -> dict[str, Any]:
        tenths = pc.floor(pc.multiply(table[self.columns[0]], 10)).cast(pa.int64())
        return {"tenths": sorted(set(tenths.to_pylist()))}

    def keep(self, term: Any, entries: Any) -> Any:
        return None


def test_a_kind_of_the_users_travels_with_the_tasks(
    stream: millpond.Stream, pond: millpond.Pond, spark: SparkSession
) -> None:
    pond.alter_stream("grid/places", indexes=[Bands("lat")])
    stream.relayout(spark, object_bytes_min="0B")
    found = stream.snapshot().settled.objects.entries.column("bands(lat).tenths").to_pylist()
    assert len(found) == 8
    assert all(tenths for tenths in found)


DRIVERS_OWN = """
import millpond

SEEN = 41

class OwnTree(millpond.KdTree):
    name = "own_tree"

class OwnValues(millpond.Values):
    name = "own_values"

    def describe(self, table):
        assert SEEN == 41
        return super().describe(table)
"""


def test_kinds_of_a_module_that_only_the_driver_has(
    pond: millpond.Pond, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors cannot import it: a load and a relayout bring the classes along."""
    (tmp_path / "drivers_own.py").write_text(DRIVERS_OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own: Any = importlib.import_module("drivers_own")
    layout, index = own.OwnTree("lat", "lon", buckets=8), own.OwnValues("city")
    stream = pond.create_stream("own", PLACES, layout=layout, indexes=[index])
    for seed in range(2):
        stream.append(places(500, seed))
        stream.settle()
    millpond.spark.register(spark)
    given = spark.createDataFrame([("a", "Nice", 43.0 + n / 100, 6.5) for n in range(100)], PLACES.names)
    options = {"pond": pond.path, "stream": "own", "to": "archive"}
    given.coalesce(1).write.format("millpond").options(**options).mode("append").save()
    report = stream.relayout(spark, object_bytes_min="0B")
    assert report.rows >= 1_000
    entries = stream.snapshot().settled.objects.entries
    assert entries.column("own_values(city).values").null_count == 0
    assert stream.count() == 1_100


@pytest.fixture
def connected(pond: millpond.Pond) -> Iterator[Any]:
    door = FlightDoor(PondDesk(pond, SecretGate("for-tests", EVERYTHING)))
    with millpond.connect(door.location, "for-tests") as remote:
        yield remote
    door.close()


def test_a_served_pond_is_laid_out_by_executors_too(
    stream: millpond.Stream, connected: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.archive import relayout

    monkeypatch.setattr(relayout, "PART_BYTES", 20_000)  # several parts of the unit
    remote = connected.stream("grid/places")
    before = rows(remote)
    for view in connected.served_streams():
        assert millpond.spark.to_spark(view, spark).where(SQUARE).count() >= 0
    connected._connection.notes.flush()
    assert len(connected.queries("grid/places")) >= 1
    group = "the analysis of a served pond"
    spark.sparkContext.setJobGroup(group, group)
    try:
        there = remote.analyse(spark, swap=False)
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(group), "executors read the sample"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert there == stream.analyse(swap=False) == remote.analyse(swap=False)
    assert stream.archive.model() is None or stream.archive.model().model.id == there.model_current
    found = remote.analyse(spark)
    assert found.swapped
    assert stream.archive.model().model.id == found.model_new
    assert not remote.analyse(spark).swapped
    report = remote.relayout(spark, object_bytes_min="0B")
    assert (report.units, report.rows, report.objects_after) == (1, 2_000, 8)
    assert rows(remote).equals(before)
    assert not stream.relayouting.alive()


def test_a_model_from_elsewhere_counts_only_where_nothing_has_changed(stream: millpond.Stream, connected: Any) -> None:
    stream.analyse()
    model, layout = stream.archive.model().model, str(stream.definition.layout)
    text = model.encode().decode()
    for request, says in (
        (PutModel(stream.name, text, layout, "another"), "another layout or model"),
        (PutModel(stream.name, text, "grid:lat,lon,buckets=8", model.id), "another layout or model"),
        (PutModel(stream.name, "{}", layout, model.id), "not a model"),
        (
            PutModel(stream.name, Grid("lat", "lon", buckets=8).fit(rows(stream)).encode().decode(), layout, model.id),
            "of grid",
        ),
    ):
        with pytest.raises(InvalidValue, match=says):
            connected._connection.ask(request, None)
        assert stream.archive.model().model.id == model.id


def test_a_task_that_fails_changes_nothing(stream: millpond.Stream, pond: millpond.Pond, spark: SparkSession) -> None:
    stream.analyse()
    before, version = rows(stream), stream.snapshot().version
    path = Path(stream.archive.root) / stream.snapshot().settled.objects.paths[0]
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    with pytest.raises(Exception, match=path.name):
        stream.relayout(spark)
    path.write_bytes(kept)
    assert not stream.relayouting.alive()
    assert stream.snapshot().version == version
    assert rows(stream).equals(before)
    assert stream.relayout(spark).units == 1
