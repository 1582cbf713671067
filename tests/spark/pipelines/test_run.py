"""Pipelines on a real Spark: exactly once over restarts, what went wrong in the user's words, and a clear stop. K16"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.spark import register
from millpond.spark.pipelines import Checkpoints, PondAccess, Runner, load_file
from millpond.spark.pipelines import runner as running
from millpond.wire.pipelines import PipelineReport

pytestmark = pytest.mark.spark

METERS = pa.schema(
    [("vid", pa.string()), ("city", pa.string()), ("temp", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PATIENCE_SECONDS = 400.0

PIPELINES = """
import millpond
from pyspark.sql import functions as F


@millpond.pipeline(source="grid/meters", sink="grid/hot", keys=["vid"], event_time="at", trigger="100ms")
def hot(meters):
    return meters.where("temp >= 20").withColumn("kelvin", F.col("temp") + 273)


millpond.sql_pipeline(
    "cities",
    "SELECT city, window(at, '1 hour').start AS hour, count(*) AS readings FROM grid_meters GROUP BY ALL",
    sink="grid/hourly",
    mode="update",
    watermark="1h",
)


@millpond.pipeline(source="grid/meters", sink="grid/halved", trigger="100ms")
def halved(meters):
    @F.udf("double")
    def half(temp):
        if temp == 13:
            raise ValueError("thirteen")
        return temp / 2

    return meters.select("vid", half("temp").alias("half"))


@millpond.pipeline(source="grid/meters", sink="grid/wrong")
def wrong(meters):
    return meters.select("vid", "colour")


@millpond.pipeline(source="grid/meters", sink="grid/nothing")
def nothing(meters):
    return 17
"""


def readings(start: int, stop: int) -> list[dict[str, Any]]:
    return [
        {"vid": f"m-{n}", "city": f"c{n % 3}", "temp": float(n), "at": NOON + timedelta(minutes=n)}
        for n in range(start, stop)
    ]


class Bench:
    """A pond with meters, and pipelines of one file that run on it."""

    def __init__(self, path: Path, spark: Any) -> None:
        self.pond = millpond.open(path / "pond", background=False, disk_reserve_bytes=0)
        self.meters = self.pond.create_stream("grid/meters", METERS, keys=["vid"], event_time="at", streamlets=2)
        self.file = path / "pipelines.py"
        self.file.write_text(PIPELINES)
        self._spark = spark
        self.shown: list[PipelineReport] = []

    def runner(self, *names: str, once: bool = False) -> Runner:
        made = Runner(
            self._spark,
            PondAccess(self.pond, {"pond": self.pond.path}),
            Checkpoints.of(self.pond),
            load_file(self.file, names),
            file=self.file,
            once=once,
            shown=self.shown.append,
        )
        made.start()
        return made

    def until(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            assert time.monotonic() < until, self.shown[-3:]
            time.sleep(0.1)


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Iterator[Bench]:
    register(spark)
    made = Bench(tmp_path, spark)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.pond.close()


@pytest.mark.timeout(900)
def test_pipelines_go_on_where_they_were_and_count_each_record_once(bench: Bench) -> None:
    bench.meters.append(readings(0, 40))
    first = bench.runner("hot", "cities", once=True)
    assert first.wait(PATIENCE_SECONDS)
    assert [report.state for report in first.reports()] == ["stopped", "stopped"], first.reports()
    hot = bench.pond.stream("grid/hot")
    assert (hot.definition.keys, hot.definition.event_time) == (("vid",), "at")
    assert hot.schema.names == ["vid", "city", "temp", "at", "kelvin"]
    bench.meters.settle()
    bench.meters.append(readings(40, 60))
    second = bench.runner("hot", "cities", once=True)
    assert second.wait(PATIENCE_SECONDS)
    assert not second.failed
    found = hot.scan(columns=["temp", "kelvin"]).to_pylist()
    assert sorted((row["temp"], row["kelvin"]) for row in found) == [(float(n), n + 273.0) for n in range(20, 60)]
    hourly: dict[tuple[str, datetime], int] = {}
    for row in bench.pond.stream("grid/hourly").scan().to_pylist():
        key = (row["city"], row["hour"])
        hourly[key] = max(hourly.get(key, 0), row["readings"])
    assert sum(hourly.values()) == 60
    assert (Path(bench.pond.path) / "pipelines" / "hot" / "checkpoint" / "commits").is_dir()
    (report,) = [each for each in bench.pond.pipelines.list() if each.name == "hot"]
    assert (report.sources, report.sink, report.state, report.behind) == (("grid/meters",), "grid/hot", "stopped", 0)
    groups = {status.group: status for status in bench.pond.groups("grid/meters")}
    assert set(groups) == {"pipeline/hot", "pipeline/cities"}
    assert [sum(status.lag.values()) for status in groups.values()] == [0, 0]


@pytest.mark.timeout(900)
def test_a_running_pipeline_takes_what_arrives_and_stops_when_it_is_told(bench: Bench) -> None:
    bench.meters.append(readings(0, 30))
    runner = bench.runner("hot")
    bench.until(lambda: "grid/hot" in [stream.name for stream in bench.pond.streams()])
    hot = bench.pond.stream("grid/hot")
    bench.until(lambda: hot.count() == 10)
    bench.meters.append(readings(30, 50))
    bench.until(lambda: hot.count() == 30)
    bench.until(lambda: runner.reports()[0].behind == 0 and runner.reports()[0].batch >= 1)
    runner.stop()
    assert runner.wait(PATIENCE_SECONDS)
    (report,) = runner.reports()
    assert (report.state, report.failure, report.restarts) == ("stopped", "", 0)
    assert hot.count() == 30


@pytest.mark.timeout(900)
def test_what_is_wrong_with_a_pipeline_is_said_with_its_line_before_anything_is_written(bench: Bench) -> None:
    bench.meters.append(readings(0, 3))
    runner = bench.runner("wrong", "nothing")
    assert runner.wait(PATIENCE_SECONDS)
    wrong, nothing = runner.failed
    line = 1 + PIPELINES[: PIPELINES.index('"colour"')].count("\n")
    assert wrong.failure.startswith(f"pipeline 'wrong' (pipelines.py:{line - 2}), line {line}: ")
    assert "`colour`" in wrong.failure
    assert "\tat " not in wrong.failure
    assert "it gives int" in nothing.failure
    assert [stream.name for stream in bench.pond.streams()] == ["grid/meters"]


@pytest.mark.timeout(900)
def test_a_function_that_fails_on_a_record_is_tried_again_and_goes_on_once_it_is_mended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PAUSE_SECONDS_FIRST", 0.05)
    bench.meters.append(readings(0, 10))
    runner = bench.runner("halved")
    bench.until(lambda: runner.reports()[0].batch >= 0)
    bench.meters.append(readings(13, 14))
    bench.until(lambda: runner.reports()[0].restarts >= 2)
    failure = next(report.failure for report in bench.shown if report.state == "waiting")
    line = 1 + PIPELINES[: PIPELINES.index("raise ValueError")].count("\n")
    assert f"line {line}: ValueError: thirteen" in failure
    assert "\tat " not in failure
    runner.stop()
    assert runner.wait(PATIENCE_SECONDS)
    bench.file.write_text(PIPELINES.replace("temp == 13", "temp == -1"))
    mended = bench.runner("halved", once=True)
    assert mended.wait(PATIENCE_SECONDS)
    assert not mended.failed
    halves = bench.pond.stream("grid/halved").scan(columns=["half"])["half"].to_pylist()
    assert sorted(halves) == [n / 2 for n in (*range(10), 13)]


def test_a_driver_killed_in_its_first_write_does_not_keep_a_pipeline_from_starting(bench: Bench) -> None:
    """Spark names a file of its logs when it is whole; one without a name is what a killed driver leaves."""
    bench.meters.append(readings(20, 30))
    log = Path(bench.pond.path) / "pipelines" / "hot" / "checkpoint" / "offsets"
    log.mkdir(parents=True)
    for name in (".0.2bd2dc64-ee68-49c2-b81a-614767569e24.tmp", "..0.2bd2dc64-ee68-49c2-b81a-614767569e24.tmp.crc"):
        (log / name).write_bytes(b"v1")
    runner = bench.runner("hot", once=True)
    assert runner.wait(PATIENCE_SECONDS)
    assert not runner.failed, runner.reports()
    assert bench.pond.stream("grid/hot").count() == 10
