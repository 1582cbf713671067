"""What the demonstration asks Spark, over live and settled records as one table, and what each question cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.cli.demo.town import moment

VIEW = "demo_meters"
# Monday's evening peak, one hour of one town: a small part of the week, and there in the shortest run.
NARROW_TOWN = "Nice"
NARROW_HOURS = (19, 20)

COUNT = f"SELECT count(*) AS records FROM {VIEW}"
BY_TOWN = f"""\
SELECT city, count(DISTINCT vid) AS meters, round(avg(temp), 1) AS celsius, round(avg(load), 3) AS kilowatts
FROM {VIEW} GROUP BY city ORDER BY kilowatts DESC"""
# What the pipeline computes as readings arrive: a row for each hour of each town, again whenever it changes.
HOURLY = f"""\
SELECT city, date_trunc('hour', date) AS hour, count(*) AS readings, sum(load) AS load, sum(temp) AS temp
FROM {VIEW} GROUP BY city, date_trunc('hour', date)"""
_NEWEST = """\
SELECT city, hour, max(readings) AS readings, max_by(load, readings) AS load, max_by(temp, readings) AS temp
FROM demo_hourly GROUP BY city, hour"""
HOURLY_READINGS = f"SELECT sum(readings) AS readings FROM ({_NEWEST})"
CURVE = f"""\
SELECT hour, sum(load) / sum(readings) AS kilowatts, sum(temp) / sum(readings) AS celsius
FROM ({_NEWEST}) GROUP BY hour ORDER BY hour"""
BY_METER = f"SELECT first(lat) AS lat, first(lon) AS lon, avg(load) AS kilowatts FROM {VIEW} GROUP BY vid"


def narrow() -> str:
    """One hour of one town."""
    first, last = (f"TIMESTAMP '{moment(hours):%Y-%m-%d %H:%M:%S}'" for hours in NARROW_HOURS)
    return (
        f"SELECT count(*) AS readings, round(avg(load), 3) AS kilowatts, round(min(temp), 1) AS coldest FROM {VIEW}\n"
        f"WHERE city = '{NARROW_TOWN}' AND date >= {first} AND date < {last}"
    )


@dataclass(frozen=True)
class Answer:
    """A result and what it took."""

    table: pa.Table
    seconds: float
    objects_read: int
    objects_total: int
    bytes_read: int
    bytes_total: int
    rows_live: int
    skipped_by: dict[str, int]

    @property
    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


def ask(spark: Any, text: str) -> Answer:
    """Run a query in a Spark session and keep its figures."""
    from millpond.spark import last_query
    from millpond.spark.session import query

    began = time.monotonic()
    table = query(spark, text)
    seconds = time.monotonic() - began
    figures = last_query(spark)
    return Answer(
        table,
        seconds,
        figures.objects_read,
        figures.objects_total,
        figures.bytes_read,
        figures.bytes_total,
        figures.rows_live,
        dict(figures.skipped_by),
    )
