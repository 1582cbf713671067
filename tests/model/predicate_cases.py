"""Random tables and predicates, and a slow evaluator of three-valued logic, written without Arrow.

The evaluator says what Spark would say of one row. It shares no code with the package but the tree itself.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millpond.model.predicate import (
    And,
    Compare,
    CompareColumns,
    Const,
    In,
    IsNull,
    Like,
    Near,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
)

NAN, INF = math.nan, math.inf
TEN = dt.timezone(dt.timedelta(hours=10))


def moment(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("f", pa.float64()),
        ("h", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(5, 2)),
        ("e", pa.decimal128(38, 3)),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("u", pa.string()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("lat", pa.float64()),
        ("lon", pa.float32()),
        ("z", pa.struct([("n", pa.int64()), ("s", pa.string())])),
    ]
)

BIG = 2**53
TEXTS = ["", "a", "ab", "abc", "b", "a%c", "a_c", "a\nc", "é", "z", "日本", "\U0010ffff", "\ufffd", "\x00", "." * 70]
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 127],
    "n": [0, 1, -1, 2, BIG - 1, BIG, BIG + 1, BIG + 2, BIG + 3, -BIG - 1, 2**63 - 1, -(2**63)],
    "f": [0.0, -0.0, 0.1, 1.0, 1.5, -1.5, float(BIG), 1e308, INF, -INF, NAN, 5e-324],
    "g": [0.0, -0.0, 0.10000000149011612, 1.0, 1.5, 16777216.0, 3.4028234663852886e38, INF, -INF, NAN],
    "d": [Decimal(v) for v in ("0.00", "0.10", "1.50", "1.51", "-1.50", "999.99", "-999.99")],
    "e": [Decimal(v) for v in ("0.000", "0.100", "1.5", "9" * 35, "-" + "9" * 35, "9007199254740993.001")],
    "b": [True, False],
    "s": TEXTS,
    "x": [b"", b"\x00", b"a", b"ab", b"\xff", b"\xff\xff", b"\xfe" * 70, b"\xff" * 70],
    "day": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 1), dt.date(9999, 12, 31)],
    "t": [
        moment(1, 1, 1),
        moment(1969, 12, 31, 23, 59, 59, 999999),
        moment(2024, 2, 29),
        moment(2024, 2, 29, 12),
        moment(9999, 12, 31, 23, 59, 59, 999999),
    ],
}
# Poles, the antimeridian, both zeros, and what is no place; binary fractions, which a float of 32 bits holds.
VALUES["lat"] = [0.0, -0.0, 48.5, 48.75, -33.25, 90.0, -90.0, 89.99609375, 90.5, -100.0, INF, NAN]
VALUES["lon"] = [0.0, -0.0, 2.25, 2.5, 151.25, 180.0, -180.0, 179.9375, -179.9375, 181.0, -540.0, -INF, NAN]
VALUES |= {"m": VALUES["n"], "h": VALUES["f"], "u": VALUES["s"]}

NUMBERS = [
    *[0, 1, -1, 2, 127, 128, -129, BIG, BIG + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 16777217],
    *[Decimal(v) for v in ("0.1", "1.5", "1.505", "-1.50", "999.99", "1000", "0.0001", "1e20", "9" * 40, "-1e50")],
    *[0.0, -0.0, 0.1, 1.0, 1.5, 1.505, float(BIG), float(BIG + 2), 2.0**63, -(2.0**63), 1e300, INF, -INF, NAN],
]
TIMES = [*VALUES["day"], *VALUES["t"], dt.datetime(2024, 2, 29, 22, tzinfo=TEN), "2024-02-29", "2024-2-29 12:00:00"]
KIND = dict.fromkeys(("tiny", "n", "m", "f", "h", "g", "d", "e", "lat", "lon"), "number") | {"day": "time", "t": "time"}
LITERALS: dict[str, list[Any]] = {
    name: {"number": NUMBERS, "time": TIMES}.get(KIND.get(name, ""), values) for name, values in VALUES.items()
}
PLACES = [(0.0, 0.0), (48.5, 2.25), (90.0, 7.0), (-90.0, 0.0), (89.99, -170.0), (-33.25, 180.0), (0.0, -179.95)]
METERS = [-1.0, 0.0, 0.5, 6_000.0, 33_000.5, 1e6, 9_999_999.0, 1.1e7, 20_015_000.0, 1e9]
PATTERNS = ["", "%", "a", "a%", "a_c", "%c", "_", "a\\%c", "a\\_%", "%b%", "__", "é%", "\\\\", "a.c", "%\n%", "a%c%"]


@st.composite
def tables(draw: st.DrawFn, columns: frozenset[str] | None = None, rows_max: int = 8) -> pa.RecordBatch:
    """Some rows of those columns (all, if none are named)."""
    rows = draw(st.integers(0, rows_max))
    fields = [field for field in SCHEMA if columns is None or field.name in columns]
    arrays = []
    for field in fields:
        if field.name == "z":
            inner = st.fixed_dictionaries(
                {"n": st.none() | st.sampled_from(VALUES["n"]), "s": st.none() | st.sampled_from(TEXTS)}
            )
            value = st.none() | inner
        else:
            # A few values per column, so that objects differ and constants and all-null columns happen.
            pool = draw(st.lists(st.sampled_from([None, *VALUES[field.name]]), min_size=1, max_size=3))
            value = st.sampled_from(pool)
        arrays.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@st.composite
def cases(draw: st.DrawFn, *, unknown: bool = False) -> tuple[Predicate, pa.RecordBatch]:
    """A predicate, and a table of the columns it names: drawing all of them would take most of the time."""
    predicate = draw(predicates(unknown=unknown))
    return predicate, draw(tables(columns_of(predicate) | {"n"}))


OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
PAIRS = [
    *[("n", "m"), ("tiny", "n"), ("n", "f"), ("f", "h"), ("g", "f")],
    *[("d", "e"), ("n", "e"), ("s", "u"), ("day", "t")],
]


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(VALUES)))
    literal = st.sampled_from([*LITERALS[name], None])
    match draw(st.integers(0, 10)):
        case 0 | 1 | 2 | 3:
            return Compare(draw(OPS), name, draw(literal))
        case 4:
            return In(name, tuple(draw(st.lists(literal, max_size=7))))
        case 5:
            return IsNull(draw(st.sampled_from([name, "z", ("z", "n")])))
        case 6:
            text = draw(st.sampled_from(["s", "u", ("z", "s")]))
            if draw(st.booleans()):
                return StartsWith(text, draw(st.sampled_from(TEXTS)))
            return Like(text, draw(st.sampled_from(PATTERNS)))
        case 7:
            left, right = draw(st.sampled_from(PAIRS))
            return CompareColumns(draw(OPS), left, right)
        case 8:
            return Compare(draw(OPS), ("z", "n"), draw(st.sampled_from(NUMBERS)))
        case 9:
            return Near("lat", "lon", *draw(st.sampled_from(PLACES)), draw(st.sampled_from(METERS)))
        case _:
            return Const(draw(st.sampled_from([True, False, None])))


def predicates(*, unknown: bool = False) -> st.SearchStrategy[Predicate]:
    leaf: st.SearchStrategy[Predicate] = leaves()
    if unknown:
        leaf = leaf | st.just(Unknown("not understood"))
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda terms: And(tuple(terms)))
            | st.lists(inner, max_size=3).map(lambda terms: Or(tuple(terms)))
            | inner.map(Not)
        ),
        max_leaves=6,
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist()  # type: ignore[no-any-return]


def slow(predicate: Predicate, row: dict[str, Any], unknown: bool | None = None) -> bool | None:
    """True, False or None (NULL) for one row; every Unknown is taken to be `unknown`."""
    match predicate:
        case And(terms):
            answers = [slow(term, row, unknown) for term in terms]
            return False if False in answers else None if None in answers else True
        case Or(terms):
            answers = [slow(term, row, unknown) for term in terms]
            return True if True in answers else None if None in answers else False
        case Not(term):
            answer = slow(term, row, unknown)
            return None if answer is None else not answer
        case Const(value):
            return value
        case Unknown():
            return unknown
        case IsNull(column):
            return fetch(row, column) is None
        case Compare(op, column, value):
            return compare(op, type_name(column), fetch(row, column), value)
        case CompareColumns(op, left, right):
            return compare(op, type_name(left), fetch(row, left), fetch(row, right))
        case In(column, values):
            if any(isinstance(value, float) for value in values):
                values = tuple(float(v) if type(v) in (int, Decimal) else v for v in values)
            moments = any(isinstance(value, dt.datetime) for value in values)
            name = "t" if column == "day" and moments else type_name(column)
            answers = [compare("=", name, fetch(row, column), value) for value in values]
            return True if True in answers else None if None in answers else False
        case StartsWith(column, prefix):
            text = fetch(row, column)
            return None if text is None else text[: len(prefix)] == prefix
        case Like(column, pattern):
            text = fetch(row, column)
            return None if text is None else like(text, pattern)
        case Near(lat, lon, to_lat, to_lon, meters):
            away = vincenty(fetch(row, lat), fetch(row, lon), to_lat, to_lon)
            return None if away is None else away <= meters
    raise AssertionError(predicate)


def vincenty(lat: float | None, lon: float | None, to_lat: float, to_lon: float) -> float | None:
    """The length of an arc by another formula than the haversine, which is exact everywhere on a sphere."""
    if lat is None or lon is None or not (abs(lat) <= 90 and abs(lon) <= 180):
        return None
    a, b, c = math.radians(lat), math.radians(to_lat), math.radians(to_lon - lon)
    x = math.cos(a) * math.sin(b) - math.sin(a) * math.cos(b) * math.cos(c)
    y = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(c)
    return 6_371_008.8 * math.atan2(math.hypot(math.cos(b) * math.sin(c), x), y)


def fetch(row: dict[str, Any], column: str | tuple[str, ...]) -> Any:
    value: Any = row
    for name in (column,) if isinstance(column, str) else column:
        value = None if value is None else value[name]
    return value


def type_name(column: str | tuple[str, ...]) -> str:
    return column if isinstance(column, str) else column[-1]


def compare(op: str, name: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return (left is None and right is None) if op == "<=>" else None
    a, b = keys(name, left, right)
    return {
        "=": a == b,
        "<=>": a == b,
        "!=": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
    }[op]


def keys(name: str, left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides in the type that Spark would compare them in."""
    if KIND.get(name) == "number":
        if isinstance(left, float) or isinstance(right, float):
            return double(left), double(right)
        return Fraction(left), Fraction(right)
    if KIND.get(name) == "time":
        if isinstance(right, str):
            right = dt.datetime(2024, 2, 29, 12 if ":" in right else 0, tzinfo=dt.UTC)
            if name == "day":
                right = right.date()
        return midnight(left), midnight(right)
    if isinstance(left, str):
        return left.encode(), right.encode()
    return left, right


def double(value: Any) -> tuple[bool, float]:
    value = float(value)
    return (True, 0.0) if math.isnan(value) else (False, value)


def midnight(value: dt.date) -> dt.datetime:
    return value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    if not text:
        return False
    if pattern[0] == "_":
        return like(text[1:], pattern[1:])
    if pattern[0] == "\\":
        pattern = pattern[1:]
    return text[0] == pattern[0] and like(text[1:], pattern[1:])
