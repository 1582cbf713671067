"""The neighbour comparison: a home's consumption by day against the mean of similar homes near it, as one SQL query.

Similar are homes that are warmed the same way and not much larger or smaller. Consumption is what the index grew by
from one reading to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidValue
from millpond.gridpocket import Readings
from millpond.gridpocket.country import ELECTRICITY, Meters, meters
from millpond.gridpocket.noise import Floats, Ints
from millpond.model.sphere import RADIUS_METERS

# Homes between three quarters and four thirds of the size are like one's own.
SIMILAR = 0.75
# So many neighbours make a mean that says something.
NEIGHBOURS_ENOUGH = 20
_LOOKED_AT = 400


@dataclass(frozen=True)
class Home:
    """The meter that asks."""

    vid: int
    city: str
    type: str
    size: int
    latitude: float
    longitude: float

    def __str__(self) -> str:
        return f"meter {self.vid} in {self.city}, {self.size} m², {self.type}"


@dataclass(frozen=True)
class Comparison:
    """Who is compared, how far around, and from when until when."""

    home: Home
    radius_meters: float
    start: datetime
    stop: datetime

    def by_day(self, view: str) -> str:
        """By day: what the home took and what its neighbours took on average, in kWh, how many they are, and °C."""
        vid = self.home.vid
        return f"""\
WITH taken AS (
  SELECT vid, temp, index - lag(index) OVER (PARTITION BY vid ORDER BY date) AS kwh,
         lag(date) OVER (PARTITION BY vid ORDER BY date) AS since
  FROM {view} WHERE {self._similar()})
SELECT date_trunc('day', since) AS day, avg(temp) AS celsius,
       sum(kwh) FILTER (WHERE vid = {vid}) AS mine,
       sum(kwh) FILTER (WHERE vid != {vid}) / count(DISTINCT vid) FILTER (WHERE vid != {vid}) AS neighbours
FROM taken WHERE kwh IS NOT NULL GROUP BY 1 ORDER BY 1"""

    def by_home(self, view: str) -> str:
        """Each of the homes that are compared: where it is and what it took in all."""
        return f"""\
SELECT vid, first(latitude) AS latitude, first(longitude) AS longitude, max(index) - min(index) AS kwh
FROM {view} WHERE {self._similar()}
GROUP BY vid ORDER BY kwh"""

    def _similar(self) -> str:
        home = self.home
        return (
            f"st_near(latitude, longitude, {home.latitude}D, {home.longitude}D, {self.radius_meters:.1f}D)\n"
            f"    AND date BETWEEN TIMESTAMP '{self.start:%Y-%m-%d %H:%M:%S}'"
            f" AND TIMESTAMP '{self.stop:%Y-%m-%d %H:%M:%S}'\n"
            f"    AND type = '{home.type}'"
            f" AND size BETWEEN {math.floor(home.size * SIMILAR)} AND {math.ceil(home.size / SIMILAR)}"
        )


def choose_home(readings: Readings, radius_meters: float, vid: int | None = None) -> Home:
    """The meter asked for, or one with a fair number of similar neighbours: not in a city, and not alone."""
    everybody = meters(readings.seed, 0, readings.meters)
    if vid is not None:
        if not 0 <= vid < readings.meters:
            raise InvalidValue(f"no meter {vid}", hint=f"0 to {readings.meters - 1}")
        return _home(everybody, vid)
    # Heating by electricity shows best in what a meter reads.
    warm = np.flatnonzero(np.asarray(pc.equal(everybody.type, ELECTRICITY)))[:_LOOKED_AT].tolist()
    counts = [(len(neighbours_of(everybody, at, radius_meters)), at) for at in warm or range(len(everybody))]
    enough = [(count, at) for count, at in counts if count >= NEIGHBOURS_ENOUGH]
    return _home(everybody, min(enough)[1] if enough else max(counts)[1])


def neighbours_of(everybody: Meters, at: int, radius_meters: float) -> Ints:
    """The numbers of similar homes within the radius, without the home itself."""
    away = distance_meters(everybody.lat[at], everybody.lon[at], everybody.lat, everybody.lon)
    size = float(everybody.size[at])
    like = (everybody.size >= math.floor(size * SIMILAR)) & (everybody.size <= math.ceil(size / SIMILAR))
    kinds = everybody.type.dictionary_encode().indices.to_numpy()
    found: Ints = np.flatnonzero((away <= radius_meters) & like & (kinds == kinds[at]))
    others: Ints = found[found != at]
    return others


def distance_meters(lat: float, lon: float, lats: Floats, lons: Floats) -> Floats:
    """Along the surface, from one place to many."""
    north, east = np.radians(lats - lat) / 2, np.radians(lons - lon) / 2
    part = np.sin(north) ** 2 + np.cos(np.radians(lat)) * np.cos(np.radians(lats)) * np.sin(east) ** 2
    found: Floats = 2 * RADIUS_METERS * np.arcsin(np.sqrt(part))
    return found


def _home(everybody: Meters, at: int) -> Home:
    column: pa.Array = everybody.city
    return Home(
        at,
        column[at].as_py(),
        everybody.type[at].as_py(),
        int(everybody.size[at]),
        float(everybody.lat[at]),
        float(everybody.lon[at]),
    )
