"""Streams as views, in step with the pond."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.spark import Attachment
from millpond.spark.planner import planner_of
from tests.spark.conftest import METERS, readings


def views(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables() if table.isTemporary}


def test_every_stream_is_a_view(spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond) -> None:
    attached = pond.attach(spark)
    try:
        assert attached.views == {"grid/meters": "grid_meters"}
        (row,) = spark.sql("SELECT count(*) AS rows, sum(n) AS total FROM grid_meters WHERE n >= 290").collect()
        assert (row["rows"], row["total"]) == (60, sum(range(290, 350)))
    finally:
        attached.detach()
    assert "grid_meters" not in views(spark)


def test_views_follow_their_streams(spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond) -> None:
    attached = pond.attach(spark)
    try:
        later = pond.create_stream("grid/bills", schema=METERS)
        later.append(readings(0, 5))
        assert spark.sql("SELECT count(*) FROM grid_bills").collect()[0][0] == 5

        pond.alter_stream("grid/bills", schema=METERS.append(pa.field("paid", pa.bool_())))
        later.append({**readings(5, 6)[0], "paid": True})
        assert spark.sql("SELECT n FROM grid_bills WHERE paid").collect()[0][0] == 5

        pond.drop_stream("grid/bills")
        assert "grid_bills" not in views(spark)

        pond.create_stream("grid/bills", schema=METERS)
        assert spark.sql("SELECT count(*) FROM grid_bills").collect()[0][0] == 0
        assert "paid" not in spark.table("grid_bills").columns
    finally:
        attached.detach()


def test_a_view_sees_what_settles_after_it_was_made(
    spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond
) -> None:
    """Re-attaching is not needed: the objects are those of the newest version."""
    attached = pond.attach(spark)
    try:
        for stop in (360, 370):
            meters.append(readings(stop - 10, stop))
            meters.settle()
            assert spark.sql("SELECT count(DISTINCT n) FROM grid_meters").collect()[0][0] == stop
            found = millpond.spark.last_query(spark)
            assert (found.objects_total, found.rows_live) == (len(meters.snapshot().settled.objects), 0)
    finally:
        attached.detach()


def test_attaching_again_changes_nothing(spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond) -> None:
    attached = pond.attach(spark)
    try:
        assert pond.attach(spark) is attached
        assert spark.sql("SELECT count(*) FROM grid_meters").collect()[0][0] == 350
    finally:
        attached.detach()
    again = pond.attach(spark)
    assert again is not attached
    again.detach()


def test_streams_whose_views_would_share_a_name_get_two(spark: SparkSession, pond: millpond.Pond) -> None:
    older = pond.create_stream("a/b", schema=METERS)
    younger = pond.create_stream("A.b", schema=METERS)
    older.append(readings(0, 1))
    younger.append(readings(0, 2))
    attached = pond.attach(spark)
    try:
        other = f"A_b_{younger.definition.id}"
        assert attached.views == {"a/b": "a_b", "A.b": other}
        assert spark.sql("SELECT count(*) FROM a_b").collect()[0][0] == 1
        assert spark.sql(f"SELECT count(*) FROM {other}").collect()[0][0] == 2
    finally:
        attached.detach()


@pytest.fixture
def other_pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "other", background=False) as pond:
        yield pond


def count(spark: SparkSession, view: str) -> int:
    found: int = spark.sql(f"SELECT count(*) FROM {view}").collect()[0][0]
    return found


def test_two_ponds_in_one_session_keep_their_views_apart(
    spark: SparkSession, pond: millpond.Pond, other_pond: millpond.Pond, caplog: pytest.LogCaptureFixture
) -> None:
    """The first has the name, whoever of them changes afterwards; the second is told which one it has."""
    for each, rows in ((pond, 3), (other_pond, 5)):
        each.create_stream("meters", schema=METERS).append(readings(0, rows))
    first = pond.attach(spark)
    second = other_pond.attach(spark)
    name = f"meters_{other_pond.stream('meters').definition.id}"
    try:
        assert (first.views, second.views) == ({"meters": "meters"}, {"meters": name})
        assert f"the view of meters is called {name}" in caplog.text
        assert (count(spark, "meters"), count(spark, name)) == (3, 5)

        other_pond.alter_stream("meters", schema=METERS.append(pa.field("paid", pa.bool_())))
        assert ("paid" in spark.table("meters").columns, "paid" in spark.table(name).columns) == (False, True)
        pond.alter_stream("meters", schema=METERS.append(pa.field("due", pa.bool_())))
        assert ("due" in spark.table("meters").columns, "due" in spark.table(name).columns) == (True, False)
        assert (count(spark, "meters"), count(spark, name)) == (3, 5)
    finally:
        second.detach()
        assert name not in views(spark)
        assert count(spark, "meters") == 3
        first.detach()
    assert "meters" not in views(spark)


def test_a_view_keeps_its_name_when_the_better_one_is_free(
    spark: SparkSession, pond: millpond.Pond, other_pond: millpond.Pond
) -> None:
    for each in (pond, other_pond):
        each.create_stream("meters", schema=METERS)
    first, second = pond.attach(spark), other_pond.attach(spark)
    try:
        before = second.views
        first.detach()
        other_pond.create_stream("bills", schema=METERS)
        assert second.views == {**before, "bills": "bills"}
    finally:
        first.detach()
        second.detach()


def test_views_of_the_users_own_are_left_alone(spark: SparkSession, pond: millpond.Pond) -> None:
    """Also one that took the place of ours, or has the name that ours would have then."""
    stream = pond.create_stream("meters", schema=METERS)
    stream.append(readings(0, 3))
    other = f"meters_{stream.definition.id}"
    before = {name.lower() for name in views(spark)}  # whatever others left in the session
    spark.range(7).createOrReplaceTempView("Meters")
    spark.range(8).createOrReplaceTempView(other)
    attached = pond.attach(spark)
    try:
        assert attached.views == {"meters": f"{other}_2"}
        assert (count(spark, "meters"), count(spark, other), count(spark, f"{other}_2")) == (7, 8, 3)

        spark.range(9).createOrReplaceTempView(f"{other}_2")
        assert attached.views == {}
        pond.alter_stream("meters", schema=METERS.append(pa.field("paid", pa.bool_())))
        assert attached.views == {"meters": f"{other}_3"}
        assert (count(spark, f"{other}_2"), count(spark, f"{other}_3")) == (9, 3)
    finally:
        attached.detach()
        assert {"meters", other, f"{other}_2"} <= {name.lower() for name in views(spark)}
        for name in ("meters", other, f"{other}_2"):
            spark.catalog.dropTempView(name)
    assert {name.lower() for name in views(spark)} <= before - {"meters"}


def test_a_view_of_ours_that_was_dropped_comes_back_with_the_next_change(
    spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond
) -> None:
    attached = pond.attach(spark)
    try:
        spark.catalog.dropTempView("grid_meters")
        assert attached.views == {}
        pond.create_stream("grid/bills", schema=METERS)
        assert count(spark, "grid_meters") == 350
    finally:
        attached.detach()


def test_a_pond_that_is_opened_again_has_its_views_under_the_same_names(spark: SparkSession, pond_dir: Path) -> None:
    for rows in (3, 6):
        with millpond.open(pond_dir, background=False) as pond:
            if rows == 3:
                pond.create_stream("meters", schema=METERS)
            pond.stream("meters").append(readings(0, 3))
            attached = pond.attach(spark)
            assert attached.views == {"meters": "meters"}
            assert count(spark, "meters") == rows
    attached.detach()
    assert "meters" not in views(spark)


def test_a_name_of_digits_is_a_view(spark: SparkSession, pond: millpond.Pond) -> None:
    pond.create_stream("2017", schema=METERS).append(readings(0, 4))
    attached = pond.attach(spark)
    try:
        assert count(spark, "`2017`") == 4
    finally:
        attached.detach()


def test_the_ponds_own_streams_are_no_views(spark: SparkSession, pond: millpond.Pond) -> None:
    attached = pond.attach(spark)
    assert attached.views == {}
    attached.detach()


def test_a_detached_session_no_longer_follows(spark: SparkSession, pond: millpond.Pond) -> None:
    attached: Attachment = pond.attach(spark)
    attached.detach()
    pond.create_stream("after/all", schema=METERS)
    assert "after_all" not in views(spark)


def test_a_session_in_trouble_does_not_disturb_the_pond(
    spark: SparkSession, pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attached = pond.attach(spark)
    try:
        monkeypatch.setattr("millpond.spark.planner.SessionPlanner.frame", lambda *_: 1 / 0)
        assert pond.create_stream("still/created", schema=METERS).append(readings(0, 1))
        assert "could not follow" in caplog.text
    finally:
        monkeypatch.undo()
        attached.detach()


def test_a_pond_that_was_reopened_serves_frames_made_before(spark: SparkSession, pond_dir: object) -> None:
    with millpond.open(str(pond_dir), background=False) as pond:
        stream = pond.create_stream("grid/meters", schema=METERS)
        stream.append(readings(0, 10))
        stream.settle()
        stream.append(readings(10, 20))
        frame = stream.to_spark(spark)
        assert frame.count() == 20
    with millpond.open(str(pond_dir), background=False) as pond:
        pond.stream("grid/meters").to_spark(spark)
        assert frame.count() == 20


def test_nothing_of_a_closed_pond_is_held_on_to(spark: SparkSession, tmp_path: Path) -> None:
    planner = planner_of(spark)
    path = tmp_path / "closing"
    with millpond.open(path, background=False) as pond:
        stream = pond.create_stream("closing/meters", schema=METERS)
        stream.append(readings(0, 5))
        pond.attach(spark)
        assert spark.sql("SELECT count(*) FROM closing_meters").collect()[0][0] == 5
        key = planner.key(stream, stream.snapshot().settled)
        assert key in planner._streams
        assert key in planner._tables
        assert id(pond) in planner.attachments
    assert key not in planner._streams
    assert key not in planner._tables
    assert all(attachment._pond is not pond for attachment in planner.attachments.values())
    with pytest.raises(Exception, match="is closed"):
        spark.sql("SELECT count(*) FROM closing_meters").collect()
    with millpond.open(path, background=False) as pond:
        attached = pond.attach(spark)
        assert spark.sql("SELECT count(*) FROM closing_meters").collect()[0][0] == 5
        attached.detach()
