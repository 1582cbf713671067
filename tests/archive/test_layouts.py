"""Grid (F7) and k-d tree (F8) keep the contract of layouts, and do what each is for (F9, F10)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.archive.layout.grid import Grid
from millpond.archive.layout.kdtree import KdTree
from millpond.archive.layout.layout import Layout, Levels, Model
from millpond.archive.layout.registry import decode_model, find_layout, known_layouts, make_layout, register_layout
from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.past_query import PastQuery
from millpond.model.schema import TIMESTAMP
from millpond.model.spec import Spec, parse_spec
from millpond.testing.layout_contract import LayoutContract

ORDERED = (
    pa.int8(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 0),
    pa.decimal128(20, 18),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
)


class TestGrid(LayoutContract):
    TYPES = tuple(kind for kind in ORDERED if pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def make_layout(self, columns: Sequence[str], buckets: int) -> Layout:
        return Grid(*columns, precision=1, buckets=buckets)


class TestKdTree(LayoutContract):
    TYPES = ORDERED

    def make_layout(self, columns: Sequence[str], buckets: int) -> Layout:
        return KdTree(*columns, buckets=buckets)


class TestKdTreeInTurn(LayoutContract):
    TYPES = ORDERED

    def make_layout(self, columns: Sequence[str], buckets: int) -> Layout:
        return KdTree(*columns, buckets=buckets, split="round_robin")


def sizes(model: Model, rows: pa.Table) -> list[int]:
    return np.bincount(model.assign(rows), minlength=model.buckets).tolist()


def towns(seed: int, meters: int, count: int = 400) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Places of meters: towns of uneven size, scattered over a country."""
    rng = np.random.default_rng(seed)
    weight = rng.pareto(1.1, count) + 0.05
    town = rng.choice(count, meters, p=weight / weight.sum())
    spread = np.clip(np.sqrt(weight), 0.2, 4)[town] * 0.02
    lat = rng.uniform(42.5, 51.0, count)[town] + rng.normal(size=meters) * spread
    lon = rng.uniform(-4.5, 8.0, count)[town] + rng.normal(size=meters) * spread * 1.4
    return lat, lon


def objects_read(model: Model, rows: pa.Table, queries: Sequence[PastQuery]) -> float:
    """The share of all rows in buckets that queries touch, by the bounds of the rows in each."""
    found, names = model.assign(rows), rows.schema.names
    numbers = np.column_stack([rows.column(name).to_numpy() for name in names])
    read = 0
    for bucket in np.unique(found):
        inside = numbers[found == bucket]
        low, high = inside.min(axis=0), inside.max(axis=0)
        for query in queries:
            ends = [query.ranges.get(name, (-np.inf, np.inf)) for name in names]
            if all(end[0] <= high[at] and end[1] >= low[at] for at, end in enumerate(ends)):
                read += len(inside)
    return read / len(queries) / rows.num_rows


def test_buckets_of_a_tree_are_of_about_equal_size() -> None:
    lat, lon = towns(1, 40_000)
    rows = pa.table({"lat": lat, "lon": lon})
    for buckets in (7, 32, 100, 128):
        model = KdTree("lat", "lon", buckets=buckets).fit(rows)
        found = sizes(model, rows)
        assert len(found) == buckets
        assert min(found) >= 0.7 * 40_000 / buckets
        assert max(found) <= 1.3 * 40_000 / buckets


def test_a_square_around_a_meter_touches_few_buckets() -> None:
    """Cuts fall between towns: the bounds of buckets are tight."""
    lat, lon = towns(2, 20_000)
    rows = pa.table({"lat": lat, "lon": lon})
    model = KdTree("lat", "lon", buckets=128).fit(rows)
    cells = np.unique(np.floor(lat * 10) * 1_000 + np.floor(lon * 10), return_index=True)[1]
    half = 2.5 / 111
    squares = [
        PastQuery({"lat": (lat[at] - half, lat[at] + half), "lon": (lon[at] - 1.4 * half, lon[at] + 1.4 * half)}, 0)
        for at in cells.tolist()
    ]
    assert objects_read(model, rows, squares) * 128 < 1.6
    assert objects_read(model, rows, squares) < objects_read(
        KdTree("lat", "lon", buckets=128, split="round_robin").fit(rows), rows, squares
    )


def test_the_dimensions_that_queries_restrict_are_cut() -> None:
    """Four dimensions, of which queries name two: the tree cuts those, and what they read halves at least."""
    rng = np.random.default_rng(3)
    names = ["lat", "lon", "time", "temperature"]
    rows = pa.table({name: rng.uniform(0, 100, 40_000) for name in names})

    def asked(seed: int, count: int) -> list[PastQuery]:
        centre = np.random.default_rng(seed).uniform(0, 100, (count, 2))
        return [PastQuery({"time": (t - 2, t + 2), "lat": (x - 2, x + 2)}, 0) for t, x in centre.tolist()]

    driven = KdTree(*names, buckets=64).fit(rows, asked(4, 200))
    in_turn = KdTree(*names, buckets=64, split="round_robin").fit(rows)
    assert objects_read(driven, rows, asked(5, 50)) < 0.5 * objects_read(in_turn, rows, asked(5, 50))


def test_a_query_counts_where_it_is_relevant() -> None:
    """In one half of space queries restrict a, in the other b: each half is cut along its own."""
    rng = np.random.default_rng(11)
    rows = pa.table({name: rng.uniform(0, 100, 20_000) for name in "xab"})

    def asked(seed: int, count: int) -> list[PastQuery]:
        values = np.random.default_rng(seed).uniform(0, 100, count).tolist()
        return [PastQuery({"x": (0.0, 49.0), "a": (at - 1, at + 1)}, 0) for at in values] + [
            PastQuery({"x": (51.0, 100.0), "b": (at - 1, at + 1)}, 0) for at in values
        ]

    model = KdTree("x", "a", "b", buckets=32).fit(rows, asked(1, 100))
    # Half of the buckets are on the other side, and those on this side are slices of what is asked for.
    assert objects_read(model, rows, asked(2, 30)) * 32 < 2.5


def test_buckets_take_the_shape_of_queries() -> None:
    """Queries that are long in x and short in y, too few of them to cut by: boxes are long in x and short in y."""
    rng = np.random.default_rng(12)
    rows = pa.table({name: rng.uniform(0, 100, 20_000) for name in "xy"})
    boxes = KdTree("x", "y", buckets=64).fit(rows, [PastQuery({"x": (0.0, 40.0), "y": (0.0, 1.0)}, 0)]).boxes()
    long = np.mean([box.highs[0] - box.lows[0] for box in boxes])
    short = np.mean([box.highs[1] - box.lows[1] for box in boxes])
    assert long > 4 * short


def test_new_queries_count_more_than_old_ones() -> None:
    rng = np.random.default_rng(4)
    rows = pa.table({name: rng.uniform(0, 100, 10_000) for name in "ab"})
    centres = rng.uniform(0, 100, 300).tolist()
    year = 365 * 86_400_000_000
    old = [PastQuery({"a": (at - 1, at + 1)}, 0) for at in centres]
    new = [PastQuery({"b": (at - 1, at + 1)}, year) for at in centres[:50]]
    probe = [PastQuery({"b": (at - 1, at + 1)}, year) for at in range(0, 100, 7)]
    model = KdTree("a", "b", buckets=16).fit(rows, old + new)
    assert objects_read(model, rows, probe) < 0.15


def test_a_stray_row_moves_nothing() -> None:
    """One meter at the end of the world does not make a bucket for itself."""
    rng = np.random.default_rng(5)
    rows = pa.table({"x": np.append(rng.normal(size=9_999), 1e300), "y": rng.normal(size=10_000)})
    found = sizes(KdTree("x", "y", buckets=16).fit(rows), rows)
    assert min(found) >= 400
    assert max(found) <= 850


def test_a_value_that_most_rows_have_does_not_stop_the_tree() -> None:
    rng = np.random.default_rng(6)
    often = np.where(rng.random(20_000) < 0.8, 5.0, rng.uniform(0, 10, 20_000))
    model = KdTree("often", buckets=16).fit(pa.table({"often": often}))
    found = sizes(model, pa.table({"often": often}))
    assert model.buckets >= 4
    assert min(found) > 0
    # All rows of one value are together, and nearly nobody else is with them.
    assert max(found) < 0.85 * 20_000


@pytest.mark.parametrize("value", [5.0, None, float("nan"), float("inf"), float("-inf")])
def test_a_constant_column_is_one_bucket(value: float | None) -> None:
    rows = pa.table({"x": pa.array([value] * 100, pa.float64())})
    model = KdTree("x", buckets=8).fit(rows)
    assert model.buckets == 1
    assert model.assign(rows).tolist() == [0] * 100


def test_a_constant_dimension_leaves_the_cuts_to_the_others() -> None:
    rng = np.random.default_rng(7)
    rows = pa.table({"same": np.full(4_000, 3.0), "x": rng.normal(size=4_000)})
    assert max(sizes(KdTree("same", "x", buckets=8).fit(rows), rows)) <= 4_000 / 8 * 1.3


def test_rows_without_a_place_gather() -> None:
    """Null and NaN are together at one end, so that they hide the bounds of few objects."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=8_000)
    x[:500] = np.nan
    column = pa.array(x, mask=np.arange(8_000) < 250)
    rows = pa.table({"x": column})
    model = KdTree("x", buckets=16).fit(rows)
    assert len(set(model.assign(rows.slice(0, 500)).tolist())) == 1
    assert len(set(model.assign(rows).tolist())) == 16


def test_infinities_are_ends() -> None:
    rows = pa.table({"x": [float("-inf")] * 50 + [1.0] * 50 + [float("inf")] * 50})
    model = KdTree("x", buckets=3).fit(rows)
    found = model.assign(rows)
    assert [len(set(found[at : at + 50].tolist())) for at in (0, 50, 100)] == [1, 1, 1]
    assert len(set(found.tolist())) == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([f"meter-{n:06d}" for n in range(1_000)]),
        pa.array([f"{n:04d}".encode() for n in range(1_000)]),
        pa.array([datetime(1960, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(1_000)], TIMESTAMP),
        pa.array([datetime(1969, 1, 1).date() + timedelta(days=n) for n in range(1_000)], pa.date32()),
        pa.array([Decimal(n) / 100 for n in range(1_000)], pa.decimal128(20, 2)),
        pa.array(range(-500, 500), pa.int64()),
    ],
    ids=["text", "bytes", "timestamp", "date", "decimal", "integer"],
)
def test_any_ordered_type_is_cut_in_its_order(column: pa.Array) -> None:
    rows = pa.table({"x": column})
    model = KdTree("x", buckets=10).fit(rows)
    found = model.assign(rows).tolist()
    assert found == sorted(found)
    assert max(sizes(model, rows)) <= 130


def test_texts_outside_of_what_the_sample_began_with() -> None:
    """In order, whatever comes later: before the common beginning, and after it."""
    model = KdTree("x", buckets=4).fit(pa.table({"x": [f"m-{n:03d}" for n in range(100)]}))
    later = pa.table({"x": ["", "a", "m", "m-", "m-000", "m-050", "m-099", "m-9", "m.", "n", None]})
    found = model.assign(later).tolist()
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == model.buckets - 1


def test_no_rows_at_all() -> None:
    nothing = pa.table({"x": pa.array([], pa.float64())})
    model = KdTree("x", buckets=8).fit(nothing)
    assert model.buckets == 1
    assert model.assign(pa.table({"x": [1.0, None]})).tolist() == [0, 0]


def test_a_grid_puts_the_rows_of_a_cell_together() -> None:
    model = Grid("lat", "lon", precision=1, buckets=1_000).fit(pa.table({"lat": [0.0], "lon": [0.0]}))
    rows = pa.table({"lat": [48.11, 48.19, 48.2, -0.01, 0.01], "lon": [2.31, 2.39, 2.3, 2.3, 2.3]})
    found = model.assign(rows).tolist()
    assert found[0] == found[1]
    assert len({found[0], found[2], found[3], found[4]}) == 4


def test_a_grid_spreads_cells_evenly() -> None:
    cells = np.arange(100)
    rows = pa.table({"lat": np.repeat(cells, 100) / 10 + 0.05, "lon": np.tile(cells, 100) / 10 + 0.05})
    found = sizes(Grid("lat", "lon", precision=1, buckets=16).fit(rows), rows)
    assert min(found) > 500
    assert max(found) < 750


def test_order_brings_near_rows_together() -> None:
    """A tenth of the rows, one after the other, spans far less than all of them do."""
    rng = np.random.default_rng(9)
    rows = pa.table({"x": rng.uniform(0, 1, 10_000), "y": rng.uniform(0, 1, 10_000)})
    ordered = rows.take(pa.array(KdTree("x", "y", buckets=4).fit(rows).order(rows)))
    areas = []
    for start in range(0, 10_000, 1_000):
        part = [ordered.column(name).slice(start, 1_000).to_numpy() for name in "xy"]
        areas.append(np.prod([column.max() - column.min() for column in part]))
    assert np.mean(areas) < 0.35


def test_levels_of_any_number_of_buckets() -> None:
    levels = Levels.halving(5)
    assert [level.tolist() for level in levels.levels] == [
        [0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1],
        [0, 1, 2, 3, 3],
        [0, 1, 2, 3, 4],
    ]
    assert [levels.at_most(n) for n in (0, 1, 2, 3, 4, 5, 99)] == [1, 1, 2, 2, 4, 5, 5]


def test_layouts_are_found_by_their_names() -> None:
    assert {"grid", "kdtree"} <= set(known_layouts())
    assert make_layout(parse_spec("kdtree:lat,lon,buckets=16")) == KdTree("lat", "lon", buckets=16)
    assert make_layout(parse_spec("grid:lat,lon,precision=2,buckets=16")) == Grid("lat", "lon", precision=2, buckets=16)
    with pytest.raises(InvalidValue, match="no layout 'spiral'"):
        make_layout(Spec("spiral", ("x",)))
    with pytest.raises(InvalidValue, match="depth"):
        make_layout(Spec("kdtree", ("x",), (("depth", 3),)))
    with pytest.raises(InvalidValue, match="buckets"):
        make_layout(Spec("kdtree", ("x",), (("buckets", 0),)))
    with pytest.raises(InvalidValue, match="precision"):
        make_layout(Spec("grid", ("x",), (("precision", 1.5),)))
    with pytest.raises(InvalidValue, match="split"):
        KdTree("x", split="never")


def test_a_stream_whose_layout_is_not_known_is_stored_as_rows_come() -> None:
    assert find_layout(None) is None
    assert find_layout(Spec("spiral", ("x",))) is None
    assert find_layout(Spec("kdtree", ("x",), (("buckets", 4),))) == KdTree("x", buckets=4)


def test_two_layouts_of_one_name_are_refused() -> None:
    class Other(KdTree):
        name = "grid"

    with pytest.raises(InvalidValue, match="two layouts"):
        register_layout(Other)


def test_a_grid_is_over_numbers() -> None:
    schema = pa.schema([("town", pa.string()), ("lat", pa.float64())])
    with pytest.raises(InvalidSchema, match="town"):
        Grid("lat", "town").check(schema)
    KdTree("lat", "town").check(schema)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"kdtree"',
        b'{"kind": "spiral"}',
        b'{"kind": ["kdtree"]}',
        b'{"kind": "kdtree"}',
        b'{"kind": "grid", "columns": [], "precision": 1, "buckets": 4, "low": [], "high": []}',
        b'{"kind": "grid", "columns": ["x"], "precision": 1, "buckets": 0, "low": [0], "high": [1]}',
    ],
)
def test_what_is_no_model_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no layout|not a"):
        decode_model(body)


@pytest.mark.parametrize(
    ("field", "value"), [("left", [0, 1, 2]), ("right", [9, 1, 2]), ("split", [7, -1, -1]), ("cut", [1.0])]
)
def test_a_tree_that_leads_nowhere_is_refused(field: str, value: list[float]) -> None:
    good = json.loads(KdTree("x", buckets=2).fit(pa.table({"x": [1.0, 2.0]})).encode())
    assert decode_model(json.dumps(good)).buckets == 2
    with pytest.raises(ValueError, match="not a"):
        decode_model(json.dumps({**good, field: value}))
