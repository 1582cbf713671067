"""Functions of places for Spark: `st_box`, `st_near`, `st_distance`, in SQL and for DataFrames.

In SQL they are functions of SQL, which Spark puts in the place of their calls before it plans: no Python runs, and with
constant arguments the box of `st_near` and `st_box` is folded to plain comparisons, by which objects are ruled out;
`st_distance` is known by its formula (`catalyst_places`). Here they are made of columns, to the same effect.

Invariant: they say of every row what `query.sql` makes of the same text (see `model.sphere`). `st_distance` is NULL for
what is no place. `st_near` is its box and the distance; the box is never smaller than the circle.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from millpond.model.sphere import (
    FUNCTIONS,
    POLE_DEGREES,
    RADIUS_METERS,
    SLACK_DEGREES,
    around,
    checked_box,
    checked_number,
)

__all__ = ["st_box", "st_distance", "st_near"]

ColumnOrName: TypeAlias = Column | str

_RADIAN = math.pi / 180
_DISTANCE = f"""CASE WHEN abs(lat) <= 90 AND abs(lon) <= 180 AND abs(to_lat) <= 90 AND abs(to_lon) <= 180 THEN
  asin(sqrt(least(1D,
    power(sin((lat * {_RADIAN!r}D - to_lat * {_RADIAN!r}D) / 2), 2) +
    cos(lat * {_RADIAN!r}D) * cos(to_lat * {_RADIAN!r}D) * power(sin((lon - to_lon) * {_RADIAN!r}D / 2), 2)
  ))) * {2 * RADIUS_METERS!r}D END"""
_ANGLE = f"degrees(meters / {RADIUS_METERS!r}D)"
_REACH = f"({_ANGLE} + {SLACK_DEGREES!r}D)"
_WIDTH = f"(degrees(asin(sin(meters / {RADIUS_METERS!r}D) / cos(radians(to_lat)))) + {SLACK_DEGREES!r}D)"
_NEAR = f"""lat >= greatest(to_lat - {_REACH}, -90D) AND lat <= least(to_lat + {_REACH}, 90D)
  AND CASE WHEN abs(to_lat) + {_ANGLE} >= {90 - POLE_DEGREES!r}D THEN true
    WHEN to_lon - {_WIDTH} < -180 THEN lon >= to_lon - {_WIDTH} + 360 OR lon <= to_lon + {_WIDTH}
    WHEN to_lon + {_WIDTH} > 180 THEN lon >= to_lon - {_WIDTH} OR lon <= to_lon + {_WIDTH} - 360
    ELSE lon >= to_lon - {_WIDTH} AND lon <= to_lon + {_WIDTH} END
  AND {_DISTANCE} <= meters"""
_BOX = """lat >= south AND lat <= north
  AND CASE WHEN west <= east THEN lon >= west AND lon <= east ELSE lon >= west OR lon <= east END"""

# Over a union, which a stream is, Spark 4.3 fails to plan two calls in one SELECT list (RemoveRedundantAliases) if a
# parameter has the name of the column that it is given. So parameters are given names that no column has.
_PARAMETER = re.compile(rf"\b({'|'.join(sorted({argument for each in FUNCTIONS.values() for argument in each}))})\b")
_BODIES = {"st_box": ("BOOLEAN", _BOX), "st_near": ("BOOLEAN", _NEAR), "st_distance": ("DOUBLE", _DISTANCE)}


def register_functions(spark: SparkSession) -> None:
    """Make the functions known to a session. Whoever has one of these names already keeps it: it may be another's."""
    for name, (kind, body) in _BODIES.items():
        if not spark.catalog.functionExists(name):
            typed = ", ".join(f"{argument} DOUBLE" for argument in FUNCTIONS[name])
            text = _PARAMETER.sub(r"_st_\1", f"({typed}) RETURNS {kind} RETURN {body}")
            spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}{text}")


def st_box(lat: ColumnOrName, lon: ColumnOrName, south: float, west: float, north: float, east: float) -> Column:
    """Whether a place lies in a box of degrees, edges included; across the antimeridian if west > east."""
    box = checked_box(south, west, north, east)
    lat, lon = _degrees(lat), _degrees(lon)
    between = (lat >= box.south) & (lat <= box.north)
    over = (lon >= west) | (lon <= east) if west > east else (lon >= west) & (lon <= east)
    return between & over


def st_near(lat: ColumnOrName, lon: ColumnOrName, to_lat: float, to_lon: float, meters: float) -> Column:
    """Whether a place is at most so many meters from a point."""
    for label, value in (("to_lat", to_lat), ("to_lon", to_lon), ("meters", meters)):
        checked_number("st_near", label, value)
    box = around(to_lat, to_lon, meters)
    here, there = _degrees(lat), _degrees(lon)
    found = (here >= box.south) & (here <= box.north)
    if box.west is not None and box.east is not None:
        west, east = there >= box.west, there <= box.east
        found &= (west | east) if box.west > box.east else (west & east)
    return found & (st_distance(lat, lon, to_lat, to_lon) <= float(meters))


def st_distance(
    lat: ColumnOrName, lon: ColumnOrName, to_lat: ColumnOrName | float, to_lon: ColumnOrName | float
) -> Column:
    """Meters between two places, by the great circle; NULL where one of them is none."""
    here, there, to_here, to_there = (_degrees(each) for each in (lat, lon, to_lat, to_lon))
    place = (F.abs(here) <= 90) & (F.abs(there) <= 180) & (F.abs(to_here) <= 90) & (F.abs(to_there) <= 180)
    across = F.pow(F.sin((here * _RADIAN - to_here * _RADIAN) / 2), 2)
    along = F.pow(F.sin((there - to_there) * _RADIAN / 2), 2)
    square = across + F.cos(here * _RADIAN) * F.cos(to_here * _RADIAN) * along
    return F.when(place, F.asin(F.sqrt(F.least(F.lit(1.0), square))) * (2 * RADIUS_METERS))


def _degrees(value: ColumnOrName | float) -> Column:
    if isinstance(value, Column):
        return value.cast("double")
    return F.col(value).cast("double") if isinstance(value, str) else F.lit(float(value))
