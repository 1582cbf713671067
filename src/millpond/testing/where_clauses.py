"""Hypothesis strategies for WHERE clauses over `odd_rows`, which Spark and `Stream.scan` understand alike.

Literals are near what the rows hold, and among the edges: a clause that nothing or everything satisfies proves little.
Needs `hypothesis`.
"""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from millpond.testing.odd_rows import CITIES, EDGES, FIRST, TEXTS

_PATTERNS = ["a%", "%1", "b_%", "", "%", "c1", "_", "z%", "zzz%z", "%N%", "Nice", "%nice%", "%: warm,%", "d-1_", "é%"]
_PLACES = [*CITIES.values(), (90.0, 10.0), (-90.0, 0.0), (0.0, 180.0), (-16.0, -180.0)]
_METERS = [0, 1, 2_000, 15_000, 60_000.5, 1_200_000, 10_010_000, 20_100_000]
_DISTANCES = [
    "st_distance(lat, lon, {lat}, {lon}) {op} {meters}",
    "{meters} {op} st_distance({lat}, {lon}, lat, lon)",
    "st_distance(lat, lon, {lat}, {lon}) / 1000 {op} {meters} / 1e3",
    "2 * st_distance(lat, lon, {lat}, {lon}) {op} {meters} * 2",
]
_PAIRS = [("tiny", "whole"), ("whole", "big"), ("single", "double"), ("money", "huge"), ("text", "city"), ("day", "at")]
# Functions that keep a column's order, and a column of the type that comes out.
_FUNCTIONS = {
    "date_add(day, 3)": "day",
    "date_sub(day, 40)": "day",
    "day + INTERVAL 1 MONTH": "day",
    "day - INTERVAL 2 WEEKS": "day",
    "day + 5": "day",
    "add_months(day, -2)": "day",
    "trunc(day, 'MM')": "day",
    "trunc(day, 'WEEK')": "day",
    "CAST(at AS DATE)": "day",
    "to_date(at)": "day",
    "CAST(day AS TIMESTAMP)": "at",
    "day + INTERVAL 90 MINUTES": "at",
    "at - INTERVAL '1 02:30:00.000001' DAY TO SECOND": "at",
    "at + INTERVAL 1 DAY 2 HOURS": "at",
    "date_trunc('HOUR', at)": "at",
    "date_trunc('QUARTER', at)": "at",
    "date_trunc('DAY', at - INTERVAL 6 HOURS)": "at",
    "year(at)": "year",
    "year(day)": "year",
    "unix_seconds(at)": "seconds",
}
_TEXT_COLUMNS = ("text", "note", "city")


def literal(value: Any) -> str:
    """A value in Spark's SQL."""
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(' ', 'microseconds')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)" if not math.isfinite(value) else f"{value!r}D"
        case Decimal():
            return f"{value:f}"
    return str(value)


def _numbers(scale: float) -> SearchStrategy[Any]:
    near = st.integers(-60, 60)
    return st.one_of(
        near.map(lambda n: int(n * scale) if scale >= 1 else n),
        near.map(lambda n: Decimal(int(n * scale * 8)) / 8 if scale >= 1 else Decimal(n) / 8),
        near.map(lambda n: n * scale),
    )


_DAYS = st.integers(-90, 90).map(lambda n: FIRST.date() + timedelta(days=n))
_TIMES = st.tuples(st.integers(-2_200, 2_200), st.integers(-1, 3)).map(
    lambda two: FIRST + timedelta(hours=two[0], microseconds=two[1])
)
_NEAR: dict[str, SearchStrategy[Any]] = {
    "tiny": _numbers(1),
    "whole": _numbers(1_000),
    "big": st.integers(-60, 60).map(lambda n: n * 10**15),
    "single": _numbers(0.125),
    "double": _numbers(0.1),
    "money": _numbers(0.25),
    "huge": st.integers(-60, 60).map(lambda n: n * 10**9),
    "text": st.tuples(st.sampled_from("abcdefghijkl"), st.integers(-45, 45)).map(lambda two: f"{two[0]}{two[1]}"),
    "note": st.sampled_from(["Nice: warm, 3", "Paris: cold, 20", "Suva"]),
    "data": st.binary(max_size=2),
    "day": _DAYS,
    "at": _TIMES,
    "city": st.sampled_from(sorted(CITIES)),
    "lat": st.sampled_from(sorted({lat for lat, _ in CITIES.values()})) | st.floats(-91, 91, width=32),
    "lon": st.sampled_from(sorted({lon for _, lon in CITIES.values()})) | st.floats(-181, 181, width=32),
    "id": st.integers(-1, 600),
    "year": st.integers(1968, 1972),
    "seconds": st.integers(-90, 90).map(lambda n: n * 133_200 - 86_401),
}


_COLUMNS = sorted(set(_NEAR) - {"year", "seconds"})


def literals(column: str) -> SearchStrategy[str]:
    """Literals that the column can be compared with."""
    edges = st.sampled_from(EDGES[column]) if column in EDGES else st.nothing()
    return st.one_of(_NEAR[column], _NEAR[column], edges).map(literal)


@st.composite
def terms(draw: st.DrawFn) -> str:
    """One comparison."""
    column = draw(st.sampled_from(_COLUMNS))
    near = literals(column)
    match draw(st.integers(0, 11)):
        case 10 | 11:
            return draw(functions())
        case 0:
            values = draw(st.lists(near, min_size=1, max_size=6))
            if draw(st.integers(0, 4)) == 0:
                values.append("NULL")
            return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(values)})"
        case 1:
            return f"{column} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {draw(near)} AND {draw(near)}"
        case 2:
            return f"{column} {draw(st.sampled_from(['IS NULL', 'IS NOT NULL']))}"
        case 3:
            text = draw(st.sampled_from(_TEXT_COLUMNS))
            return f"{text} {draw(st.sampled_from(['LIKE', 'NOT LIKE']))} '{draw(st.sampled_from(_PATTERNS))}'"
        case 4 | 5:
            return draw(places())
        case 6 if draw(st.booleans()):
            left, right = draw(st.sampled_from(_PAIRS))
            return f"{left} {draw(_OPS)} {right}"
        case 7 if draw(st.booleans()):
            return draw(
                st.sampled_from(["flag", "flag = false", "flag IS NULL", f"startswith(text, {literal(TEXTS[1])})"])
            )
    pair = [column, draw(near)]
    if draw(st.booleans()):
        pair.reverse()
    return f"{pair[0]} {draw(_OPS)} {pair[1]}"


_OPS = st.sampled_from(["=", "=", "<=>", "<", "<=", ">", ">=", "!="])


@st.composite
def functions(draw: st.DrawFn) -> str:
    """A function of dates or timestamps beside literals."""
    function = draw(st.sampled_from(sorted(_FUNCTIONS)))
    # Not the edges: what is undone must stay within the years that a scan can be asked for.
    near = _NEAR[_FUNCTIONS[function]].map(literal)
    match draw(st.integers(0, 4)):
        case 0:
            values = ", ".join(draw(st.lists(near, min_size=1, max_size=4)))
            return f"{function} {draw(st.sampled_from(['IN', 'NOT IN']))} ({values})"
        case 1:
            return f"{function} BETWEEN {draw(near)} AND {draw(near)}"
    return f"{function} {draw(_OPS)} {draw(near)}"


@st.composite
def places(draw: st.DrawFn) -> str:
    """st_box, st_near or st_distance."""
    lat, lon = draw(st.sampled_from(_PLACES))
    match draw(st.integers(0, 3)):
        case 0:
            south = max(-90.0, lat - draw(st.sampled_from([0, 0.01, 1, 60])))
            north = min(90.0, lat + draw(st.sampled_from([0, 0.02, 2, 60])))
            wide = draw(st.sampled_from([0.01, 0.25, 5, 100]))
            west, east = (lon - wide + 180) % 360 - 180, (lon + wide + 180) % 360 - 180
            return f"st_box(lat, lon, {south!r}D, {west!r}D, {north!r}D, {east!r}D)"
        case 1:
            op = draw(st.sampled_from(["<", "<=", ">", ">="]))
            meters = draw(st.sampled_from(_METERS))
            return draw(st.sampled_from(_DISTANCES)).format(lat=f"{lat!r}D", lon=f"{lon!r}D", op=op, meters=meters)
    return f"st_near(lat, lon, {lat!r}D, {lon!r}D, {draw(st.sampled_from(_METERS))})"


def where_clauses(leaves: int = 5) -> SearchStrategy[str]:
    """Any combination of terms."""
    return st.recursive(
        terms(),
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
            st.tuples(inner, inner).map(lambda two: f"({two[0]} OR {two[1]})"),
        ),
        max_leaves=leaves,
    )
