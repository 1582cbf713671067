"""Statistics taken from a footer are those that looking at the rows would give."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.archive.footer_stats import column_ranges, statistics_columns
from millpond.model.schema import TIMESTAMP
from millpond.model.stats import collect_stats

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=100)),
    (pa.binary(), st.binary(max_size=100)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (TIMESTAMP, st.integers(-(2**62), 2**62)),
]
columns = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind[0]), st.lists(st.none() | kind[1])))


def ranges(table: pa.Table, row_group_rows: int) -> Any:
    footers: list[pq.FileMetaData] = []
    pq.write_table(
        table,
        pa.BufferOutputStream(),
        row_group_size=row_group_rows,
        write_statistics=statistics_columns(table),
        metadata_collector=footers,
    )
    return column_ranges(table, footers[0])


@given(columns, st.integers(1, 10))
def test_a_footer_says_what_the_rows_say(column: tuple[pa.DataType, list[Any]], row_group_rows: int) -> None:
    """F5: bounds hold for every value; NaN leaves none; nulls are counted."""
    kind, values = column
    table = pa.table({"x": pa.array([*values, None], kind)})
    assert ranges(table, row_group_rows) == collect_stats(table)


@pytest.mark.parametrize("size", [63, 64, 65, 5_000, 100_000])
def test_long_text_is_bounded(size: int) -> None:
    """Beyond a few kilobytes the footer says nothing."""
    table = pa.table({"x": ["a" * size, "\U0010ffff" * size, None]})
    assert ranges(table, 10) == collect_stats(table)


def test_nan_in_one_row_group_leaves_no_bounds() -> None:
    table = pa.table({"x": [1.0, 2.0, math.nan, 3.0]})
    assert ranges(table, 2)["x"] == (None, None, 0)


def test_nested_columns_are_left_out_and_do_not_confuse() -> None:
    inner = pa.array([{"x": 5}, None], pa.struct([("x", pa.int64())]))
    table = pa.table({"s": inner, "x": [1, 2], "l": [[7], []]})
    assert ranges(table, 10) == {"x": (1, 2, 0)}


def test_a_float_within_a_nested_column_leaves_nested_columns_without_statistics() -> None:
    inner = pa.array([{"x": math.nan}, {"x": 1.0}], pa.struct([("x", pa.float64())]))
    assert statistics_columns(pa.table({"s": inner, "n": [1, 2]})) == ["n"]
    assert statistics_columns(pa.table({"l": [[7], []], "n": [1, 2]})) is True
