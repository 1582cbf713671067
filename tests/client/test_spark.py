"""Spark over a connected pond, with a token: the same frames and views as over an embedded one."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.client.pond import RemotePond
from millpond.client.served import StreamForSpark
from millpond.errors import Unavailable
from millpond.pond.tokens import TokenGate
from millpond.query.snapshot import Snapshot
from millpond.spark.live import ROWS_HELD_MAX
from millpond.wire.access import Grant
from millpond.wire.requests import CreateToken
from tests.client.conftest import NUMBERS, Certificates, Served
from tests.serving import serving


@pytest.fixture
def pond(served: Served) -> RemotePond:
    """Connected by who may only read. A hundred records have settled, a hundred are live."""
    stream = served.pond.create_stream("grid/numbers", NUMBERS, streamlets=2, keys=["n"])
    stream.append([{"n": n, "text": f"t{n % 3}"} for n in range(100)])
    stream.settle()
    stream.append([{"n": n, "text": f"t{n % 3}"} for n in range(100, 200)])
    served.stop()
    served.start(Grant("", frozenset(("read",))))
    return served.connect()


def test_a_frame_is_live_and_settled_as_one_and_fresh(pond: RemotePond, served: Served, spark: SparkSession) -> None:
    frame = pond.stream("grid/numbers").to_spark(spark)
    assert frame.count() == 200
    assert frame.where("n >= 50 AND n < 150").count() == 100
    assert sorted(row.text for row in frame.select("text").distinct().collect()) == ["t0", "t1", "t2"]
    figures = millpond.spark.last_query(spark)
    assert (figures.objects_total, figures.rows_live) == (1, 100)
    served.pond.stream("grid/numbers").append({"n": 1_000, "text": "new"})
    assert frame.where("text = 'new'").count() == 1
    served.pond.stream("grid/numbers").settle()
    assert frame.where("text = 'new'").count() == 1
    assert millpond.spark.last_query(spark).objects_total == 2


def test_views_follow_what_others_create_and_drop(pond: RemotePond, served: Served, spark: SparkSession) -> None:
    told = threading.Event()
    stop = pond.on_change(lambda change: told.set() if change.name == "grid/more" else None)
    views = pond.attach(spark)
    try:
        assert spark.sql("SELECT sum(n) FROM grid_numbers").collect()[0][0] == sum(range(200))
        served.pond.create_stream("grid/more", NUMBERS).append({"n": 7})
        assert told.wait(60)
        stop()
        with views._lock:  # whoever was told first may still be at it
            pass
        assert spark.sql("SELECT n FROM grid_more").collect()[0][0] == 7
        assert views.views == {"grid/numbers": "grid_numbers", "grid/more": "grid_more"}
    finally:
        views.detach()


def test_objects_that_are_out_of_reach_are_named(pond: RemotePond, served: Served, spark: SparkSession) -> None:
    stream = pond.stream("grid/numbers")
    root = Path(stream.snapshot().settled.root)
    away = root.with_name("away")
    shutil.move(root, away)
    try:
        with pytest.raises(Unavailable, match="which is no directory here") as refused:
            stream.to_spark(spark)
        assert str(root) in refused.value.message
    finally:
        shutil.move(away, root)


def test_executors_fetch_live_records_over_tls(tmp_path: Path, certificates: Certificates, spark: SparkSession) -> None:
    ca, cert, key = certificates
    millpond.open(tmp_path / "pond").close()
    token = TokenGate(str(tmp_path / "pond")).create(CreateToken("me", ("read", "write", "admin"))).token
    many = ROWS_HELD_MAX * 2  # more than the driver fetches by itself
    with (
        serving(tmp_path / "pond", "--tls-certificate", str(cert), "--tls-key", str(key)) as server,
        millpond.connect(server.url.replace("http:", "https:"), token, ca=ca) as pond,
    ):
        stream = pond.create_stream("numbers", pa.schema([("n", pa.int64())]), settle=None)
        stream.append(pa.table({"n": range(many)}))
        assert stream.to_spark(spark).selectExpr("count(*)", "sum(n)").collect()[0][:] == (many, sum(range(many)))


class SameRoot(StreamForSpark):
    """As if its node had the pond under the path that another node's has, as containers do."""

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        return replace(found, settled=replace(found.settled, root="/data/pond/archive/numbers-1"))


def test_two_ponds_under_the_same_path_are_two(served: Served, tmp_path: Path, spark: SparkSession) -> None:
    other = Served(tmp_path / "other")
    try:
        frames = []
        for node, rows in ((served, 1), (other, 2)):
            node.pond.create_stream("numbers", NUMBERS).append([{"n": rows}] * rows)
            frames.append(millpond.spark.to_spark(SameRoot(node.connect().stream("numbers")), spark))
        assert [frame.count() for frame in frames] == [1, 2]
    finally:
        other.close()


def test_a_stream_that_the_caller_may_not_read_has_no_view(
    pond: RemotePond,
    served: Served,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("millpond"), "propagate", True)  # a command may have turned it off
    served.pond.create_stream("other/numbers", NUMBERS)
    served.stop()
    served.start(Grant("grid", frozenset(("read",))), Grant("other", frozenset(("write",))))
    views = pond.attach(spark)
    try:
        assert views.views == {"grid/numbers": "grid_numbers"}
        assert "other/numbers has no view" in caplog.text
    finally:
        views.detach()


def test_who_could_not_attach_does_not_listen(pond: RemotePond, spark: SparkSession) -> None:
    root = Path(pond.stream("grid/numbers").snapshot().settled.root)
    away = root.with_name("away")
    shutil.move(root, away)
    try:
        with pytest.raises(Unavailable):
            pond.attach(spark)
        assert pond._watch._listeners == []
    finally:
        shutil.move(away, root)
