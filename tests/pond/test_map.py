"""The map of a stream's objects: where each lies, which a query reads, where it looks."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidPredicate, InvalidValue

SCHEMA = pa.schema(
    [
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", "int64"),
    ]
)
DAY_MICROS = 86_400_000_000


def settled(pond: millpond.Pond, lat: float | None, lon: float) -> None:
    row = {"lat": lat, "lon": lon, "day": date(1969, 12, 31), "at": datetime(1970, 1, 2, tzinfo=UTC), "n": 7}
    stream = pond.stream("places")
    stream.append([row, {**row, "lat": None if lat is None else lat + 0.5}])
    stream.settle()


@pytest.fixture
def places(pond: millpond.Pond) -> millpond.Stream:
    stream = pond.create_stream("places", SCHEMA)
    settled(pond, 43.0, 7.0)
    settled(pond, 48.0, 2.0)
    return stream


def test_what_is_read_and_what_is_spared(places: millpond.Stream) -> None:
    drawn = places.map("lat < 44 AND lon BETWEEN 6 AND 8", axes=("lon", "lat"))
    assert (drawn.x, drawn.y) == ("lon", "lat")
    assert drawn.boxes == [(7.0, 43.0, 7.0, 43.5), (2.0, 48.0, 2.0, 48.5)]
    assert drawn.read == [True, False]
    assert all(size > 0 for size in drawn.bytes)
    assert (drawn.asked_x, drawn.asked_y) == ((6.0, 8.0), (None, 44.0))
    assert (drawn.objects_total, drawn.objects_unknown) == (2, 0)


def test_what_is_read_comes_first(places: millpond.Stream) -> None:
    drawn = places.map("lat > 44", axes=("lon", "lat"))
    assert [box[1] for box in drawn.boxes] == [48.0, 43.0]
    assert drawn.read == [True, False]


def test_dates_and_times_are_on_one_scale(places: millpond.Stream) -> None:
    drawn = places.map("day < DATE '1970-01-01' AND at > TIMESTAMP '1970-01-01'", axes=("day", "at"))
    assert set(drawn.boxes) == {(-DAY_MICROS, DAY_MICROS, -DAY_MICROS, DAY_MICROS)}
    assert drawn.asked_x[1] is not None
    assert -DAY_MICROS <= drawn.asked_x[1] <= 0
    assert drawn.asked_y == (0.0, None)


def test_an_object_that_lies_nowhere_is_counted(pond: millpond.Pond, places: millpond.Stream) -> None:
    settled(pond, None, 3.0)
    drawn = places.map(axes=("lon", "lat"))
    assert (len(drawn.boxes), drawn.objects_total, drawn.objects_unknown) == (2, 3, 1)


def test_without_objects_there_is_nothing_on_it(pond: millpond.Pond) -> None:
    drawn = pond.create_stream("empty", SCHEMA).map(axes=("lon", "lat"))
    assert (drawn.boxes, drawn.objects_total) == ([], 0)


@pytest.mark.parametrize("axes", [None, ["lon"], ["lon", "lon"], ["lon", "no"], ["lon", "lat", "n"]])
def test_axes_that_are_none_are_refused(places: millpond.Stream, axes: list[str] | None) -> None:
    with pytest.raises(InvalidValue, match="columns"):
        places.map(axes=axes)
    with pytest.raises(InvalidPredicate, match="'no'"):
        places.map("no > 1", axes=["lon", "lat"])
