"""That readings are what they claim to be: always the same, and related as those of real meters are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.errors import InvalidValue
from millpond.gridpocket import ORIGIN, SCHEMA, Readings, readings
from millpond.gridpocket.country import meters, towns

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def columns(table: pa.Table | pa.RecordBatch, *names: str) -> Any:
    return [table.column(name).to_numpy(zero_copy_only=False) for name in names]


@pytest.fixture(scope="module")
def winter() -> pa.Table:
    """Ten days of 4,000 meters."""
    return pa.Table.from_batches(readings(4_000, ORIGIN + 9 * DAY, 10 * DAY, HOUR))


def test_the_twelve_fields_and_every_meter_at_every_moment(winter: pa.Table) -> None:
    assert winter.schema.equals(SCHEMA)
    assert len(SCHEMA) == 12
    assert winter.num_rows == 4_000 * 240
    date, vid = columns(winter, "date", "vid")
    assert (np.diff(date.astype("datetime64[us]")) >= np.timedelta64(0)).all()
    assert (vid.reshape(240, 4_000) == np.arange(4_000)).all()
    assert not any(column.null_count for column in winter.columns)


@pytest.mark.parametrize("count", [700, 40_000])
def test_any_part_can_be_made_by_itself(count: int) -> None:
    """F12: no row depends on those made before it, on how they were cut, or on how many meters there are."""
    made = Readings(count, ORIGIN + timedelta(hours=22), timedelta(hours=4), timedelta(minutes=30))
    whole = pa.Table.from_batches(made.batches()).combine_chunks()
    for start, stop in [(0, 1), (count - 3, count + 5), (count * 2 + 17, count * 5 - 1), (len(made) - 1, len(made))]:
        part = pa.Table.from_batches([made.rows(start, stop)]).combine_chunks()
        assert part.equals(whole.slice(start, stop - start).combine_chunks())
    fewer = Readings(30, made.start, made.period, made.every)
    same = whole.filter(pc.less(whole.column("vid"), 30)).combine_chunks()
    assert pa.Table.from_batches(fewer.batches(rows=41)).combine_chunks().equals(same)


def test_an_index_does_not_depend_on_when_reading_began() -> None:
    late = Readings(50, ORIGIN + 40 * DAY, DAY, HOUR)
    through = Readings(50, ORIGIN, 41 * DAY, HOUR)
    assert late.rows(0, 50 * 24).equals(through.rows(40 * 24 * 50, 41 * 24 * 50))


def test_another_seed_is_another_country() -> None:
    one, other = (Readings(500, seed=seed).rows(0, 500) for seed in (1, 2))
    for name in ("latitude", "size", "index"):
        (a,), (b,) = columns(one, name), columns(other, name)
        assert (a != b).mean() > 0.9


def test_the_index_is_the_running_sum_and_the_sums_begin_anew_at_midnight(winter: pa.Table) -> None:
    index, hc, hp = (column.reshape(240, 4_000) for column in columns(winter, "index", "sumHC", "sumHP"))
    assert (np.diff(index, axis=0) > 0).all()
    midnights = index[::24].repeat(24, axis=0)
    # Each of the three numbers is rounded to a watt-hour.
    assert np.abs(index - midnights - hc - hp).max() < 0.0021
    assert (hc[::24] == 0).all()
    assert (hp[::24] == 0).all()
    hour = np.arange(240) % 24
    # Off-peak until six and from ten at night on; a reading is ahead by less than a quarter of an hour.
    assert (hp[hour < 6] == 0).all()
    assert (np.diff(hc, axis=0)[(hour[:-1] >= 7) & (hour[:-1] < 21)] == 0).all()
    assert (np.diff(hc, axis=0)[hour[:-1] == 22] > 0).all()


def test_consumption_follows_cold_heating_and_size(winter: pa.Table) -> None:
    index, temp, size = (c.reshape(240, 4_000) for c in columns(winter, "index", "temp", "size"))
    electric = columns(winter, "type")[0].reshape(240, 4_000)[0] == "electricity"
    assert 0.2 < electric.mean() < 0.6
    daily = np.diff(index[::24], axis=0)
    cold = temp.reshape(10, 24, 4_000).mean(axis=1)[:9]
    # Day by day: the same home in its own cold. What is left of gas homes is how people live.
    follows = np.array([np.corrcoef(daily[:, m], cold[:, m])[0, 1] for m in range(4_000)])
    assert follows[electric].mean() < -0.45
    assert abs(follows[~electric].mean()) < 0.2
    assert daily[:, electric].mean() > 1.8 * daily[:, ~electric].mean()
    for kind in (electric, ~electric):
        assert np.corrcoef(daily[:, kind].mean(axis=0), size[0, kind])[0, 1] > 0.5


def test_temperature_follows_season_hour_and_place() -> None:
    summer, winter = (pa.Table.from_batches(readings(3_000, ORIGIN + day * DAY, 7 * DAY, HOUR)) for day in (190, 10))
    (warm,), (cold,) = columns(summer, "temp"), columns(winter, "temp")
    assert warm.mean() - cold.mean() > 10
    assert -25 < cold.min() < warm.max() < 45
    by_hour = warm.reshape(7, 24, 3_000).mean(axis=(0, 2))
    assert by_hour[4:7].max() < by_hour[15:18].min() - 4
    (lat,) = columns(summer, "latitude")
    assert np.corrcoef(lat.reshape(-1, 3_000)[0], warm.reshape(-1, 3_000).mean(axis=0))[0, 1] < -0.5


def test_towns_are_uneven_and_most_of_the_map_is_sparse() -> None:
    chosen = meters(7, 0, 100_000)
    cells = np.unique(np.floor(np.stack([chosen.lat, chosen.lon]) * 10), axis=1, return_counts=True)[1]
    # France has about 6,400 cells of 0.1°, nearly all of them with some people, few with many.
    assert 4_500 < len(cells) < 7_500
    assert np.median(cells) < cells.mean() / 2
    assert cells.max() > 50 * cells.mean()
    sizes = np.sort(np.bincount(chosen.town, minlength=len(towns(7))))[::-1]
    assert sizes[0] > 3 * sizes[1] > 10 * sizes[100]
    assert chosen.region.min() == 1
    assert chosen.region.max() == 95
    known = towns(7)
    away = np.hypot(chosen.lat - known.lat[chosen.town], (chosen.lon - known.lon[chosen.town]) * 0.69)
    assert np.quantile(away, 0.99) < 0.4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"meters": 0}, "0 meters"),
        ({"start": datetime(2026, 2, 1)}, "start"),
        ({"start": ORIGIN - DAY}, "start"),
        ({"every": timedelta(minutes=10)}, "every"),
        ({"period": timedelta(minutes=1)}, "period"),
    ],
)
def test_what_cannot_be_made_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Readings(**{"meters": 10, **wrong})
