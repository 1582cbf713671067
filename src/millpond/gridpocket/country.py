"""Where the meters are and what they measure: everything of a meter that does not change.

A meter is a number, and all of it follows from that number and the seed: the same meter is the same in a country of
ten meters or of ten million. Most people live in towns, whose sizes fall off as those of real ones do; around a town
meters lie as a Gaussian cloud, and the rest is scattered around the villages, thinly and nearly everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.gridpocket.noise import Floats, Ints, normal, uniform
from millpond.gridpocket.places import CORSICA, MAINLAND, TOWNS, VILLAGES

ELECTRICITY, GAZ = "electricity", "gaz"
# Thousands of people of village number r: 40 · r^-0.4, which makes 8 millions in 3,000 villages.
_VILLAGE_LARGEST, _VILLAGE_EXPONENT = 40.0, 0.4
# Thousands of people who live outside of towns and villages: a quarter of all.
_SCATTERED = 14_000.0
# How far from a village they live, in degrees: nine kilometres.
_SCATTER_DEGREES = 0.08
# How much each rhythm of life is one's own: see homes.
RHYTHMS = 64

# What chance is asked for, so that no two answers are related.
_TOWN, _NORTH, _EAST, _SIZE, _TYPE, _APPLIANCES, _WALLS, _RHYTHM, _FIRST = range(9)
_WHERE, _WHICH, _NEAR_NORTH, _NEAR_EAST, _VILLAGE_HEIGHT = range(20, 25)


@dataclass(frozen=True)
class Towns:
    """Every town and village, larger ones first within each kind; then, as one more town per village, its scatter."""

    names: pa.Array
    lat: Floats
    lon: Floats
    people: Floats
    region: Ints
    height: Floats
    spread: Floats  # degrees of latitude

    def __len__(self) -> int:
        return len(self.lat)


@dataclass(frozen=True)
class Meters:
    """Consecutive meters, from number `first` on."""

    first: int
    vid: Ints
    town: Ints
    city: pa.Array
    type: pa.Array
    size: Ints
    region: Ints
    lat: Floats
    lon: Floats
    height: Floats
    rhythm: Ints
    appliances: Floats  # kW, on average
    heating: Floats  # kW for each degree that it is too cold
    first_index: Floats  # kWh on the meter at the beginning of time

    def __len__(self) -> int:
        return len(self.vid)


@lru_cache(maxsize=4)
def towns(seed: int) -> Towns:
    """The towns of a seed: those of the map, and the villages that were made up."""
    rank = np.arange(1, len(VILLAGES) + 1)
    village_people = _VILLAGE_LARGEST * rank**-_VILLAGE_EXPONENT
    lat, lon = _village_places(seed)
    real: dict[int, Any] = {at: np.array([town[at] for town in TOWNS], np.float64) for at in range(1, 6)}
    chiefs = slice(0, 95)
    # A degree of longitude is about 0.69 of one of latitude in France.
    far = (lat[:, None] - real[1][chiefs]) ** 2 + (0.69 * (lon[:, None] - real[2][chiefs])) ** 2
    nearest = far.argmin(axis=1)
    # Villages near a chief town in the hills are in the hills, too.
    height = real[5][nearest] * 0.7 + 250.0 * uniform(seed, _VILLAGE_HEIGHT, rank) ** 2
    people = np.concatenate([real[3], village_people])
    # A larger town is wider: about 1 km for 20,000 people, 5 km for 900,000. One degree is 111 km.
    spread = 0.005 + 0.0014 * np.sqrt(people)
    outside = np.full(len(VILLAGES), _SCATTERED / len(VILLAGES))
    region = nearest + 1
    return Towns(
        names=pa.array([town[0] for town in TOWNS] + VILLAGES * 2),
        lat=np.concatenate([real[1], lat, lat]),
        lon=np.concatenate([real[2], lon, lon]),
        people=np.concatenate([people, outside]),
        region=np.concatenate([real[4].astype(np.int64), region, region]),
        height=np.concatenate([real[5], height, height]),
        spread=np.concatenate([spread, np.full(len(VILLAGES), _SCATTER_DEGREES)]),
    )


def meters(seed: int, first: int, count: int) -> Meters:
    """The meters `first` to `first + count - 1`."""
    all_towns = towns(seed)
    number = np.arange(first, first + count)
    share = np.cumsum(all_towns.people)
    town = np.searchsorted(share, uniform(seed, _TOWN, number) * share[-1], side="right")
    spread, people = all_towns.spread[town], all_towns.people[town]
    lat = all_towns.lat[town] + normal(seed, _NORTH, number) * spread
    lon = all_towns.lon[town] + normal(seed, _EAST, number) * spread / np.cos(np.radians(lat))
    # In large towns homes are flats, and smaller.
    typical = 105.0 - 9.0 * np.log10(1.0 + people)
    size = np.clip(np.round(typical * np.exp(0.38 * normal(seed, _SIZE, number))), 12, 320)
    # Gas is laid in towns.
    electric = uniform(seed, _TYPE, number) < 0.55 - 0.06 * np.log10(1.0 + people)
    appliances = (0.09 + 0.0021 * size) * np.exp(0.30 * normal(seed, _APPLIANCES, number))
    per_degree = 0.0011 * size * np.exp(0.25 * normal(seed, _WALLS, number))
    return Meters(
        first=first,
        vid=number,
        town=town,
        city=all_towns.names.take(pa.array(town)),
        type=pa.array([GAZ, ELECTRICITY]).take(pa.array(electric.astype(np.int8))),
        size=size.astype(np.int64),
        region=all_towns.region[town],
        lat=np.round(lat, 6),
        lon=np.round(lon, 6),
        height=all_towns.height[town],
        rhythm=(uniform(seed, _RHYTHM, number) * RHYTHMS).astype(np.int64),
        appliances=appliances,
        # A gas boiler takes some electricity for its pump.
        heating=np.where(electric, per_degree, 0.04 * per_degree),
        first_index=np.round(uniform(seed, _FIRST, number) * 40_000.0, 3),
    )


def _village_places(seed: int) -> tuple[Floats, Floats]:
    """Half of the villages anywhere in the country, half around its towns, more around larger ones."""
    wanted = len(VILLAGES)
    tried = np.arange(6 * wanted)
    lat, lon = 41.3 + 9.8 * uniform(seed, _WHERE, tried), -4.9 + 14.6 * uniform(seed, _WHICH, tried)
    town_lat, town_lon, people = (np.array([town[at] for town in TOWNS]) for at in (1, 2, 3))
    share = np.cumsum(np.sqrt(people))
    near = np.searchsorted(share, uniform(seed, _WHICH, tried) * share[-1], side="right")
    around = tried % 2 == 1
    lat = np.where(around, town_lat[near] + 0.28 * normal(seed, _NEAR_NORTH, tried), lat)
    lon = np.where(around, town_lon[near] + 0.40 * normal(seed, _NEAR_EAST, tried), lon)
    inside = within(lat, lon, MAINLAND) | within(lat, lon, CORSICA)
    chosen = np.flatnonzero(inside)[:wanted]
    return lat[chosen], lon[chosen]


def within(lat: Floats, lon: Floats, outline: list[tuple[float, float]]) -> Any:
    """Which points lie inside an outline: a ray to the east crosses it an odd number of times."""
    inside = np.zeros(len(lat), np.bool_)
    for (lon1, lat1), (lon2, lat2) in zip(outline, outline[1:] + outline[:1], strict=True):
        if lat1 != lat2:
            crosses = (lat1 > lat) != (lat2 > lat)
            inside ^= crosses & (lon < (lon2 - lon1) * (lat - lat1) / (lat2 - lat1) + lon1)
    return inside
