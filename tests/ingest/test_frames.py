"""pandas frames: NaN is null, the index is ignored, objects follow the rules of Python rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidRecord, TooLarge
from millpond.ingest.frames import frame_to_batch
from millpond.model.schema import TIMESTAMP
from millpond.testing import strategies as ponds


def fitted(values: Any, kind: pa.DataType, dtype: Any = None) -> list[Any]:
    frame = pd.DataFrame({"c": pd.Series(values, dtype=dtype)})
    found: list[Any] = frame_to_batch(pa.schema([("c", kind)]), frame).column(0).to_pylist()
    return found


@given(st.data())
def test_a_frame_of_objects_is_read_like_dicts_with_nan_as_null(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas(most=3))
    rows = data.draw(ponds.rows(schema))
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in schema.names})
    expected = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    if any(row[field.name] is None for row in expected for field in schema if not field.nullable):
        with pytest.raises(InvalidRecord, match="may not be null"):
            frame_to_batch(schema, frame)
        return
    ponds.assert_same_rows(frame_to_batch(schema, frame), pa.RecordBatch.from_pylist(expected, schema=schema))


def test_nan_inside_a_value_stays() -> None:
    kind = pa.struct([pa.field("x", pa.float32(), nullable=False)])
    frame = pd.DataFrame({"c": pd.Series([{"x": float("nan")}, None], dtype=object)})
    first, second = frame_to_batch(pa.schema([("c", kind)]), frame).column(0)
    assert (str(first["x"].as_py()), second.as_py()) == ("nan", None)


@pytest.mark.parametrize(
    ("values", "dtype", "kind", "expected"),
    [
        ([1, 2], None, pa.int8(), [1, 2]),
        ([1, None], None, pa.int64(), [1, None]),
        ([1, None], "Int32", pa.int16(), [1, None]),
        ([1.5, np.nan, np.inf], None, pa.float64(), [1.5, None, np.inf]),
        ([1, 2], "uint8", pa.float32(), [1.0, 2.0]),
        (["a", None, np.nan], None, pa.string(), ["a", None, None]),
        (["a", "b", "a"], "category", pa.string(), ["a", "b", "a"]),
        (["a", None], "string", pa.string(), ["a", None]),
        (["a"], "string[pyarrow]", pa.string(), ["a"]),
        ([True, None], None, pa.bool_(), [True, None]),
        ([True, False], "boolean", pa.bool_(), [True, False]),
        ([b"a", None], None, pa.binary(), [b"a", None]),
        ([date(2024, 1, 1), None], None, pa.date32(), [date(2024, 1, 1), None]),
        ([Decimal("1.5"), 2], None, pa.decimal128(4, 2), [Decimal("1.50"), Decimal("2.00")]),
        ([{"a": 1}, None], None, pa.map_(pa.string(), pa.int8()), [[("a", 1)], None]),
        ([{"a": 1}, {"a": None}], None, pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}]),
        ([[1, 2], None, []], None, pa.list_(pa.int8()), [[1, 2], None, []]),
        ([np.array([1.5])], None, pa.list_(pa.float32()), [[1.5]]),
        ([1, np.int64(2)], object, pa.int8(), [1, 2]),
        ([pd.Timestamp("2024-01-01"), pd.NaT], None, TIMESTAMP, [datetime(2024, 1, 1, tzinfo=UTC), None]),
        ([pd.Timestamp("2024-01-01", tz="Asia/Tokyo")], None, TIMESTAMP, [datetime(2023, 12, 31, 15, tzinfo=UTC)]),
        ([], None, pa.int8(), []),
    ],
)
def test_what_is_cast(values: Any, dtype: Any, kind: pa.DataType, expected: list[Any]) -> None:
    assert fitted(values, kind, dtype) == expected


@pytest.mark.parametrize(
    ("values", "dtype", "kind", "message"),
    [
        ([1.0, 2.5], None, pa.int64(), "row 1, column 'c': 2.5 is not an int64"),
        (["a", 3], None, pa.string(), "row 1, column 'c': 3 is not a string: expected str | null, got int"),
        (["1"], None, pa.int64(), "row 0, column 'c': '1' is not an int64"),
        ([True], None, pa.int64(), "row 0, column 'c': True is not an int64"),
        ([pd.Timestamp(1)], None, TIMESTAMP, "row 0, column 'c': Timestamp("),
        ([1j], None, pa.float64(), "column 'c': complex128 is not taken for double"),
        ([pd.Period("2024")], None, pa.int64(), "row 0, column 'c': "),
        ([pd.Timedelta("1s")], None, pa.int64(), "row 0, column 'c': Timedelta("),
        (["\ud800"], None, pa.string(), r"row 0, column 'c': '\ud800' is not a string"),
    ],
)
def test_what_is_refused_is_named(values: Any, dtype: Any, kind: pa.DataType, message: str) -> None:
    with pytest.raises(InvalidRecord) as failure:
        fitted(values, kind, dtype)
    assert failure.value.message.startswith(message)


SCHEMA = pa.schema([pa.field("vid", pa.string(), nullable=False), ("temp", pa.float64())])


def test_columns_by_name_and_never_the_index() -> None:
    frame = pd.DataFrame({"temp": [1.5], "vid": ["a"]}, index=pd.Index(["x"], name="key"))
    assert frame_to_batch(SCHEMA, frame).to_pylist() == [{"vid": "a", "temp": 1.5}]
    assert frame_to_batch(SCHEMA, frame[["vid"]]).to_pylist() == [{"vid": "a", "temp": None}]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"vid": ["a"], "tmep": [1]}), "row 0, column 'tmep': the stream has no such column"),
        (pd.DataFrame({"vid": ["a"], 7: [1]}), "row 0, column 7: the stream has no such column"),
        (pd.DataFrame({"temp": [1]}), "row 0, column 'vid': missing"),
        (pd.DataFrame({"vid": [None, "a"]}), "row 0, column 'vid': None, but the column may not be null"),
        (pd.DataFrame([["a", "b"]], columns=["vid", "vid"]), "columns ['vid', 'vid'] name one twice"),
        (pd.DataFrame(index=[1, 2]), "row 0, column 'vid': missing"),
    ],
)
def test_frames_of_another_shape_are_named(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InvalidRecord) as failure:
        frame_to_batch(SCHEMA, frame)
    assert failure.value.message.startswith(message)


def test_a_frame_without_columns_is_rows_of_nulls_where_that_is_allowed() -> None:
    assert frame_to_batch(pa.schema([("a", pa.int8())]), pd.DataFrame(index=[1, 2])).to_pylist() == [{"a": None}] * 2


def test_a_frame_that_changes_afterwards_does_not_change_what_was_appended() -> None:
    frame = pd.DataFrame({"vid": ["a", "b"], "temp": [1.0, 2.0]})
    batch = frame_to_batch(SCHEMA, frame)
    frame.loc[0, "temp"] = 99.0
    frame["temp"].to_numpy()[1] = 99.0
    assert batch.column("temp").to_pylist() == [1.0, 2.0]


def test_the_bound_on_bytes() -> None:
    with pytest.raises(TooLarge, match=r"at most 1\.0 KB"):
        frame_to_batch(SCHEMA, pd.DataFrame({"vid": ["a" * 100] * 100}), bytes_max=1_000)
