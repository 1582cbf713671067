"""What a layout learns of a query: ranges of numbers, never narrower than what the query asks for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.evaluate import filter_batch
from millpond.model.past_query import as_number, past_query
from millpond.model.predicate import TRUE, And, Compare, In, Not, Or, Predicate
from millpond.query.sql import parse_where

SCHEMA = pa.schema(
    [
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("city", pa.string()),
    ]
)


def learnt(where: str) -> dict[str, tuple[float | None, float | None]] | None:
    found = past_query(parse_where(where, SCHEMA), SCHEMA, 7)
    return None if found is None else dict(found.ranges)


@pytest.mark.parametrize(
    ("where", "ranges"),
    [
        ("lat >= 43.5 AND lat < 44 AND lon > 7", {"lat": (43.5, 44.0), "lon": (7.0, None)}),
        ("n = 3", {"n": (3.0, 3.0)}),
        ("n IN (9, 2, 5)", {"n": (2.0, 9.0)}),
        ("n BETWEEN 2 AND 9 AND n > 4", {"n": (4.0, 9.0)}),
        ("n < 3 OR n > 9", None),
        ("(n > 3 AND n < 5) OR (n > 7 AND n < 9 AND lat > 1)", {"n": (3.0, 9.0)}),
        ("NOT (n < 3)", {"n": (3.0, None)}),
        ("price < 2.50", {"price": (None, 2.5)}),
        ("day = DATE '1970-01-02'", {"day": (86_400e6, 86_400e6)}),
        ("time >= TIMESTAMP '1970-01-01 00:00:01'", {"time": (1e6, None)}),
        ("city = 'Nice'", None),
        ("city = 'Nice' AND lat > 1", {"lat": (1.0, None)}),
        ("lat > 3 AND lat < 2", None),
        ("n != 3", None),
        ("lat > 1 OR city = 'Nice'", None),
        ("(lat > 3 AND lat < 2) OR n > 5", {"n": (5.0, None)}),
    ],
)
def test_a_predicate_allows_these_ranges(
    where: str, ranges: dict[str, tuple[float | None, float | None]] | None
) -> None:
    assert learnt(where) == ranges


def test_nothing_is_learnt_where_nothing_is_asked() -> None:
    assert past_query(TRUE, SCHEMA, 0) is None
    assert past_query(Compare("=", "nowhere", 3), SCHEMA, 0) is None


def test_what_is_near_a_place_lies_in_a_box() -> None:
    box = learnt("st_near(lat, lon, 43.7, 7.2, 10000)")
    assert box is not None
    assert box["lat"] == pytest.approx((43.61, 43.79), abs=0.001)
    assert box["lon"] == pytest.approx((7.0756, 7.3244), abs=0.001)
    # Across the antimeridian, and around a pole, longitudes are no one range.
    assert set(learnt("st_near(lat, lon, 0.0, 179.99, 10000)") or ()) == {"lat"}
    assert set(learnt("st_near(lat, lon, 89.99, 0.0, 10000)") or ()) == {"lat"}


def test_a_query_keeps_its_time() -> None:
    found = past_query(Compare("=", "n", 3), SCHEMA, 1_700_000_000_000_000)
    assert found is not None
    assert (found.at_micros, found.weight) == (1_700_000_000_000_000, 1.0)


def test_numbers_of_literals() -> None:
    assert as_number(Decimal("1.5")) == 1.5
    assert as_number(date(1969, 12, 31)) == -86_400e6
    assert as_number(datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)) == 5.0
    assert as_number(float("nan")) is as_number(float("inf")) is as_number(10**400) is as_number(True) is None


_LEAVES = st.one_of(
    st.builds(
        Compare,
        st.sampled_from(["=", "<", "<=", ">", ">=", "!="]),
        st.sampled_from(["a", "b"]),
        st.integers(-5, 5),
    ),
    st.builds(lambda values: In("a", tuple(values)), st.lists(st.integers(-5, 5), max_size=3)),
)
_TREES: st.SearchStrategy[Predicate] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda terms: And(tuple(terms)), st.lists(inner, max_size=3)),
        st.builds(lambda terms: Or(tuple(terms)), st.lists(inner, max_size=3)),
        st.builds(Not, inner),
    ),
    max_leaves=8,
)


@given(_TREES)
def test_a_row_that_matches_lies_inside_every_range(predicate: Predicate) -> None:
    rows = pa.record_batch({"a": [x for x in range(-6, 7) for _ in range(13)], "b": list(range(-6, 7)) * 13})
    found = past_query(predicate, rows.schema, 0)
    kept = filter_batch(rows, predicate)
    for column, (low, high) in (found.ranges if found else {}).items():
        values = kept.column(column).to_pylist()
        assert all((low is None or low <= value) and (high is None or value <= high) for value in values)
