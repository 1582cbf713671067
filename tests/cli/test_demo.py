"""The demonstration, small: every act of it, and that its readings are what they claim to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.cli.demo.command import MARK
from millpond.cli.demo.town import SCHEMA, TOWNS, Country
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_demonstration_from_append_to_picture(
    millpond: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """K1, K4, B2: acknowledged, readable at once, settled, and all of it in one Spark SQL count."""
    import millpond.spark.session as session

    monkeypatch.setattr(session, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    where, picture = tmp_path / "demo", tmp_path / "demo.png"
    words = ("demo", "--rows", "60000", "--pond", str(where), "--picture", str(picture))
    numbers = millpond(*words, "--json").one
    assert numbers["rows"] == 60_000
    assert numbers["acked"] >= numbers["rows"]
    assert numbers["counted"] == numbers["acked"] == numbers["settled"] == numbers["hourly_readings"]
    assert numbers["findings"] == 0
    assert 1 < numbers["write_amplification"] < 3
    assert numbers["narrow"]["objects_read"] < numbers["narrow"]["objects_total"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert millpond("scan", "demo/meters", "--count", "--pond", str(where)).out == f"{numbers['acked']}\n"
    assert (where / MARK).exists()


def test_it_replaces_only_what_an_earlier_one_left(millpond: Commands, tmp_path: Path) -> None:
    where = tmp_path / "mine"
    where.mkdir()
    (where / "letter.txt").write_text("dear")
    assert "not a demo's pond" in millpond("demo", "--pond", str(where), code=2).talk
    millpond("init")
    assert "not a demo's pond" in millpond("demo", "--pond", str(millpond.path), code=2).talk
    assert (where / "letter.txt").exists()
    assert (millpond.path / "pond.json").exists()


@pytest.fixture(scope="module")
def week() -> pa.Table:
    country = Country.settle_down(100_000)
    return pa.Table.from_batches([country.batch(number) for number in range(10)])


def test_a_batch_is_always_the_same(week: pa.Table) -> None:
    country = Country.settle_down(100_000)
    assert country.batch(3).equals(week.slice(30_000, 10_000).combine_chunks().to_batches()[0])
    assert week.schema.equals(SCHEMA)


def test_readings_come_in_the_order_of_time_one_a_meter_and_hour(week: pa.Table) -> None:
    hours = pc.floor_temporal(week.column("date"), unit="hour").cast(pa.int64()).to_numpy()
    assert (np.diff(hours) >= 0).all()
    places = set(zip(week.column("vid").to_pylist(), hours.tolist(), strict=True))
    assert len(places) == week.num_rows


def test_towns_are_of_different_size_and_meters_lie_around_them(week: pa.Table) -> None:
    towns = {name: (lat, lon, people) for name, lat, lon, people, _ in TOWNS}
    found = week.group_by("city").aggregate([("vid", "count_distinct"), ("lat", "mean"), ("lon", "mean")]).to_pylist()
    assert len(found) >= len(towns) - 2
    for row in found:
        lat, lon, _ = towns[row["city"]]
        assert abs(row["lat_mean"] - lat) < 0.03
        assert abs(row["lon_mean"] - lon) < 0.03
    size = {row["city"]: row["vid_count_distinct"] for row in found}
    assert size["Marseille"] > size["Nice"] > size["Gap"]


def test_load_follows_cold_and_the_hour(week: pa.Table) -> None:
    load, temp = (week.column(name).to_numpy() for name in ("load", "temp"))
    assert (load > 0).all()
    assert -20 < temp.min() < temp.max() < 30
    electric = np.asarray(pc.equal(week.column("kind"), "electric house"))
    assert np.corrcoef(load[electric], temp[electric])[0, 1] < -0.4
    flats = np.asarray(pc.equal(week.column("kind"), "flat"))
    hour = pc.hour(week.column("date")).to_numpy()
    assert load[flats & (hour == 19)].mean() > 1.3 * load[flats & (hour == 3)].mean()
