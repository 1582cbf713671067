"""Readings: the twelve fields, for any meters at any times, as Arrow batches.

Rows are numbered in the order of time: all meters at the first moment, then all at the next. `Readings.rows(a, b)`
makes the rows from `a` to `b` and needs nothing but their numbers, so threads, executors and later runs can share the
work as they like and come to the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidValue
from millpond.gridpocket import homes, weather
from millpond.gridpocket.country import Meters, meters
from millpond.gridpocket.noise import Floats, Ints, uniform
from millpond.model.schema import TIMESTAMP

SCHEMA = pa.schema(
    [
        ("date", TIMESTAMP),
        ("index", pa.float64()),
        ("sumHC", pa.float64()),
        ("sumHP", pa.float64()),
        ("type", pa.string()),
        ("vid", pa.int64()),
        ("size", pa.int64()),
        ("temp", pa.float64()),
        ("city", pa.string()),
        ("region", pa.int64()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
    ]
)
# When meters began to count. Nothing was read before.
ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
BATCH_ROWS = 65_536
# How far ahead of a quarter of an hour a meter reads at most: less than one, so that no reading overtakes the next.
_AHEAD = 0.8
_JITTER = 60
# Meters that are worked on at once: their tables then stay in the processor's cache.
_CHUNK = 1 << 15


@dataclass(frozen=True)
class Readings:
    """All readings of so many meters, `every` so often, from `start` for `period`. Thread-safe: nothing changes."""

    meters: int
    start: datetime = ORIGIN
    period: timedelta = timedelta(days=1)
    every: timedelta = QUARTER
    seed: int = 7

    def __post_init__(self) -> None:
        if self.meters < 1:
            raise InvalidValue(f"{self.meters} meters", hint="at least one")
        if self.start.tzinfo is None or self.start < ORIGIN or (self.start - ORIGIN) % QUARTER:
            raise InvalidValue(
                f"start {self.start.isoformat()}",
                hint=f"a quarter of an hour from {ORIGIN.isoformat()} on, with a zone",
            )
        if self.every < QUARTER or self.every % QUARTER:
            raise InvalidValue(f"a reading every {self.every}", hint="a multiple of 15 minutes")
        if self.period < self.every:
            raise InvalidValue(f"a period of {self.period}", hint=f"at least one reading, every {self.every}")

    @property
    def moments(self) -> int:
        """How often each meter is read."""
        return self.period // self.every

    def __len__(self) -> int:
        return self.meters * self.moments

    def moment(self, number: int) -> datetime:
        return self.start + number * self.every

    def batches(self, start: int = 0, stop: int | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to `stop`, in order."""
        stop = len(self) if stop is None else min(stop, len(self))
        for at in range(start, stop, rows):
            yield self.rows(at, min(at + rows, stop))

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """The rows from `start` to `stop`, at least one, as one batch."""
        parts: list[pa.RecordBatch] = []
        at = start
        while at < stop:
            moment, meter = divmod(at, self.meters)
            if meter == 0 and self.meters <= _CHUNK and stop - at >= self.meters:
                whole = (stop - at) // self.meters
                parts.append(self.block(0, self.meters, moment, whole))
                at += whole * self.meters
                continue
            count = min(self.meters - meter, stop - at, _CHUNK - meter % _CHUNK)
            parts.append(self.block(meter, count, moment, 1))
            at += count
        return pa.concat_batches(parts) if len(parts) != 1 else parts[0]

    def block(self, first_meter: int, meter_count: int, first_moment: int, moment_count: int) -> pa.RecordBatch:
        """All readings of consecutive meters at consecutive moments, in the order of time."""
        chosen, places = _known(self.seed, first_meter, meter_count)
        origin = (self.start - ORIGIN) // QUARTER
        quarters = origin + (first_moment + np.arange(moment_count)) * (self.every // QUARTER)
        chance = self._chance(chosen, quarters)
        # The last digits of chance make a thermometer's error.
        temp = weather.temperature(weather.of_times(quarters / homes.QUARTERS), places) + chance * 4096.0 % 1.0 - 0.5
        # At midnight nothing is ahead: sums begin at nothing.
        ahead = chance * np.where(quarters % homes.QUARTERS == 0, 0.0, _AHEAD)[:, None]
        shape = (moment_count, meter_count)
        sums_hc, sums_hp, index = np.empty(shape), np.empty(shape), np.empty(shape)
        for number in np.unique(quarters // homes.QUARTERS):
            at = np.flatnonzero(quarters // homes.QUARTERS == number)
            part = slice(at[0], at[-1] + 1)
            of_day = quarters[part] % homes.QUARTERS
            self._sums(chosen, int(number), of_day, ahead[part], sums_hc[part], sums_hp[part], index[part])
        micros = (int(ORIGIN.timestamp()) + quarters * 900) * 1_000_000
        columns = {
            "date": pa.array(np.repeat(micros, meter_count)).cast(TIMESTAMP),
            "index": _rounded(index, 3),
            "sumHC": _rounded(sums_hc, 3),
            "sumHP": _rounded(sums_hp, 3),
            "type": _repeated(chosen.type, moment_count),
            "vid": _repeated(pa.array(chosen.vid), moment_count),
            "size": _repeated(pa.array(chosen.size), moment_count),
            "temp": _rounded(temp, 1),
            "city": _repeated(chosen.city, moment_count),
            "region": _repeated(pa.array(chosen.region), moment_count),
            "latitude": _repeated(pa.array(chosen.lat), moment_count),
            "longitude": _repeated(pa.array(chosen.lon), moment_count),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)

    def _chance(self, chosen: Meters, quarters: Ints) -> Floats:
        """A number in [0, 1) for each reading."""
        return uniform(self.seed, _JITTER, quarters[:, None] * (1 << 40) + chosen.vid[None, :])

    def _sums(
        self, chosen: Meters, number: int, quarters: Ints, ahead: Floats, hc: Floats, hp: Floats, index: Floats
    ) -> None:
        """kWh since midnight, off-peak and peak, and since the meter was new, into what was given."""
        table = homes.day(self.seed, number)
        for out, lively, cold in ((hc, table.rhythm_hc, table.cold_hc), (hp, table.rhythm_hp, table.cold_hp)):
            np.multiply(_ahead_in(lively, quarters, chosen.rhythm, ahead), chosen.appliances, out=out)
            out += _ahead_in(cold, quarters, chosen.region - 1, ahead) * chosen.heating
        rhythms, regions = homes.before(self.seed, number)
        until_midnight = (
            chosen.first_index
            + chosen.appliances * rhythms[chosen.rhythm]
            + chosen.heating * regions[chosen.region - 1]
        )
        np.add(hc, hp, out=index)
        index += until_midnight


def readings(
    meters: int,
    start: datetime = ORIGIN,
    period: timedelta = timedelta(days=1),
    every: timedelta = QUARTER,
    seed: int = 7,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The readings of so many meters, in the order of time, as batches."""
    return Readings(meters, start, period, every, seed).batches(rows=batch_rows)


@lru_cache(maxsize=32)
def _known(seed: int, first: int, count: int) -> tuple[Meters, Floats]:
    chosen = meters(seed, first, count)
    return chosen, weather.of_places(chosen.lat, chosen.lon, chosen.height)


def _ahead_in(table: Floats, quarters: Ints, which: Ints, ahead: Floats) -> Floats:
    """Between the rows of these quarters and the next ones, as far ahead as said; a column for each of `which`."""
    found: Floats = np.take(table[quarters + 1] - table[quarters], which, axis=1)
    found *= ahead
    found += np.take(table[quarters], which, axis=1)
    return found


def _rounded(values: Floats, digits: int) -> pa.Array:
    return pa.array(np.round(values, digits).ravel())


def _repeated(column: pa.Array, times: int) -> pa.Array:
    return column if times == 1 else pa.concat_arrays([column] * times)
