"""What homes draw: tables by quarter of an hour, from which any reading follows without a running sum being kept.

A home's power is `appliances · rhythm(t) + heating · too_cold(t)`. There are 64 rhythms of life (when people rise, cook
and sleep, which days they are away, whether water is heated at night) and a cold of its own in each department. So the
energy since any moment is a sum of two table entries, weighed by the home, and a day's table is all that is needed.

Two meters of one rhythm would be drawn in step; a meter therefore reads each table a little ahead, by a part of a
quarter of an hour that chance decides each time. Energy never runs backwards by that, and at midnight it is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from millpond.gridpocket import weather
from millpond.gridpocket.country import RHYTHMS, towns
from millpond.gridpocket.noise import Floats, normal, uniform

QUARTERS = 96
REGIONS = 95
WARM_ENOUGH = 17.0
# Off-peak hours (heures creuses) are those from ten at night to six in the morning.
OFF_PEAK = np.array([quarter < 24 or quarter >= 88 for quarter in range(QUARTERS)])

_RISE, _SUPPER, _NOON, _WATER, _LIVELY, _AWAY, _OWN_DAY = range(40, 47)


@dataclass(frozen=True)
class Day:
    """Sums since midnight at each quarter of one day, 97 rows: of rhythms and of regions, off-peak and peak."""

    rhythm_hc: Floats
    rhythm_hp: Floats
    cold_hc: Floats
    cold_hp: Floats


@lru_cache(maxsize=64)
def day(seed: int, number: int) -> Day:
    """The tables of a day; days are counted from the beginning of time."""
    lively, cold = _power(seed, number, 1)
    return Day(
        *(
            _running(np.where((OFF_PEAK if hc else ~OFF_PEAK)[:, None], power[0], 0.0))
            for power in (lively, cold)
            for hc in (True, False)
        )
    )


@lru_cache(maxsize=256)
def before(seed: int, number: int) -> tuple[Floats, Floats]:
    """Sums of all days before this one, of rhythms and of regions."""
    rhythms, regions = np.zeros(RHYTHMS), np.zeros(REGIONS)
    # A month at a time: a year by quarters of an hour would be large.
    for first in range(0, number, 30):
        lively, cold = _power(seed, first, min(30, number - first))
        rhythms += lively.sum(axis=(0, 1)) / 4.0
        regions += cold.sum(axis=(0, 1)) / 4.0
    return rhythms, regions


def _running(power: Floats) -> Floats:
    """kWh until each quarter begins, of kW during it."""
    sums = np.zeros((QUARTERS + 1, power.shape[1]))
    np.cumsum(power / 4.0, axis=0, out=sums[1:])
    return sums


def _power(seed: int, first: int, count: int) -> tuple[Floats, Floats]:
    """By day, quarter and rhythm: kW for a home whose appliances take 1 kW on average. And by day, quarter and region:
    how many degrees it is too cold."""
    days = np.arange(first, first + count)
    quarters = np.arange(QUARTERS)
    lively = np.stack([_rhythms(seed, int(number)) for number in days])
    times = weather.of_times((days[:, None] + (quarters + 0.5) / QUARTERS).ravel())
    celsius = weather.temperature(times, _regions(seed)).reshape(count, QUARTERS, REGIONS)
    return lively, np.maximum(0.0, WARM_ENOUGH - celsius)


@lru_cache(maxsize=4)
def _regions(seed: int) -> Floats:
    """The places of the chief towns."""
    known = towns(seed)
    chief = slice(0, REGIONS)
    return weather.of_places(known.lat[chief], known.lon[chief], known.height[chief])


def _rhythms(seed: int, number: int) -> Floats:
    """kW by quarter and rhythm on one day. Day 0 is a Thursday."""
    who = np.arange(RHYTHMS)
    weekend = (number + 3) % 7 >= 5
    hour: Floats = np.linspace(0.125, 23.875, QUARTERS)[:, None]
    rise = 6.2 + 2.2 * uniform(seed, _RISE, who) + (1.6 if weekend else 0.0)
    supper = 18.4 + 2.4 * uniform(seed, _SUPPER, who)
    noon = (0.9 if weekend else 0.7) * uniform(seed, _NOON, who)
    water = 1.1 * (uniform(seed, _WATER, who) < 0.4)
    shape = (
        0.30
        + 1.5 * _bump(hour, rise, 1.0)
        + 2.4 * _bump(hour, supper, 1.7)
        + noon * _bump(hour, 13.0, 2.2)
        + water * _bump(hour, 2.5, 2.0)
    )
    own = np.exp(0.22 * normal(seed, _OWN_DAY, number * RHYTHMS + who))
    # Away for a week at a time, one week in sixteen; what is always on stays on.
    away = uniform(seed, _AWAY, (number + who) // 7 * RHYTHMS + who) < 1.0 / 16.0
    level = 0.75 + 0.5 * uniform(seed, _LIVELY, who)
    return np.where(away, 0.28, shape * own * level)


def _bump(hour: Floats, at: Floats | float, width: float) -> Floats:
    found: Floats = np.exp(-(((hour - at) / width) ** 2))
    return found
