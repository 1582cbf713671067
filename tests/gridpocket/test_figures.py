"""The benchmarks of skipping, small: what they count is what a query has to read, and no row is missed."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pytest

import millpond
from benchmarks import history, neighbourhoods, skipping
from millpond.gridpocket import Readings
from millpond.gridpocket.country import meters

SMALL = Readings(4_000, period=timedelta(hours=6), every=timedelta(hours=1))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (skipping, history):
        monkeypatch.setattr(module, "READINGS", SMALL)
    monkeypatch.setattr(history, "RECORDED", 20)
    monkeypatch.setattr(history, "ASKED", 200)
    monkeypatch.setattr(history, "BUCKETS", 32)


def test_a_square_lies_around_one_meter_of_each_cell() -> None:
    around, everybody = neighbourhoods.squares(SMALL, 10.0), meters(SMALL.seed, 0, SMALL.meters)
    cells = {
        (int(np.floor(lat * 10)), int(np.floor(lon * 10)))
        for lat, lon in zip(everybody.lat, everybody.lon, strict=True)
    }
    assert len(around) == len(cells) == len(set(around.vid.tolist()))
    lat, lon = everybody.lat[around.vid], everybody.lon[around.vid]
    assert ((around.north - around.south) * neighbourhoods.KM_PER_DEGREE) == pytest.approx(10.0)
    across = (around.east - around.west) * neighbourhoods.KM_PER_DEGREE * np.cos(np.radians(lat))
    assert across == pytest.approx(10.0)
    assert ((around.south + around.north) / 2) == pytest.approx(lat)
    assert ((around.west + around.east) / 2) == pytest.approx(lon)


@pytest.mark.parametrize(
    "layout", [millpond.KdTree(*skipping.PLACE, buckets=32), millpond.Grid(*skipping.PLACE, precision=1, buckets=32)]
)
def test_bytes_are_those_of_objects_that_may_hold_a_row(
    layout: millpond.Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    """I4, F13: an object that is not counted has no meter in the square; those that are counted are few."""
    around = neighbourhoods.squares(SMALL, 20.0)
    with skipping.new_pond() as pond:
        stream = skipping.laid_out(pond, "small", layout, boxes=64)
        assert skipping.spared("small", stream, around, ">= 3")
        index = stream.snapshot().settled.objects
        size, count = skipping.read_for(stream, around.predicates)
        for at in range(0, len(around), 50):
            (text,) = [around.sql(at)]
            keep = index.prune(around.predicates[at]).keep
            found = stream.scan(text, columns=["vid"])
            everybody = meters(SMALL.seed, 0, SMALL.meters)
            inside = (everybody.lat >= around.south[at]) & (everybody.lat <= around.north[at])
            inside &= (everybody.lon >= around.west[at]) & (everybody.lon <= around.east[at])
            assert found.num_rows == SMALL.moments * int(inside.sum())
            assert keep.any()
    told = json.loads(capsys.readouterr().out)
    assert told["ratio"] == pytest.approx(index.bytes_total * len(around) / size, rel=1e-3)
    assert told["objects_read_per_query"] == pytest.approx(count / len(around), abs=0.01)


def test_a_tree_that_learnt_from_queries_reads_less(capsys: pytest.CaptureFixture[str]) -> None:
    """F9, F10: asked, recorded, analysed and laid out anew; other queries of the same kind are what is counted."""
    assert history.history()
    told = json.loads(capsys.readouterr().out)
    assert told["ratio"] < 0.5
    assert told["objects_read_per_query"] < told["in_turn_objects_read_per_query"]
