"""The neighbour comparison, small: its answer is what the generator says, and few objects are read for it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from millpond.cli.demo.neighbours.comparison import choose_home, distance_meters, neighbours_of
from millpond.errors import InvalidValue
from millpond.gridpocket import Readings
from millpond.gridpocket.country import meters
from millpond.model import sphere
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_home_is_compared_with_similar_ones_near_it(
    millpond: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F12, F11: loaded by Spark under a layout, asked with st_near, reported with and without filters, drawn."""
    import millpond.spark.session as session

    monkeypatch.setattr(session, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    where, picture = tmp_path / "demo", tmp_path / "neighbours.png"
    words = ("demo", "gridpocket", "--meters", "3000", "--days", "4", "--radius", "30")
    numbers = millpond(*words, "--pond", str(where), "--picture", str(picture), "--json").one
    made = Readings(3_000, period=timedelta(days=4, hours=6), every=timedelta(hours=6))
    assert numbers["rows"] == len(made)
    assert numbers["objects_read"] < numbers["objects_total"] / 4
    assert numbers["bytes_read"] < numbers["bytes_total"] / 4
    assert picture.read_bytes().startswith(b"\x89PNG")

    home = choose_home(made, 30_000.0)
    others = neighbours_of(meters(made.seed, 0, made.meters), home.vid, 30_000.0)
    table = pa.Table.from_batches(made.batches())
    index = table.column("index").to_numpy().reshape(made.moments, made.meters)
    taken = index[-1] - index[0]
    assert (numbers["meter"], numbers["neighbours"]) == (home.vid, len(others))
    assert len(others) >= 10
    assert numbers["kwh"] == pytest.approx(taken[home.vid], abs=0.06)
    assert numbers["kwh_of_neighbours"] == pytest.approx(taken[others].mean(), abs=0.06)


def test_neighbours_are_near_alike_and_not_oneself() -> None:
    everybody = meters(7, 0, 5_000)
    home = choose_home(Readings(5_000), 20_000.0)
    found = neighbours_of(everybody, home.vid, 20_000.0)
    assert home.vid not in found
    for at in found:
        away = sphere.distance_meters(home.latitude, home.longitude, everybody.lat[at], everybody.lon[at])
        assert away is not None
        assert away <= 20_000.0
        assert everybody.type[int(at)].as_py() == home.type
        assert 0.7 * home.size < everybody.size[at] < 1.4 * home.size
    all_away = distance_meters(home.latitude, home.longitude, everybody.lat, everybody.lon)
    assert len(found) < int(np.sum(all_away <= 20_000.0))


def test_a_meter_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no meter 10"):
        choose_home(Readings(10), 5_000.0, 10)
