"""`spark.readStream.format("millpond")`: every record once, settled or live, whatever moves meanwhile."""

from __future__ import annotations

import json
import threading

import pytest
from pyspark.sql import DataFrame, SparkSession

import millpond
from tests.spark.conftest import readings
from tests.spark.streaming import Reading


def test_settled_records_come_first_then_live_ones_and_no_gap_is_between(
    reading: Reading, meters: millpond.Stream
) -> None:
    query = reading.start()
    try:
        query.processAllAvailable()
        assert reading.numbers == list(range(350))
        meters.append(readings(350, 400))
        query.processAllAvailable()
        assert reading.numbers == list(range(400))
        meters.append(readings(400, 450))
        meters.settle()
        meters.append(readings(450, 460))
        query.processAllAvailable()
        assert reading.numbers == list(range(460))
    finally:
        query.stop()


def test_rows_are_the_streams_own(reading: Reading, meters: millpond.Stream) -> None:
    reading.columns = ("vid", "city", "lat", "n", "_streamlet", "_offset", "_ingest_time")
    reading.run()
    wanted = [tuple(row.values()) for batch in meters.read() for row in batch.to_pylist()]
    found = [(*row[:6], row[6].timestamp()) for row in reading.rows]
    assert sorted(found) == sorted((*row[:6], row[6].timestamp()) for row in wanted)


def test_a_restart_goes_on_where_the_last_run_ended(reading: Reading, meters: millpond.Stream) -> None:
    reading.run()
    assert reading.numbers == list(range(350))
    meters.append(readings(350, 360))
    meters.settle()
    meters.append(readings(360, 370))
    reading.run()
    assert reading.numbers == list(range(370))
    before = dict(reading.batches)
    reading.run()
    assert reading.batches == before, "there was nothing new, so there is no new batch"


@pytest.mark.usefixtures("live_way")
def test_a_batch_that_failed_holds_the_same_records_when_it_is_run_again(
    reading: Reading, meters: millpond.Stream
) -> None:
    seen: list[int] = []

    def fail_once(frame: DataFrame, number: int) -> None:
        seen.append(frame.count())
        if len(seen) == 1:
            meters.append(readings(350, 400))
            meters.settle()  # what the batch was to read live lies in objects when it is run again
            raise RuntimeError("failed once, as planned")

    reading.during = fail_once
    with pytest.raises(Exception, match="failed once, as planned"):
        reading.run()
    reading.run()
    assert seen[:2] == [350, 350]
    assert sorted(row[0] for row in reading.batches[0]) == list(range(350))
    assert reading.numbers == list(range(400))


def test_offsets_are_json_that_a_person_can_read(
    reading: Reading, pond: millpond.Pond, meters: millpond.Stream
) -> None:
    reading.run()
    text = (reading.checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(text) == {
        "pond": pond.id,
        "stream": "grid/meters",
        "id": meters.definition.id,
        "generation": 1,
        "offsets": {str(streamlet): head for streamlet, head in meters.snapshot().heads.items()},
    }


def test_progress_tells_how_far_behind_a_query_is(reading: Reading) -> None:
    query = reading.start(all_now=True, maxRecordsPerTrigger=100)
    query.awaitTermination()
    first, *_, last = query.recentProgress
    assert first["sources"][0]["metrics"]["recordsBehind"] == "250"
    assert last["sources"][0]["metrics"]["recordsBehind"] == "0"
    assert first["sources"][0]["description"] == "Millpond(grid/meters)"


def test_attaching_a_pond_makes_its_format_known(
    spark: SparkSession, pond: millpond.Pond, meters: millpond.Stream
) -> None:
    attached = pond.attach(spark)
    try:
        frame = spark.readStream.format("millpond").option("pond", pond.path).option("stream", "grid/meters").load()
        assert frame.isStreaming
        assert frame.columns == [*meters.schema.names, "_streamlet", "_offset", "_ingest_time"]
    finally:
        attached.detach()


def test_every_record_comes_once_while_others_append_and_settle(reading: Reading, meters: millpond.Stream) -> None:
    stop = threading.Event()
    made = 350

    def work() -> None:
        nonlocal made
        while not stop.is_set():
            meters.append(readings(made, made + 20))
            made += 20
            if made % 100 == 50:
                meters.settle()

    worker = threading.Thread(target=work)
    query = reading.start(maxRecordsPerTrigger=700)
    worker.start()
    try:
        while len(reading.batches) < 6 and query.isActive:
            stop.wait(0.05)
    finally:
        stop.set()
        worker.join()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert reading.numbers == list(range(made))
    assert len(reading.batches) >= 6


def test_a_batch_frame_skips_and_is_fresh_as_a_views_is(reading: Reading, meters: millpond.Stream) -> None:
    spark = reading.spark
    millpond.spark.register(spark)
    frame = spark.read.format("millpond").options(pond=reading.pond, stream="grid/meters").load()
    few = frame.where("n BETWEEN 190 AND 205 OR n = 349").select("n")
    assert sorted(row["n"] for row in few.collect()) == [*range(190, 206), 349]
    figures = millpond.spark.last_query(spark)
    assert (figures.objects_read, figures.objects_total, figures.rows_live) == (2, 3, 50)
    assert frame.alias("a").join(frame.alias("b"), "n").where("a.n > (SELECT 340)").count() == 9
    meters.append(readings(350, 360))
    meters.settle()
    assert frame.count() == 360
    assert frame.where("n >= 355").count() == 5


def test_a_stream_joins_what_it_holds_by_now(reading: Reading) -> None:
    """A frame of the batch kind in a streaming query is a fresh snapshot in each micro-batch."""
    spark = reading.spark
    millpond.spark.register(spark)
    cities = spark.read.format("millpond").options(pond=reading.pond, stream="grid/meters").load()
    known = cities.groupBy("city").agg({"n": "max"}).withColumnRenamed("max(n)", "newest")
    reading.columns = ("n", "newest")
    reading.run(reading.load().join(known, "city"))
    assert reading.numbers == list(range(350))
    assert {newest for _, newest in reading.rows} == {347, 348, 349}
