"""Meter readings of the towns of Provence in a cold week: made by formula, and yet shaped like the real thing.

Towns are of different sizes and their households lie around the centre as a Gaussian cloud. Each household has a kind,
which decides how its load follows the hour, the day of the week and the temperature; the temperature follows height,
hour and a front that crosses the country. Readings come in the order of time: all meters of one hour, then the next.

Any batch can be made by itself (`batch(number)`), always with the same content: threads share nothing but a counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.schema import TIMESTAMP

SCHEMA = pa.schema(
    [
        ("vid", pa.string()),
        ("city", pa.string()),
        ("kind", pa.string()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("date", TIMESTAMP),
        ("temp", pa.float64()),
        ("load", pa.float64()),
    ]
)
# A Monday in winter: heating decides the load.
WEEK_STARTS = datetime(2026, 1, 5, tzinfo=UTC)
WEEK_HOURS = 168
BATCH_ROWS = 10_000
# Few enough that a week of hourly readings is what was asked for, many enough that towns look like towns, and that a
# batch is a few hours and not a few days.
METERS_MIN, METERS_MAX = 2_000, 60_000

# Name, latitude, longitude, thousands of people, metres above the sea.
TOWNS = [
    ("Marseille", 43.296, 5.385, 870, 30),
    ("Nice", 43.712, 7.262, 345, 20),
    ("Toulon", 43.126, 5.930, 180, 10),
    ("Aix", 43.529, 5.447, 147, 180),
    ("Avignon", 43.949, 4.806, 91, 20),
    ("Antibes", 43.585, 7.110, 75, 10),
    ("Cannes", 43.560, 7.015, 74, 10),
    ("Hyères", 43.120, 6.129, 55, 40),
    ("Fréjus", 43.433, 6.737, 55, 20),
    ("Arles", 43.677, 4.631, 51, 10),
    ("Grasse", 43.660, 6.924, 50, 330),
    ("Martigues", 43.405, 5.054, 48, 10),
    ("Salon", 43.640, 5.097, 45, 80),
    ("Gap", 44.559, 6.079, 41, 735),
    ("Draguignan", 43.537, 6.464, 40, 180),
    ("Menton", 43.780, 7.495, 30, 20),
    ("Orange", 44.138, 4.808, 29, 50),
    ("Manosque", 43.829, 5.787, 22, 390),
    ("Brignoles", 43.406, 6.062, 17, 230),
    ("Digne", 44.092, 6.236, 17, 610),
]
# Kind, share of households, kW that is always drawn, kW a home's daily round adds, kW per degree under 17 °C.
KINDS = [
    ("flat", 0.46, 0.12, 0.35, 0.030),
    ("house", 0.29, 0.20, 0.60, 0.070),
    ("electric house", 0.17, 0.25, 0.60, 0.190),
    ("shop", 0.08, 0.60, 2.40, 0.110),
]
HEATING_BELOW_CELSIUS = 17.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Country:
    """Every meter there is, and what it reads when. Thread-safe: nothing changes."""

    meters: int
    seed: int
    vids: pa.Array
    cities: pa.Array
    kinds: pa.Array
    lat: Floats
    lon: Floats
    height: Floats
    second: Ints  # of the hour, when this meter reports
    always: Floats
    daily: Floats
    heating: Floats
    is_shop: npt.NDArray[np.bool_]

    @classmethod
    def settle_down(cls, rows: int, seed: int = 7) -> Country:
        """As many households as fill a week of hourly readings with about `rows` rows."""
        meters = int(np.clip(rows // WEEK_HOURS, METERS_MIN, METERS_MAX))
        random = np.random.default_rng(seed)
        people = np.array([town[3] for town in TOWNS], np.float64)
        town = random.choice(len(TOWNS), meters, p=people / people.sum())
        kind = random.choice(len(KINDS), meters, p=[share for _, share, *_ in KINDS])
        # A larger town is wider: about 1 km for 20,000 people, 5 km for 900,000. One degree is 111 km.
        spread = 0.005 + 0.0014 * np.sqrt(people)[town]
        lat = np.array([t[1] for t in TOWNS])[town] + random.normal(0, 1, meters) * spread
        stretched = spread / np.cos(np.radians(lat))
        lon = np.array([t[2] for t in TOWNS])[town] + random.normal(0, 1, meters) * stretched
        size = random.lognormal(0, 0.35, meters)  # some households are larger than others
        return cls(
            meters=meters,
            seed=seed,
            vids=pa.array([f"{TOWNS[t][0][:4].lower()}-{at:06d}" for at, t in enumerate(town)]),
            cities=pa.array([TOWNS[t][0] for t in town]),
            kinds=pa.array([KINDS[k][0] for k in kind]),
            lat=np.round(lat, 6),
            lon=np.round(lon, 6),
            height=np.array([float(t[4]) for t in TOWNS])[town],
            second=random.integers(0, 3600, meters),
            always=np.array([k[2] for k in KINDS])[kind] * size,
            daily=np.array([k[3] for k in KINDS])[kind] * size,
            heating=np.array([k[4] for k in KINDS])[kind] * size,
            is_shop=np.array([k[0] == "shop" for k in KINDS])[kind],
        )

    def batch(self, number: int, rows: int = BATCH_ROWS) -> pa.RecordBatch:
        """The readings `number * rows` to `(number + 1) * rows`, in the order of time."""
        random = np.random.default_rng([self.seed, number])
        place = number * rows + np.arange(rows)
        meter = place % self.meters
        seconds = place // self.meters * 3600 + self.second[meter]
        temp = self._temperature(meter, seconds, random)
        load = self._load(meter, seconds, temp, random)
        columns: list[Any] = [
            self.vids.take(pa.array(meter)),
            self.cities.take(pa.array(meter)),
            self.kinds.take(pa.array(meter)),
            pa.array(self.lat[meter]),
            pa.array(self.lon[meter]),
            pa.array(int(WEEK_STARTS.timestamp()) * 1_000_000 + seconds * 1_000_000).cast(TIMESTAMP),
            pa.array(np.round(temp, 2)),
            pa.array(np.round(load, 3)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _temperature(self, meter: Ints, seconds: Ints, random: np.random.Generator) -> Floats:
        """Colder with height and inland, coldest before dawn, and a front that crosses from west to east."""
        day, hour = seconds / 86_400, seconds % 86_400 / 3600
        place = 9.0 - 0.0065 * self.height[meter] - 2.0 * (self.lat[meter] - 43.2)
        round_the_clock = 3.5 * np.cos(2 * np.pi * (hour - 15.0) / 24.0)
        front = -6.0 * np.exp(-(((day - 3.0 - 0.15 * (self.lon[meter] - 5.0)) / 1.0) ** 2))
        found: Floats = place + round_the_clock + front + random.normal(0, 0.5, len(meter))
        return found

    def _load(self, meter: Ints, seconds: Ints, temp: Floats, random: np.random.Generator) -> Floats:
        """What is always on, the daily round (homes: breakfast and evening; shops: opening hours), and heating."""
        day, hour = seconds // 86_400 % 7, seconds % 86_400 / 3600
        weekend = day >= 5
        breakfast = np.exp(-(((hour - np.where(weekend, 9.5, 7.3)) / 1.4) ** 2))
        evening = np.exp(-(((hour - 19.6) / 2.3) ** 2))
        home = 0.25 + 0.8 * breakfast + 1.3 * evening + 0.3 * weekend * np.exp(-(((hour - 13.5) / 3.0) ** 2))
        shop = np.where(day == 6, 0.05, 1.0) / (1 + np.exp(-(hour - 8.5) * 2)) / (1 + np.exp((hour - 19.2) * 2))
        round_of_day = self.daily[meter] * np.where(self.is_shop[meter], shop, home)
        warming = self.heating[meter] * np.maximum(0.0, HEATING_BELOW_CELSIUS - temp)
        noise = random.lognormal(0, 0.22, len(meter))
        found: Floats = (self.always[meter] + round_of_day + warming) * noise
        return found


def moment(hours: float) -> datetime:
    """So many hours into the week."""
    return WEEK_STARTS + timedelta(hours=hours)
