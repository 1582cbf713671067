"""The live half: what reaches the node, how work is dealt out, and what a user is told when it fails (K13)."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.flight.door import FlightDoor
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import And, Compare, Not, Or, Unknown, truth
from millpond.pond.desk import PondDesk
from millpond.spark.live import ROWS_PER_TASK_MIN, fetch_little, tickets_for
from millpond.wire import LiveTicket
from millpond.wire.access import Caller
from millpond.wire.desk import Batches
from tests.spark.conftest import METERS, readings


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[LiveTicket]:
    seen: list[LiveTicket] = []
    serve = PondDesk.live

    def live(desk: PondDesk, caller: Caller, ticket: LiveTicket) -> Batches:
        seen.append(ticket)
        return serve(desk, caller, ticket)

    monkeypatch.setattr(PondDesk, "live", live)
    return seen


@pytest.mark.usefixtures("live_way")
def test_the_node_gets_columns_and_the_whole_predicate(
    spark: SparkSession, meters: millpond.Stream, tickets: list[LiveTicket]
) -> None:
    """K13: filters and projections are evaluated where the segments are, OR and all."""
    meters.to_spark(spark).where("n > 340 OR (n < 310 AND city = 'Nice')").select("vid").collect()
    assert {frozenset(ticket.columns) for ticket in tickets} == {frozenset(("vid", "city", "n"))}
    assert {ticket.stream for ticket in tickets} == {meters.definition.id}
    assert truth(tickets[0].predicate) == Or(
        (Compare(">", "n", 340), And((Compare("<", "n", 310), Compare("=", "city", "Nice"))))
    )


def test_what_the_node_cannot_evaluate_is_left_to_spark(
    spark: SparkSession, meters: millpond.Stream, tickets: list[LiveTicket]
) -> None:
    assert meters.to_spark(spark).where("n >= 300 AND length(city) = 5").count() == 16
    match truth(tickets[0].predicate, loose=True):
        case And(terms):
            assert Compare(">=", "n", 300) in terms
        case other:
            assert other == Compare(">=", "n", 300)
    assert any(isinstance(term, Unknown) for term in tickets[0].predicate.terms)  # type: ignore[union-attr]


def test_counting_fetches_a_single_narrow_column(
    spark: SparkSession, meters: millpond.Stream, tickets: list[LiveTicket]
) -> None:
    assert meters.to_spark(spark).count() == 350
    assert {ticket.columns for ticket in tickets} == {("_offset",)}


def test_nothing_is_fetched_when_nothing_is_live(
    spark: SparkSession, meters: millpond.Stream, tickets: list[LiveTicket]
) -> None:
    meters.settle()
    assert meters.to_spark(spark).count() == 350
    assert tickets == []


def test_a_stream_that_never_settled_is_all_live(spark: SparkSession, pond: millpond.Pond) -> None:
    stream = pond.create_stream("only/live", schema=METERS, settle=None, streamlets=3)
    stream.append(readings(0, 100))
    assert stream.to_spark(spark).agg({"n": "sum"}).collect()[0][0] == sum(range(100))


@pytest.mark.usefixtures("live_way")
def test_a_wrong_token_fails_the_query_and_is_not_shown(
    spark: SparkSession, meters: millpond.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = meters.door().token
    monkeypatch.setattr(FlightDoor, "token", property(lambda door: "another"))
    with pytest.raises(Exception, match=r"the token is missing or wrong|refused the token") as caught:
        meters.to_spark(spark).where("n >= 300").collect()
    assert token not in str(caught.value)


def test_the_token_is_in_no_plan(spark: SparkSession, meters: millpond.Stream) -> None:
    plan = meters.to_spark(spark).groupBy("city").count()._jdf.queryExecution().toString()
    assert "live" in plan
    assert meters.door().token not in plan


@pytest.mark.usefixtures("live_way")
def test_an_error_of_the_node_reaches_the_user_with_its_hint(
    spark: SparkSession, meters: millpond.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live(desk: PondDesk, caller: Caller, ticket: LiveTicket) -> None:
        raise millpond.errors.OffsetGone("truncated meanwhile", hint="query again")

    monkeypatch.setattr(PondDesk, "live", live)
    with pytest.raises(Exception, match=r"truncated meanwhile\s+hint: query again \[offset-gone\]"):
        meters.to_spark(spark).where("n >= 300").collect()


def test_queries_on_a_dropped_stream_or_a_closed_pond_say_so(
    spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond
) -> None:
    other = pond.create_stream("short/lived", schema=METERS)
    frame, lost = meters.to_spark(spark), other.to_spark(spark)
    pond.drop_stream("short/lived")
    with pytest.raises(Exception, match=r"was dropped"):
        lost.count()
    pond.close()
    with pytest.raises(Exception, match=r"pond-closed"):
        frame.count()


def test_work_is_dealt_out_evenly_and_completely() -> None:
    ranges = {0: OffsetRange(5, 5 + 10 * ROWS_PER_TASK_MIN), 2: OffsetRange(7, 17), 3: OffsetRange(0, 3)}
    tickets = tickets_for(1, 1, ranges, ["n"], None, cores=2)
    assert len(tickets) == 4
    sizes = [sum(map(len, ticket.ranges.values())) for ticket in tickets]
    assert max(sizes) - min(sizes) < 4
    for streamlet, whole in ranges.items():
        parts = sorted(t.ranges[streamlet] for t in tickets if streamlet in t.ranges)
        assert (parts[0].start, parts[-1].stop) == (whole.start, whole.stop)
        assert all(a.stop == b.start for a, b in pairwise(parts))


def test_few_rows_are_one_task() -> None:
    ranges = {streamlet: OffsetRange(0, 10) for streamlet in range(100)}
    assert len(tickets_for(1, 1, ranges, ["n"], None, cores=64)) == 1
    assert tickets_for(1, 1, {}, ["n"], None, cores=2) == []


def test_a_predicate_too_large_to_send_is_left_to_spark() -> None:
    large = Not(Compare("=", "vid", "x" * 5_000_000))
    (ticket,) = tickets_for(1, 1, {0: OffsetRange(0, 1)}, ["n"], large, cores=1)
    assert ticket.predicate is None


def test_a_little_is_fetched_once_and_comes_with_the_plan(
    spark: SparkSession, meters: millpond.Stream, tickets: list[LiveTicket]
) -> None:
    """No Python is started in executors for a few rows; what does not match never leaves the node."""
    frame = meters.to_spark(spark).where("n >= 348").select("n")
    rdd = frame.rdd
    assert len(tickets) == 1
    assert sorted(row["n"] for row in rdd.collect()) == [348, 349]
    assert len(tickets) == 1


def test_few_rows_of_many_bytes_are_fetched_by_tasks(spark: SparkSession, pond: millpond.Pond) -> None:
    stream = pond.create_stream("wide", schema=pa.schema([("n", pa.int64()), ("blob", pa.binary())]), settle=None)
    stream.append([{"n": n, "blob": bytes([n]) * 300_000} for n in range(10)])
    door, live = stream.door(), stream.snapshot().live
    narrow = LiveTicket(stream.definition.id, 1, live, ("n",))
    assert fetch_little(door, [narrow])
    assert fetch_little(door, [LiveTicket(stream.definition.id, 1, live, ("n", "blob"))]) is None
    found = stream.to_spark(spark).selectExpr("n", "length(blob) AS size").collect()
    assert sorted(map(tuple, found)) == [(n, 300_000) for n in range(10)]


def test_large_live_halves_come_in_many_tasks(spark: SparkSession, pond: millpond.Pond) -> None:
    stream = pond.create_stream("big/live", schema=pa.schema([("n", pa.int64())]), settle=None, streamlets=2)
    count = 3 * ROWS_PER_TASK_MIN
    stream.append(pa.table({"n": pa.array(range(count), pa.int64())}))
    frame = stream.to_spark(spark)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.agg({"n": "sum"}).collect()[0][0] == count * (count - 1) // 2
