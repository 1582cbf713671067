"""Where a streaming query begins, how much it takes at a time, and what it refuses before it reads anything."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import millpond
from tests.spark.conftest import METERS, readings
from tests.spark.streaming import Reading


def offset_of(stream: millpond.Stream, number: int) -> dict[str, int]:
    """Offsets at which exactly the records from `number` on are ahead: appends were in the order of numbers."""
    ahead = stream.scan(f"n >= {number}", columns=["_streamlet", "_offset"]).to_pylist()
    heads = stream.snapshot().heads
    return {
        str(s): min((row["_offset"] for row in ahead if row["_streamlet"] == s), default=head)
        for s, head in heads.items()
    }


def test_latest_is_the_place_where_the_query_was_started_first(reading: Reading, meters: millpond.Stream) -> None:
    query = reading.start(startingOffsets="latest")
    query.processAllAvailable()
    query.stop()
    meters.append(readings(350, 360))
    reading.run(startingOffsets="latest")
    assert reading.numbers == list(range(350, 360)), "a restart goes on, it does not begin at the latest again"


@pytest.mark.parametrize("form", ["earliest", "archive", "offsets", "whole place", "time"])
def test_a_query_begins_where_it_is_told(
    reading: Reading, meters: millpond.Stream, pond: millpond.Pond, form: str
) -> None:
    first = 0 if form in ("earliest", "archive") else 250
    offsets = offset_of(meters, first)
    moment = datetime.now(UTC)
    if form == "time":
        meters.append(readings(350, 355))
        first = 350
    place = {"pond": pond.id, "stream": "grid/meters", "id": meters.definition.id, "generation": 1, "offsets": offsets}
    start = {"offsets": json.dumps(offsets), "whole place": json.dumps(place), "time": moment.isoformat()}.get(
        form, form
    )
    reading.run(startingOffsets=start)
    assert reading.numbers == list(range(first, 355 if form == "time" else 350))


def test_no_batch_has_more_records_than_the_limit(reading: Reading) -> None:
    reading.run(maxRecordsPerTrigger=60)
    sizes = [len(rows) for _, rows in sorted(reading.batches.items())]
    assert sizes == [60, 60, 60, 60, 60, 50]
    assert reading.numbers == list(range(350))


def test_a_limit_in_bytes_cuts_batches_too(reading: Reading, meters: millpond.Stream) -> None:
    status = meters.status()
    reading.run(maxBytesPerTrigger=status.bytes_settled // 3)
    sizes = [len(rows) for _, rows in sorted(reading.batches.items())]
    assert len(sizes) >= 3
    assert sizes[0] <= status.rows_settled // 3
    assert reading.numbers == list(range(350))


def test_available_now_ends_although_records_keep_coming(reading: Reading, meters: millpond.Stream) -> None:
    reading.during = lambda frame, number: meters.append(readings(1_000 + number, 1_001 + number)) and None
    reading.run(maxRecordsPerTrigger=100)
    assert reading.numbers == list(range(350)), "it ends where the stream ended when it was started"


def test_partitions_are_per_streamlet(reading: Reading, meters: millpond.Stream, by_tasks: None) -> None:
    meters.settle()
    meters.append(readings(400, 500))
    seen: list[list[int]] = []

    def look(frame: object, number: int) -> None:
        from pyspark.sql import DataFrame, functions

        assert isinstance(frame, DataFrame)
        parts = frame.groupBy(functions.spark_partition_id().alias("p")).agg(
            functions.collect_set("_streamlet").alias("s")
        )
        seen.extend(sorted(row["s"]) for row in parts.collect())

    reading.during = look
    reading.run(startingOffsets=json.dumps({str(s): at for s, at in meters.snapshot().boundary.items()}))
    assert sorted(seen) == [[0], [1]]


# Columns.


def test_a_query_keeps_its_columns_and_a_restart_has_the_new_ones(
    reading: Reading, meters: millpond.Stream, pond: millpond.Pond
) -> None:
    query = reading.start()
    try:
        query.processAllAvailable()
        pond.alter_stream("grid/meters", METERS.append(METERS.field("n").with_name("extra")))
        meters.append([{"vid": "new", "n": 350, "extra": 7}])
        query.processAllAvailable()
        assert reading.numbers == list(range(351))
    finally:
        query.stop()
    reading.columns = ("n", "extra")
    meters.append([{"vid": "new", "n": 351, "extra": 8}])
    meters.settle()
    reading.run()
    assert reading.batches[max(reading.batches)] == [(351, 8)]


def test_columns_added_between_load_and_start_come_with_the_next_load(
    reading: Reading, meters: millpond.Stream, pond: millpond.Pond
) -> None:
    millpond.spark.register(reading.spark)
    frame = reading.load()
    pond.alter_stream("grid/meters", METERS.append(METERS.field("n").with_name("extra")))
    meters.append([{"vid": "new", "n": 350, "extra": 7}])
    reading.run(frame)
    assert reading.numbers == list(range(351))
    assert "extra" not in frame.columns


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "latest"}, "no option 'startingoffset'"),
        ({"startingOffsets": "yesterday"}, "no place to start: 'yesterday'"),
        ({"startingOffsets": '{"0": 1e9}'}, "offsets are whole numbers"),
        ({"startingOffsets": '{"0": 100000}'}, "streamlet 0 has no offset 100000"),
        ({"startingOffsets": '{"9": 1}'}, "no streamlet 9"),
        ({"startingOffsets": '{"pond": "another", "offsets": {"0": 1}}'}, "are of pond 'another'"),
        ({"maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger '0'"),
        ({"maxBytesPerTrigger": "many"}, "'many' is not a size"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss 'maybe'"),
        ({"stream": "grid/metres"}, "no stream 'grid/metres'"),
        ({"pond": "/nowhere"}, "no pond is open in this process at /nowhere"),
        ({"pond": ""}, 'option\\("pond", ...\\) is missing'),
    ],
)
def test_a_wrong_option_is_refused_with_its_value(reading: Reading, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        reading.run(**options)
    assert reading.batches == {}


def test_a_schema_is_not_given(reading: Reading, spark: SparkSession) -> None:
    millpond.spark.register(spark)
    reader = spark.readStream.format("millpond").option("pond", reading.pond).option("stream", reading.stream)
    with pytest.raises(PySparkException, match="a stream has a schema"):
        reader.schema("n long").load()


def test_a_checkpoint_of_another_pond_is_refused(reading: Reading, tmp_path: Path) -> None:
    reading.run()
    with millpond.open(tmp_path / "other", background=False) as other:
        other.create_stream("grid/meters", schema=METERS, keys=["vid"], streamlets=2).append(readings(0, 400))
        elsewhere = Reading(reading.spark, other.path, "grid/meters", reading.checkpoint)
        with pytest.raises(PySparkException, match="the checkpoint is of grid/meters, id 16, of pond"):
            elsewhere.run()
    assert elsewhere.batches == {}


def test_a_checkpoint_of_a_dropped_stream_is_refused(reading: Reading, pond: millpond.Pond) -> None:
    reading.run()
    pond.drop_stream("grid/meters")
    pond.create_stream("grid/meters", schema=METERS, keys=["vid"], streamlets=2).append(readings(0, 400))
    with pytest.raises(PySparkException, match="the checkpoint is of grid/meters, id 16"):
        reading.run()
    assert len(reading.rows) == 350


def test_a_checkpoint_ahead_of_the_stream_is_refused(reading: Reading, tmp_path: Path, pond: millpond.Pond) -> None:
    """The pond was restored from a copy that is older than the checkpoint."""
    copy = tmp_path / "copy"
    shutil.copytree(pond.path, copy)
    pond.stream("grid/meters").append(readings(350, 400))
    reading.run()
    (copy / "lock").unlink()
    with millpond.open(copy, background=False) as older:
        restored = Reading(reading.spark, older.path, "grid/meters", reading.checkpoint)
        with pytest.raises(PySparkException, match="the checkpoint is ahead of grid/meters"):
            restored.run()
    assert restored.batches == {}


def test_never_archived_streams_have_no_archive_to_begin_at(reading: Reading, pond: millpond.Pond) -> None:
    pond.create_stream("grid/memory", schema=METERS, settle=None)
    with pytest.raises(PySparkException, match="never archived"):
        Reading(reading.spark, pond.path, "grid/memory", reading.checkpoint).run(startingOffsets="archive")
