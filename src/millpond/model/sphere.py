"""Places on a sphere: the distance between two of them, and boxes that surely hold everything near one.

The Earth is a sphere of its mean radius; distances are great circles by the haversine formula, within 0.6 % of those on
the ellipsoid. Latitudes reach from -90 to 90 and longitudes from -180 to 180; anything else (NaN too) is no place, and
has no distance to anything.

Invariant: every place whose computed distance to a point is at most `meters` lies in the lines of `around`, whatever
rounding did on the way. So boxes are a little too large, and their bounds are numbers that a 32-bit float holds: they
mean the same beside a column of either width. The expressions that Spark evaluates (`spark.functions`) are built from
the same constants.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from millpond.errors import InvalidPredicate

# The mean radius of the Earth (IUGG R1).
RADIUS_METERS = 6_371_008.8
# About a meter: far more than the rounding of any formula here. It is worst for a distance of half a great circle,
# where the arc sine of the haversine formula is off by 1e-6 of a degree.
SLACK_DEGREES = 1e-5
# So near a pole the width of a box is not worth computing, nor is it well conditioned.
POLE_DEGREES = 1e-4

# The functions of places, with their arguments, that there are in every kind of SQL.
FUNCTIONS = {
    "st_box": ("lat", "lon", "south", "west", "north", "east"),
    "st_near": ("lat", "lon", "to_lat", "to_lon", "meters"),
    "st_distance": ("lat", "lon", "to_lat", "to_lon"),
}
_LATITUDES = ("south", "north", "to_lat")
_LONGITUDES = ("west", "east", "to_lon")


class Around(NamedTuple):
    """Latitudes from `south` to `north`, and longitudes from `west` to `east`: across the antimeridian if west > east.

    Without longitudes (None): all of them, because a pole is near."""

    south: float
    north: float
    west: float | None
    east: float | None


def around(lat: float, lon: float, meters: float) -> Around:
    """Where a place within `meters` of a point can be."""
    angle = math.degrees(max(meters, 0.0) / RADIUS_METERS)
    reach = angle + SLACK_DEGREES
    south, north = _below(max(lat - reach, -90.0)), _above(min(lat + reach, 90.0))
    if abs(lat) + angle >= 90.0 - POLE_DEGREES:
        return Around(south, north, None, None)
    width = math.degrees(math.asin(math.sin(math.radians(angle)) / math.cos(math.radians(lat)))) + SLACK_DEGREES
    west, east = lon - width, lon + width
    return Around(
        south, north, _below(west + 360.0 if west < -180.0 else west), _above(east - 360.0 if east > 180.0 else east)
    )


def checked_box(south: float, west: float, north: float, east: float) -> Around:
    """A box that a user gave. Raises InvalidPredicate."""
    for label, value in (("south", south), ("west", west), ("north", north), ("east", east)):
        checked_number("st_box", label, value)
    if south > north:
        raise InvalidPredicate(f"st_box has its south ({south:g}) above its north ({north:g})", hint=usage("st_box"))
    return Around(float(south), float(north), float(west), float(east))


def checked_number(function: str, label: str, number: float) -> float:
    """An argument that a user gave to one of the functions. Raises InvalidPredicate."""
    most = 90 if label in _LATITUDES else 180 if label in _LONGITUDES else math.inf
    if not math.isfinite(number):
        raise InvalidPredicate(f"{label} of {function} cannot be {number}", hint=usage(function))
    if abs(number) > most:
        raise InvalidPredicate(
            f"{label} of {function} is {number:g}: degrees must be within -{most} and {most}", hint=usage(function)
        )
    if label == "meters" and number < 0:
        raise InvalidPredicate(f"meters of {function} is {number:g}: no distance is below 0", hint=usage(function))
    return float(number)


def usage(function: str) -> str:
    return f"write {function}({', '.join(FUNCTIONS[function])})"


def distance_meters(lat: float, lon: float, to_lat: float, to_lon: float) -> float | None:
    """The length of the great circle's arc between two places; None if one of them is no place."""
    if not (_is_place(lat, lon) and _is_place(to_lat, to_lon)):
        return None
    here, there = math.radians(lat), math.radians(to_lat)
    across, along = math.sin((there - here) / 2), math.sin(math.radians(to_lon - lon) / 2)
    return 2 * RADIUS_METERS * math.asin(math.sqrt(min(1.0, across**2 + math.cos(here) * math.cos(there) * along**2)))


def _is_place(lat: float, lon: float) -> bool:
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


def _below(value: float) -> float:
    """The greatest 32-bit float that is not above `value`."""
    narrow = np.float32(value)
    return float(narrow if narrow <= value else np.nextafter(narrow, np.float32(-np.inf)))


def _above(value: float) -> float:
    return -_below(-value)
