"""The proof of a rewrite: the same for the same rows however they lie, and another for any other rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.archive.proof import Proof, prove, prove_places

_MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)
# A type, with values that must all be told apart.
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [0, 1, -1, None]),
    (pa.uint64(), [0, 2**64 - 1, None]),
    (pa.bool_(), [True, False, None]),
    (pa.float32(), [0.0, -0.0, 1.5, None]),
    (pa.float64(), [0.0, -0.0, float("inf"), float("nan"), None]),
    (pa.decimal128(30, 2), [Decimal("1.10"), Decimal("-1.10"), Decimal(10**20), None]),
    (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [_MOMENT, None]),
    (pa.string(), ["", "a", "b", "aa", "a\0", None]),
    (pa.large_string(), ["", "a", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", None]),
    (pa.binary(3), [b"abc", b"abd", None]),
    (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [None], None]),
    (pa.list_(pa.int32(), 2), [[1, 2], [2, 1], None]),
    (pa.list_(pa.list_(pa.string())), [[["a"], ["b"]], [["a", "b"]], [["a", "b"], []], [[]], [], None]),
    (pa.struct([("x", pa.int32()), ("y", pa.int32())]), [{"x": 1, "y": 2}, {"x": 2, "y": 1}, {"x": 1}, None]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 2)], [("b", 1)], [], None]),
]


def table(kind: pa.DataType, values: list[Any], first: int = 0) -> pa.Table:
    system = {
        "_streamlet": pa.array([0] * len(values), pa.int32()),
        "_offset": pa.array(np.arange(first, first + len(values))),
    }
    return pa.table({"value": pa.array(values, kind)} | system)


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_every_value_leaves_its_mark(kind: pa.DataType, values: list[Any]) -> None:
    found = [prove(table(kind, [value])).contents for value in values]
    assert len(set(found)) == len(values)


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_order_and_grouping_leave_none(kind: pa.DataType, values: list[Any]) -> None:
    rows = table(kind, values * 3)
    backwards = rows.take(list(range(rows.num_rows))[::-1])
    pieces = [rows.slice(at, 2) for at in range(0, rows.num_rows, 2)]
    assert prove(rows) == prove(backwards) == sum(map(prove, pieces), Proof()) == prove(pa.concat_tables(pieces[::-1]))


@given(st.lists(st.integers(0, 5), min_size=1), st.data())
def test_a_row_that_is_lost_doubled_or_changed_is_seen(values: list[int], data: st.DataObject) -> None:
    rows = table(pa.int64(), values)
    at = data.draw(st.integers(0, len(values) - 1))
    others = pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])
    whole = prove(rows)
    assert prove(others) != whole
    assert prove(pa.concat_tables([rows, rows.slice(at, 1)])) != whole
    changed = pa.concat_tables([others, table(pa.int64(), [values[at] + 1], at)])
    assert prove(changed).contents != whole.contents
    assert prove(changed).places == whole.places
    moved = pa.concat_tables([others, table(pa.int64(), [values[at]], len(values))])
    assert prove(moved).places != whole.places


def test_places_alone_can_be_proven() -> None:
    rows = table(pa.string(), ["a", "b"])
    assert prove_places(rows) == Proof(2, prove(rows).places, 0)
