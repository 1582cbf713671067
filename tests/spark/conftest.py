"""Ponds for tests of the Spark room, and what leaves the shared session as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import millpond
from tests.spark.streaming import Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METERS = pa.schema([("vid", pa.string()), ("city", pa.string()), ("lat", pa.float64()), ("n", pa.int64())])


def readings(start: int, stop: int) -> list[dict[str, object]]:
    cities = ["Nice", "Lyon", "Lille"]
    return [{"vid": f"v{n % 7}", "city": cities[n % 3], "lat": 40 + n / 100, "n": n} for n in range(start, stop)]


@pytest.fixture
def pond(pond_dir: Path) -> Iterator[millpond.Pond]:
    """Nothing settles or merges by itself."""
    with millpond.open(str(pond_dir), background=False) as pond:
        yield pond


@pytest.fixture
def meters(pond: millpond.Pond) -> millpond.Stream:
    """Three settled objects of 100 records (n below 300) and 50 live ones (n below 350), in two streamlets."""
    return create_meters(pond)


@pytest.fixture(scope="module")
def shared_meters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[millpond.Stream]:
    """As `meters`, one for all tests of a module: for those that only read."""
    with millpond.open(str(tmp_path_factory.mktemp("shared") / "pond"), background=False) as pond:
        yield create_meters(pond)


def create_meters(pond: millpond.Pond) -> millpond.Stream:
    stream = pond.create_stream("grid/meters", schema=METERS, keys=["vid"], streamlets=2)
    for start in (0, 100, 200):
        stream.append(readings(start, start + 100))
        stream.settle()
    stream.append(readings(300, 350))
    return stream


@contextmanager
def session_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@pytest.fixture(params=["held by the driver", "fetched by tasks"])
def live_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of a live half: a little comes with the plan, more is fetched by the executors."""
    way: str = request.param
    if way == "fetched by tasks":
        monkeypatch.setattr("millpond.spark.live.ROWS_HELD_MAX", 0)
    return way


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live records are fetched by tasks, however few they are: later, more than once, and each at its own moment."""
    monkeypatch.setattr("millpond.spark.live.ROWS_HELD_MAX", 0)


@pytest.fixture
def reading(spark: SparkSession, meters: millpond.Stream, pond: millpond.Pond, tmp_path: Path) -> Reading:
    """A streaming query over `meters`, not yet started."""
    return Reading(spark, pond.path, "grid/meters", tmp_path / "checkpoint")
