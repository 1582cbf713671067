"""Distances on the sphere, and the boxes that hold everything near a point."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidPredicate
from millpond.model.predicate import And, Compare, Near, Or, decode, encode, inside, truth
from millpond.model.sphere import Around, around, distance_meters

PARIS, NICE = (48.8566, 2.3522), (43.7102, 7.2620)


@pytest.mark.parametrize(
    ("here", "there", "meters"),
    [
        (PARIS, PARIS, 0),
        (PARIS, NICE, 685_109),
        ((0, 0), (0, 1), 111_195),
        ((0, 180), (0, -180), 0),
        ((10, 179.5), (10, -179.5), 109_505),
        ((90, 12), (90, -100), 0),
        ((89, 0), (89, 180), 222_390),
        ((0, 0), (0, 180), math.pi * 6_371_008.8),
        ((90, 0), (-90, 0), math.pi * 6_371_008.8),
    ],
)
def test_distances(here: tuple[float, float], there: tuple[float, float], meters: float) -> None:
    assert distance_meters(*here, *there) == pytest.approx(meters, rel=1e-4, abs=1e-6)
    assert distance_meters(*there, *here) == distance_meters(*here, *there)


@pytest.mark.parametrize("place", [(90.1, 0), (-91, 0), (0, 180.1), (0, -181), (math.nan, 0), (0, math.inf)])
def test_what_is_no_place_has_no_distance(place: tuple[float, float]) -> None:
    assert distance_meters(*place, 0, 0) is None
    assert distance_meters(0, 0, *place) is None


def test_boxes_at_the_poles_and_at_the_antimeridian() -> None:
    assert around(48, 2, 0)[:2] == pytest.approx((48, 48), abs=2e-5)
    north = around(89.99, 0, 5_000)
    assert (north.north, north.west, north.east) == (90, None, None)
    assert around(-89, 5, 200_000)[0] == -90
    assert around(10, -179.9, 50_000).west == pytest.approx(179.64, abs=0.01)
    assert around(10, 179.9, 50_000).east == pytest.approx(-179.64, abs=0.01)
    assert around(0, 0, 1e9) == Around(-90, 90, None, None)


latitudes = st.floats(-90, 90) | st.sampled_from([0.0, 90.0, -90.0, 89.9999, 1e-9])
longitudes = st.floats(-180, 180) | st.sampled_from([0.0, 180.0, -180.0, 179.99999])
radii = st.floats(0, 2.1e7) | st.floats(0, 100) | st.sampled_from([0.0, 1e-9, 10_007_557.0, 2.0015e7])


@given(latitudes, longitudes, radii, st.floats(0, 2 * math.pi), st.floats(0.9999999, 1.0) | st.floats(0, 1))
def test_every_place_within_the_distance_is_in_the_box(
    lat: float, lon: float, meters: float, bearing: float, share: float
) -> None:
    """Places on the circle itself and inside of it: reached from the point by walking some share of the distance."""
    angle, start = share * meters / 6_371_008.8, math.radians(lat)
    sine = math.sin(start) * math.cos(angle) + math.cos(start) * math.sin(angle) * math.cos(bearing)
    there = math.asin(max(-1, min(1, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(start), math.cos(angle) - math.sin(start) * math.sin(there)
    )
    to_lat, to_lon = math.degrees(there), (lon + math.degrees(turn) + 540) % 360 - 180
    away = distance_meters(to_lat, to_lon, lat, lon)
    if away is not None and away <= meters:
        assert _holds(around(lat, lon, meters), to_lat, to_lon)


def _holds(box: Around, lat: float, lon: float) -> bool:
    if not box.south <= lat <= box.north:
        return False
    if box.west is None or box.east is None:
        return True
    return box.west <= lon <= box.east if box.west <= box.east else lon >= box.west or lon <= box.east


@given(latitudes, longitudes, radii)
def test_bounds_are_the_same_numbers_in_both_widths(lat: float, lon: float, meters: float) -> None:
    assert all(bound is None or float(np.float32(bound)) == bound for bound in around(lat, lon, meters))


def test_a_distance_implies_its_box_once() -> None:
    near = Near("lat", "lon", 48, 2, 1000)
    box = inside("lat", "lon", around(48, 2, 1000))
    assert isinstance(box, And)
    assert truth(near) == And((*box.terms, near))
    assert truth(And((box, near))) == truth(near)
    assert truth(truth(near)) == truth(near)
    assert truth(~near) == ~near


def test_a_box_across_the_antimeridian_is_two() -> None:
    south, north = Compare(">=", "lat", 1.0), Compare("<=", "lat", 2.0)
    assert inside("lat", "lon", Around(1.0, 2.0, 170.0, -170.0)) == Or(
        (And((south, north, Compare(">=", "lon", 170.0))), And((south, north, Compare("<=", "lon", -170.0))))
    )


@pytest.mark.parametrize(
    ("lat", "lon", "meters"), [(91, 0, 1), (0, -180.5, 1), (0, 0, math.inf), (math.nan, 0, 1), (0, 0, math.nan)]
)
def test_a_point_that_is_none_is_refused_at_birth(lat: float, lon: float, meters: float) -> None:
    with pytest.raises(InvalidPredicate, match="cannot be"):
        Near("lat", "lon", lat, lon, meters)


@pytest.mark.parametrize(
    "data",
    [
        b'{"is":"near","lat":"lat","lon":"lon","to_lat":100,"to_lon":2,"meters":5}',
        b'{"is":"near","lat":"lat","lon":"lon","to_lat":1,"to_lon":2,"meters":1e999}',
        b'{"is":"near","lat":"lat","lon":"lon","to_lat":1,"to_lon":2}',
        b'{"is":"near","lat":"","lon":"lon","to_lat":1,"to_lon":2,"meters":5}',
        b'{"is":"near","lat":"lat","lon":"lon","to_lat":"1","to_lon":2,"meters":5}',
        b'{"is":"near","lat":"lat","lon":"lon","to_lat":1,"to_lon":2,"meters":5,"feet":3}',
    ],
)
def test_a_distance_from_a_stranger_is_checked(data: bytes) -> None:
    with pytest.raises(InvalidPredicate):
        decode(data)


def test_a_distance_travels_as_json() -> None:
    near = Near(("place", "lat"), "lon", 48, -2.5, 1000)
    assert decode(encode(near)) == near
    assert decode(b'{"is":"near","lat":"lat","lon":"lon","to_lat":1,"to_lon":2,"meters":5}') == Near(
        "lat", "lon", 1.0, 2.0, 5.0
    )
