"""B2: one query sees one snapshot: each kept record exactly once, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millpond
from millpond.pond.desk import PondDesk
from millpond.wire import LiveTicket
from millpond.wire.access import Caller
from millpond.wire.desk import Batches
from tests.spark.conftest import readings

SPARK_COUNTS = 100


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    return Fetches(monkeypatch)


class Fetches:
    """Watches the node, and may do something just before it serves a ticket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tickets: list[LiveTicket] = []
        self.before: Callable[[], None] = lambda: None
        serve = PondDesk.live

        def live(desk: PondDesk, caller: Caller, ticket: LiveTicket) -> Batches:
            self.tickets.append(ticket)
            self.before()
            return serve(desk, caller, ticket)

        monkeypatch.setattr(PondDesk, "live", live)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


@pytest.mark.usefixtures("by_tasks")
def test_a_frame_made_earlier_stays_exact_and_fresh(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    stop = 350
    for step in ("append", "settle", "append", "append", "settle", "merge", "append"):
        if step == "append":
            meters.append(readings(stop, stop + 10))
            stop += 10
        elif step == "settle":
            meters.settle()
        else:
            meters.settling.compact()
        assert numbers(frame) == list(range(stop)), step


@pytest.mark.usefixtures("by_tasks")
def test_what_settles_between_planning_and_reading_is_read_once(
    spark: SparkSession, meters: millpond.Stream, fetches: Fetches
) -> None:
    """The log has let go of the live ranges by then; the node serves them from newer objects."""

    def settle() -> None:
        meters.append(readings(1_000, 1_010))
        meters.settle()
        meters.settling.compact()
        assert meters.snapshot().live == {}

    fetches.before = settle
    assert numbers(meters.to_spark(spark)) == list(range(350))
    assert fetches.tickets


@pytest.mark.usefixtures("by_tasks")
def test_both_sides_of_a_self_join_see_one_snapshot(
    spark: SparkSession, meters: millpond.Stream, fetches: Fetches
) -> None:
    fresh = iter(range(1_000, 2_000, 10))
    fetches.before = lambda: meters.append(readings(start := next(fresh), start + 10)) and None
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        # Of different columns, so that Spark does not read one side for both.
        left, right = meters.to_spark(spark).alias("l"), meters.to_spark(spark).select("n", "city").alias("r")
        joined = left.join(right, F.col("l.n") == F.col("r.n"), "full_outer")
        missing = joined.where("l.n IS NULL OR r.n IS NULL").select("l.n", "r.city").collect()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert missing == []
    assert len(fetches.tickets) >= 2
    assert len({str(sorted(ticket.ranges.items())) for ticket in fetches.tickets}) == 1


@pytest.mark.usefixtures("by_tasks")
def test_a_broadcast_join_and_its_repetition_see_one_snapshot(spark: SparkSession, meters: millpond.Stream) -> None:
    """A plan that is run again re-uses what it broadcast, so the other side must not move on without it."""
    frame = meters.to_spark(spark)
    joined = frame.join(F.broadcast(frame.selectExpr("n AS m")), F.col("n") == F.col("m"), "left")
    assert joined.where("m IS NULL").count() == 0
    rows = joined.select("n", "m")
    first = sorted(map(tuple, rows.collect()))
    meters.append(readings(350, 360))
    assert all(m is not None for _, m in rows.collect())
    assert len(first) == 350


@pytest.mark.usefixtures("by_tasks")
def test_subqueries_see_the_snapshot_of_their_query(
    spark: SparkSession, meters: millpond.Stream, fetches: Fetches
) -> None:
    fresh = iter(range(1_000, 2_000))
    fetches.before = lambda: meters.append(readings(start := next(fresh), start + 1)) and None
    meters.to_spark(spark).createOrReplaceTempView("snap")
    try:
        (row,) = spark.sql("""
            WITH newest AS (SELECT max(n) AS n FROM snap)
            SELECT count(*) AS rows, (SELECT max(n) FROM snap) AS top, (SELECT n FROM newest) AS also,
                   (SELECT count(*) FROM snap WHERE n IN (SELECT n FROM snap WHERE city = 'Nice')) AS nice
            FROM snap WHERE n <= (SELECT max(n) FROM snap)
        """).collect()
    finally:
        spark.catalog.dropTempView("snap")
    assert (row["rows"], row["top"], row["also"], row["nice"]) == (350, 349, 349, 117)


@pytest.mark.usefixtures("by_tasks")
def test_a_union_of_a_stream_with_itself_counts_each_record_twice(
    spark: SparkSession, meters: millpond.Stream, fetches: Fetches
) -> None:
    fresh = iter(range(1_000, 2_000))
    fetches.before = lambda: meters.append(readings(start := next(fresh), start + 1)) and None
    frame = meters.to_spark(spark)
    counts = frame.union(meters.to_spark(spark)).groupBy("n").count().where("count != 2").collect()
    assert counts == []


@pytest.mark.usefixtures("by_tasks")
def test_a_cached_frame_keeps_its_snapshot_although_it_is_computed_piece_by_piece(
    spark: SparkSession, meters: millpond.Stream
) -> None:
    cached = meters.to_spark(spark).select("n").cache()
    try:
        assert len(cached.limit(1).collect()) == 1
        meters.append(readings(350, 400))
        meters.settle()
        assert numbers(cached) == list(range(350))
        assert meters.to_spark(spark).where("n >= 0").count() == 400
    finally:
        cached.unpersist()


def test_a_plan_that_was_explained_is_no_exception(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    joined = frame.alias("l").join(frame.alias("r"), F.col("l.n") == F.col("r.n"), "full_outer")
    missing = joined.where("l.n IS NULL OR r.n IS NULL").select("l.n")
    missing._jdf.queryExecution().toString()
    meters.append(readings(350, 360))
    assert missing.collect() == []


@pytest.mark.usefixtures("by_tasks")
def test_rdds_of_frames_see_one_snapshot(spark: SparkSession, meters: millpond.Stream) -> None:
    frame = meters.to_spark(spark)
    rdd = frame.alias("l").join(frame.alias("r"), F.col("l.n") == F.col("r.n")).select("l.n").rdd
    meters.append(readings(350, 360))
    assert sorted(row[0] for row in rdd.collect()) == list(range(350))


def test_a_table_written_from_a_stream_holds_one_snapshot(
    spark: SparkSession, meters: millpond.Stream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = str(tmp_path_factory.mktemp("written") / "copy")
    meters.to_spark(spark).write.parquet(target)
    assert numbers(spark.read.parquet(target)) == list(range(350))


def test_a_session_that_was_not_attached_is_told_so(spark: SparkSession, meters: millpond.Stream) -> None:
    meters.to_spark(spark).createOrReplaceGlobalTempView("elsewhere")
    try:
        with pytest.raises(Exception, match=r"does not know the session that reads stream grid/meters"):
            spark.newSession().sql("SELECT count(*) FROM global_temp.elsewhere").collect()
    finally:
        spark.catalog.dropGlobalTempView("elsewhere")


def test_counts_while_a_writer_and_a_settler_run(spark: SparkSession, meters: millpond.Stream) -> None:
    """Each count lies between what was acknowledged before it began and what was sent before it ended, and no record
    is in it twice."""
    sent = acked = 350
    failures: list[BaseException] = []
    stop = threading.Event()

    def write() -> None:
        nonlocal sent, acked
        try:
            while not stop.is_set():
                sent += 20
                meters.append(readings(acked, sent))
                acked = sent
                stop.wait(0.005)
        except BaseException as error:
            failures.append(error)

    def settle() -> None:
        try:
            while not stop.is_set():
                meters.settle()
                meters.settling.compact()
                stop.wait(0.05)
        except BaseException as error:
            failures.append(error)

    frame = meters.to_spark(spark).selectExpr("count(*) AS rows", "count(DISTINCT n) AS distinct", "max(n) AS top")
    threads = [threading.Thread(target=write), threading.Thread(target=settle)]
    for thread in threads:
        thread.start()
    try:
        versions = set()
        for _ in range(SPARK_COUNTS):
            low = acked
            (row,) = frame.select("*").collect()
            high = sent
            versions.add(meters.snapshot().version)
            assert low <= row["rows"] <= high
            assert row["rows"] == row["distinct"]
            assert not failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(versions) > 10, "the settler hardly ran; this proved nothing"
