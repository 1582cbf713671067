"""Temperature, as a sum of things that depend on the time and things that depend on the place.

What a place has (height, latitude, how far from the sea it is) is a vector, what a time has (season, hour, where the
fronts are that cross the country from west to east) is another, and the temperature is their product. So a table of
all places and times is one multiplication of matrices, and any part of it can be made by itself.
"""

from __future__ import annotations

import numpy as np

from millpond.gridpocket.noise import Floats

# Days that a front takes to come again, °C it brings, and its phase: never in step with each other.
_FRONTS = ((4.3, 2.6, 0.4), (7.9, 2.9, 2.1), (17.3, 2.2, 5.0))
# Radians that a front is behind for each degree to the east: it crosses the country in about a day and a half.
_DRIFT = 0.16


def of_places(lat: Floats, lon: Floats, height: Floats) -> Floats:
    """What counts for the temperature of each place: a column each."""
    # Inland, seasons and days differ more.
    inland = np.clip((lon + 4.8) / 12.0, 0.0, 1.0)
    mean = 13.4 - 0.72 * (lat - 45.5) - 0.0058 * (height - 100.0) + 0.6 * (lon > 5.5) * (lat < 44.0)
    rows = [mean, 5.6 + 3.4 * inland, 2.6 + 2.4 * inland, np.ones_like(lat)]
    for _ in _FRONTS:
        rows += [np.cos(_DRIFT * lon), np.sin(_DRIFT * lon)]
    return np.stack(rows)


def of_times(days: Floats) -> Floats:
    """What counts for the temperature at each time, in days since the beginning of a year: a row each."""
    hour = days % 1.0
    # Coldest in the third week of January, and before dawn.
    season = -np.cos(2 * np.pi * (days - 20.0) / 365.2425)
    clock = -np.cos(2 * np.pi * (hour - 5.0 / 24.0))
    columns = [np.ones_like(days), season, clock, 1.2 * np.sin(2 * np.pi * days / 61.0)]
    for period, celsius, phase in _FRONTS:
        angle = 2 * np.pi * days / period + phase
        columns += [celsius * np.cos(angle), celsius * np.sin(angle)]
    return np.stack(columns, axis=1)


def temperature(times: Floats, places: Floats) -> Floats:
    """°C: a row for each time, a column for each place."""
    found: Floats = times @ places
    return found
