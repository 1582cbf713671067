"""`format("millpond")` over a served pond: with a token, with TLS, and with a load that lies in the archive alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import millpond
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING, Grant
from millpond.wire.tls import Tls
from tests.spark.conftest import readings
from tests.spark.streaming import Reading

SECRET = "a-token-that-nobody-may-see"


@pytest.fixture
def served(pond: millpond.Pond, meters: millpond.Stream) -> Iterator[str]:
    """The URL of a door that asks for a token."""
    door = FlightDoor(PondDesk(pond, SecretGate(SECRET, EVERYTHING)))
    yield f"grpc://127.0.0.1:{door.port}"
    door.close()


@pytest.mark.usefixtures("live_way")
def test_a_served_pond_is_read_with_a_token(
    spark: SparkSession, served: str, meters: millpond.Stream, tmp_path: Path
) -> None:
    reading = Reading(spark, served, "grid/meters", tmp_path / "checkpoint")
    reading.run(token=SECRET, group="billing")
    assert reading.numbers == list(range(350))
    meters.append(readings(350, 360))
    meters.settle()
    reading.run(token=SECRET, group="billing")
    assert reading.numbers == list(range(360))


def test_a_group_that_the_token_may_not_move_is_told_before_the_query_begins(
    spark: SparkSession, pond: millpond.Pond, meters: millpond.Stream, tmp_path: Path
) -> None:
    door = FlightDoor(PondDesk(pond, SecretGate(SECRET, Grant("grid", frozenset(["read"])))))
    try:
        reading = Reading(spark, f"grpc://127.0.0.1:{door.port}", "grid/meters", tmp_path / "checkpoint")
        for _ in range(2):  # whether the group is there or not
            with pytest.raises(PySparkException, match="'billing' of grid/meters cannot follow") as refused:
                reading.run(token=SECRET, group="billing")
            assert 'leave out the option "group"' in str(refused.value)
            assert reading.batches == {}
            with pond.consumer("grid/meters", group="billing"):
                pass
        reading.run(token=SECRET)
        assert reading.numbers == list(range(350))
    finally:
        door.close()


def test_a_token_is_not_shown(
    spark: SparkSession, served: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in a plan, a description, a progress or an error, and not in the checkpoint."""
    reading = Reading(spark, served, "grid/meters", tmp_path / "checkpoint")
    shown: list[str] = []

    def look(frame: DataFrame, number: int) -> None:
        frame.explain("extended")
        shown.append(frame._jdf.queryExecution().toString())

    reading.during = look
    millpond.spark.register(spark)
    frame = reading.load(token=SECRET)
    frame.explain("extended")
    query = reading.start(frame, all_now=True)
    query.awaitTermination()
    batch = spark.read.format("millpond").options(pond=served, stream="grid/meters", token=SECRET).load()
    batch.explain("extended")
    with pytest.raises(PySparkException, match="no stream") as caught:
        Reading(spark, served, "grid/other", tmp_path / "other").run(token=SECRET)
    with pytest.raises(PySparkException, match="token") as refused:
        Reading(spark, served, "grid/meters", tmp_path / "other").run(token=f"not-{SECRET}")
    kept = [file.read_text(errors="replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    told = capfd.readouterr()
    progress = [repr(each) for each in query.recentProgress]
    everything = [
        *shown,
        *kept,
        *progress,
        told.out,
        told.err,
        str(caught.value),
        str(refused.value),
        repr(query.status),
    ]
    assert all((shown, kept, progress)), "there is something to look at"
    assert not [text for text in everything if SECRET in text]


def test_tls_is_asked_for_by_options(
    spark: SparkSession, pond: millpond.Pond, meters: millpond.Stream, tmp_path: Path
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    door = FlightDoor(PondDesk(pond, SecretGate(SECRET, EVERYTHING)), tls=Tls(chain, issued.private_key_pem.bytes()))
    try:
        url = f"grpc+tls://127.0.0.1:{door.port}"
        reading = Reading(spark, url, "grid/meters", tmp_path / "checkpoint")
        reading.run(token=SECRET, ca=tmp_path / "ca.pem")
        assert reading.numbers == list(range(350))
    finally:
        door.close()


def test_a_served_pond_is_read_as_a_batch(spark: SparkSession, served: str, meters: millpond.Stream) -> None:
    millpond.spark.register(spark)
    frame = spark.read.format("millpond").options(pond=served, stream="grid/meters", token=SECRET).load()
    assert sorted(row["n"] for row in frame.where("n >= 290").select("n").collect()) == list(range(290, 350))
    meters.append(readings(350, 360))
    assert frame.count() == 360


def test_loads_are_read_as_they_come(reading: Reading, meters: millpond.Stream, spark: SparkSession) -> None:
    """A load lies in the archive alone, in a streamlet of its own whose offsets have wide gaps."""
    query = reading.start(maxRecordsPerTrigger=80)
    try:
        query.processAllAvailable()
        frame = spark.createDataFrame(
            [(f"v{n}", "Nice", 1.0, n) for n in range(1_000, 1_200)], "vid string, city string, lat double, n long"
        )
        frame.repartition(4).write.format("millpond").options(
            pond=reading.pond, stream="grid/meters", to="archive"
        ).mode("append").save()
        meters.append(readings(350, 360))
        query.processAllAvailable()
    finally:
        query.stop()
    assert reading.numbers == [*range(360), *range(1_000, 1_200)]
