"""A stream's own filter and projection: what does not pass is not stored, whichever way it comes (K17)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidInput, InvalidRecord, InvalidSchema
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import ANYONE, EVERYTHING
from millpond.wire.group_requests import CommitTransaction
from tests.pond.conftest import Ponds

SENT = pa.schema([("vid", pa.string()), ("secret", pa.string()), ("temp", pa.float64())])


def rows(*temps: float | None) -> list[dict[str, Any]]:
    return [{"vid": f"v{n}", "secret": "x" * n, "temp": temp} for n, temp in enumerate(temps)]


def stored(stream: millpond.Stream) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stream.scan().to_pylist()
    return sorted(found, key=lambda row: row["vid"])


def expected(*numbered: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"vid": f"v{n}", "temp": temp} for n, temp in numbered]


@pytest.fixture(params=[1, 3])
def sieved(ponds: Ponds, request: pytest.FixtureRequest) -> millpond.Stream:
    return ponds().create_stream(
        "s", SENT, keys=["vid"], streamlets=request.param, keep="temp > -50 AND secret <> 'xx'", only=["vid", "temp"]
    )


@pytest.mark.parametrize("form", ["dicts", "many", "batch", "table", "pandas"])
def test_every_form_of_an_append_is_sifted(sieved: millpond.Stream, form: str) -> None:
    given = rows(20.0, -60.0, 1.0, None, -49.0, float("nan"))
    passing = expected((0, 20.0), (4, -49.0))
    made: Any = given
    more = 0
    if form == "many":
        more = 40
        made = [*given, *({"vid": "late", "secret": "", "temp": -99.0} for _ in range(more))]
    elif form != "dicts":
        made = pa.RecordBatch.from_pylist(given, schema=SENT)
        made = pa.Table.from_batches([made]) if form == "table" else made.to_pandas() if form == "pandas" else made
    ack = sieved.append(made)
    kept = [row for row in stored(sieved) if row["temp"] == row["temp"]]
    assert kept == passing
    # NaN is greater than every number, as in Spark; in a frame it stands for null.
    assert sieved.count() == (2 if form == "pandas" else 3)
    assert ack.filtered == 6 + more - sieved.count()
    assert sum(map(len, ack.ranges.values())) == sieved.count()
    assert sieved.schema.names == ["vid", "temp"]


def test_single_records_are_sifted(sieved: millpond.Stream) -> None:
    assert sieved.append({"vid": "v0", "secret": "", "temp": 1.0}).filtered == 0
    ack = sieved.append({"vid": "v1", "secret": "", "temp": -51.0})
    assert (ack.ranges, ack.filtered, ack.duplicate) == ({}, 1, False)
    assert sieved.append({"vid": "v2", "temp": 3.0}).filtered == 1, "NULL <> 'xx' is not true"
    with pytest.raises(InvalidRecord, match="humidity"):
        sieved.append({"vid": "v3", "humidity": 3.0})
    assert stored(sieved) == expected((0, 1.0))
    assert sieved.get("v0").num_rows == 1


def test_a_retry_gets_the_same_answer(sieved: millpond.Stream) -> None:
    first = sieved.append(rows(1.0, -60.0), producer="p", sequence=1)
    none = sieved.append(rows(-60.0, -70.0), producer="p", sequence=2)
    assert (none.ranges, none.filtered) == ({}, 2)
    again = sieved.append(rows(-60.0, -70.0), producer="p", sequence=2)
    assert (again.ranges, again.filtered) == ({}, 2)
    third = sieved.append(rows(5.0), producer="p", sequence=3)
    assert third.filtered == 0
    for sequence, answer, sent in ((1, first, (1.0, -60.0)), (3, third, (5.0,))):
        retried = sieved.append(rows(*sent), producer="p", sequence=sequence)
        assert (retried.ranges, retried.filtered, retried.duplicate) == (answer.ranges, answer.filtered, True)
    assert sieved.count() == 2


def test_a_producer_counts_what_was_left_out_as_acknowledged(sieved: millpond.Stream) -> None:
    with sieved.producer("p", linger="1ms") as producer:
        for n in range(200):
            producer.append({"vid": f"v{n}", "secret": "", "temp": float(n % 2) * 100 - 60})
        producer.flush()
        assert producer.figures.records_acknowledged == 200
    assert sieved.count() == 100


def test_what_it_is_told_is_kept_and_grows(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", SENT, keep="temp > 0", only=["vid"])
        info = stream.info()
        assert (info.keep, info.schema) == ("temp > 0", "vid string")
        assert info.sent == "vid string, secret string, temp double"
    with ponds() as pond:
        stream = pond.stream("s")
        assert stream.append(rows(1.0, -1.0)).filtered == 1
        pond.alter_stream("s", pa.schema([("vid", pa.string()), ("temp", pa.float64()), ("note", pa.string())]))
        stream = pond.stream("s")
        stream.append({"vid": "w", "secret": "s", "temp": 2.0, "note": "n"})
        assert stream.append({"vid": "w", "temp": -2.0, "note": "n"}).filtered == 1
        stream.settle()
        assert stored(stream) == [
            {"vid": "v0", "temp": None, "note": None},
            {"vid": "w", "temp": 2.0, "note": "n"},
        ]


def test_raw_events_are_filtered_and_stored_whole(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("hooks", keep="body IS NOT NULL AND time > '2026-01-01'")
        assert stream.append([{"body": b"now"}]).filtered == 0
        assert stream.append({"body": b"then", "time": datetime(2025, 1, 1, tzinfo=UTC)}).filtered == 1
        assert stream.scan()["body"].to_pylist() == [b"now"]
        with pytest.raises(InvalidSchema, match="raw events"):
            pond.create_stream("others", only=["body"])


def test_a_filter_that_cannot_be_is_refused(pond: millpond.Pond) -> None:
    with pytest.raises(InvalidInput):
        pond.create_stream("s", SENT, keep="temperature > 0")
    with pytest.raises(InvalidInput):
        pond.create_stream("s", SENT, keep="temp >")
    with pytest.raises(InvalidInput):
        pond.create_stream("s", SENT, keep="_offset > 3")
    with pytest.raises(InvalidSchema, match="humidity"):
        pond.create_stream("s", SENT, only=["humidity"])
    with pytest.raises(InvalidSchema, match="key 'vid' is not a column"):
        pond.create_stream("s", SENT, only=["temp"], keys=["vid"])
    with pytest.raises(InvalidSchema):
        pond.create_stream("s", SENT, only=[])
    assert [stream.name for stream in pond.streams()] == []


@pytest.mark.embedded
def test_what_was_left_out_is_counted(ponds: Ponds) -> None:
    with ponds() as pond:
        stream = pond.create_stream("s", SENT, keep="temp > 0")
        stream.append(rows(1.0, -1.0, -2.0))
        stream.append({"vid": "v", "temp": -1.0})
        assert stream.telemetry.filtered.value == 3
        with pond.transaction() as transaction:
            transaction.append("s", rows(5.0, -5.0))
        assert stream.count() == 2


def test_a_transaction_of_which_nothing_is_kept_happens_all_the_same(ponds: Ponds) -> None:
    with ponds() as pond:
        source = pond.create_stream("in", SENT)
        kept = pond.create_stream("s", SENT, keep="temp > 0")
        other = pond.create_stream("other", SENT)
        source.append(rows(1.0))
        with pond.consumer("in", group="g") as consumer:
            assert sum(batch.num_rows for batch in consumer.poll(timeout="5s")) == 1
            with consumer.transaction() as transaction:
                transaction.append("s", rows(-1.0, -2.0))
            source.append(rows(2.0))
            assert sum(batch.num_rows for batch in consumer.poll(timeout="5s")) == 1
            with consumer.transaction() as transaction:
                transaction.append("s", rows(-1.0))
                transaction.append("other", rows(3.0))
        assert pond.group_desk().group("in", "g").lag == {0: 0}
        with pond.transaction() as free:
            free.append("s", rows(-1.0))
        assert [ack.ranges for ack in free.acks] == [{}]
        with pond.transaction() as free:
            free.append("s", rows(-1.0))
            free.append("other", rows(4.0))
        assert (kept.count(), sorted(other.scan()["temp"].to_pylist())) == (0, [3.0, 4.0])


@pytest.mark.embedded
def test_a_transaction_of_which_nothing_is_kept_is_answered_again(pond: millpond.Pond) -> None:
    pond.create_stream("s", SENT, keep="temp > 0").bulk.stage("t/0", rows(-1.0))
    desk = PondDesk(pond, SecretGate("for-tests-only", EVERYTHING))
    request = CommitTransaction(stages=("t/0",), streams=("s",), producer="transaction-1", sequence=1)
    for _ in range(2):  # the answer may be lost, and is then asked for again
        assert [ack.ranges for ack in desk.call(ANYONE, request)] == [{}]
