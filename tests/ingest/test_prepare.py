"""`Ingest.prepare`: every form of append, all or nothing, up to the parts that the log takes."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidRecord, MillpondError, TooLarge
from millpond.ingest import Ingest
from millpond.ingest.decode import ROWS_ENCODED_MAX
from millpond.log.engine import Part
from millpond.model.definition import StreamDefinition
from millpond.model.rows import codec_of
from millpond.model.schema import RAW_EVENTS
from millpond.testing import strategies as ponds

SCHEMA = pa.schema([pa.field("vid", pa.string(), nullable=False), ("temp", pa.float64()), ("n", pa.int32())])
NOW = 1_700_000_000_000_017
NOW_TIME = datetime(2023, 11, 14, 22, 13, 20, 17, tzinfo=UTC)


def meters(schema: pa.Schema = SCHEMA, streamlets: int = 1, **more: Any) -> Ingest:
    return Ingest(StreamDefinition(2, "grid/meters", (schema,), streamlets=streamlets, **more))


def raw() -> Ingest:
    return Ingest(StreamDefinition(3, "grid/raw", (RAW_EVENTS,), raw=True))


def rows_of(parts: list[Part], schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    found = []
    for part in parts:
        batch = part.batch if part.batch is not None else codec_of(schema).decode([part.encoded or b""])
        assert batch.schema.equals(schema, check_metadata=True)
        assert batch.num_rows == part.rows
        found += batch.to_pylist()
    return found


ROWS = [{"vid": "a", "temp": 1.5, "n": 1}, {"vid": "b", "temp": None, "n": -2}]


@pytest.mark.parametrize(
    "form",
    [
        ROWS,
        tuple(ROWS),
        pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA),
        pa.Table.from_pylist(ROWS, schema=SCHEMA),
        pa.Table.from_pylist(ROWS).select(["n", "temp", "vid"]),
        pd.DataFrame(ROWS),
    ],
    ids=lambda form: type(form).__name__,
)
def test_all_forms_of_an_append_give_the_same_rows(form: Any) -> None:
    assert rows_of(meters().prepare(form, NOW)) == ROWS


def test_a_single_row() -> None:
    (part,) = meters().prepare(ROWS[0], NOW)
    assert part.encoded is not None
    assert rows_of([part]) == ROWS[:1]


@pytest.mark.parametrize("count", [ROWS_ENCODED_MAX, ROWS_ENCODED_MAX + 1, 25_000])
def test_a_few_rows_stay_encoded_and_many_become_a_batch(count: int) -> None:
    rows = [{"vid": f"m{n}", "temp": None, "n": n} for n in range(count)]
    (part,) = meters().prepare(rows, NOW)
    assert (part.batch is None) == (count <= ROWS_ENCODED_MAX)
    assert rows_of([part]) == rows


@given(st.data())
def test_rows_mean_the_same_however_many_they_are(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas(most=3))
    rows = data.draw(ponds.rows(schema, least=1, most=4))
    few = meters(schema).prepare(rows, NOW)
    many = meters(schema).prepare(rows * ROWS_ENCODED_MAX + rows, NOW)
    assert ponds.comparable(rows_of(many, schema)[: len(rows)]) == ponds.comparable(rows_of(few, schema))


@pytest.mark.parametrize("nothing", [[], (), pa.RecordBatch.from_pylist([], schema=SCHEMA), pd.DataFrame({"vid": []})])
def test_an_empty_append_is_allowed_and_has_no_parts(nothing: Any) -> None:
    assert meters().prepare(nothing, NOW) == []


@pytest.mark.parametrize("wrong", [None, 5, "text", b"bytes", object(), {"vid"}, iter(ROWS), np.array([1])])
def test_what_is_no_form_of_append_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRecord) as failure:
        meters().prepare(wrong, NOW)
    assert failure.value.message.startswith(f"cannot append a {type(wrong).__name__}")
    assert failure.value.hint.startswith("append a dict, a list of dicts")


@pytest.mark.parametrize("count", [1, 20, 100, 30_000])
def test_one_wrong_row_refuses_all_of_them(count: int) -> None:
    rows = [{"vid": f"m{n}"} for n in range(count)]
    rows[count // 2] = {"vid": "m", "n": "x"}
    with pytest.raises(InvalidRecord, match=f"row {count // 2}, column 'n': 'x' is not an int32"):
        meters(streamlets=4, keys=("vid",)).prepare(rows, NOW)
    rows[count // 2] = {"vid": "\ud800"}
    with pytest.raises(InvalidRecord, match=f"row {count // 2}, column 'vid'"):
        meters(streamlets=4, keys=("vid",)).prepare(rows, NOW)


def test_what_was_read_can_be_appended_once_the_system_columns_are_left_out() -> None:
    read = pa.table(
        {"vid": ["a"], "_streamlet": [0], "_offset": [1], "_ingest_time": [datetime(2024, 1, 1, tzinfo=UTC)]}
    )
    with pytest.raises(InvalidRecord, match="set by Millpond") as failure:
        meters().prepare(read, NOW)
    assert failure.value.hint == "leave out _streamlet, _offset, _ingest_time when appending what was read"


@pytest.mark.parametrize(
    "rows",
    [
        {"vid": "x" * 2_000},
        [{"vid": "x" * 200}] * 10,
        [{"vid": "x" * 20}] * 100,
        [{"vid": ""}] * 20_000,
        pa.table({"vid": ["x" * 200] * 10}),
    ],
)
def test_one_append_is_bounded(rows: Any) -> None:
    """I8: the error says which bound."""
    definition = StreamDefinition(2, "grid/meters", (SCHEMA,))
    with pytest.raises(TooLarge, match=r"at most 1\.0 KB") as failure:
        Ingest(definition, bytes_max=1_000).prepare(rows, NOW)
    assert failure.value.hint == "split it into several appends"


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (pa.string(), lambda text: text),
        (pa.binary(), str.encode),
        (pa.list_(pa.string()), lambda text: ["", text]),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), lambda text: {"b": text}),
        (pa.map_(pa.string(), pa.string()), lambda text: {"k": text}),
        (pa.map_(pa.string(), pa.string()), lambda text: {text: None}),
    ],
)
def test_one_text_many_times_is_counted_as_often_before_it_is_copied(kind: pa.DataType, shape: Any) -> None:
    value = shape("x" * 10_000_000)
    rows = [{"c": None}] * 10 + [{"c": value}] * 10_000
    with pytest.raises(TooLarge, match=r"an append of 100\.0 GB or more"):
        meters(pa.schema([("c", kind)])).prepare(rows, NOW)


def test_appends_from_many_threads_take_turns_fairly() -> None:
    ingest = meters(streamlets=4)
    seen: list[int] = []

    def append() -> None:
        for _ in range(250):
            seen.extend(part.streamlet for part in ingest.prepare(ROWS[0], NOW))

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(seen) == {0: 250, 1: 250, 2: 250, 3: 250}


DEFAULTS = {"time": NOW_TIME, "headers": []}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"\xff", {**DEFAULTS, "body": b"\xff"}),
        ("é", {**DEFAULTS, "body": "é".encode()}),
        (bytearray(b"x"), {**DEFAULTS, "body": b"x"}),
        ({"body": "x"}, {**DEFAULTS, "body": b"x"}),
        ({"body": "", "headers": None, "time": None}, {**DEFAULTS, "body": b""}),
        ({"body": b"x", "headers": {"k": "v"}}, {**DEFAULTS, "headers": [("k", "v")], "body": b"x"}),
        (
            {"body": b"x", "time": datetime(2024, 1, 1)},
            {**DEFAULTS, "time": datetime(2024, 1, 1, tzinfo=UTC), "body": b"x"},
        ),
    ],
)
def test_raw_events_are_a_body_with_headers_and_a_time(event: Any, expected: dict[str, Any]) -> None:
    assert rows_of(raw().prepare(event, NOW), RAW_EVENTS) == [expected]
    assert rows_of(raw().prepare([event] * 40, NOW), RAW_EVENTS) == [expected] * 40


@pytest.mark.parametrize(
    "form",
    [
        pa.table({"body": [b"x", b""]}),
        pa.table({"body": [b"x", b""], "time": pa.nulls(2), "headers": pa.nulls(2)}),
        pd.DataFrame({"body": [b"x", b""]}),
        pd.DataFrame({"body": [b"x", b""], "headers": [{}, None]}),
    ],
)
def test_raw_events_in_columns_have_the_same_defaults(form: Any) -> None:
    assert rows_of(raw().prepare(form, NOW), RAW_EVENTS) == [{**DEFAULTS, "body": b"x"}, {**DEFAULTS, "body": b""}]


def test_raw_headers_that_are_there_stay() -> None:
    headers = pa.array([None, [("a", "1"), ("b", None)], [], [("c", "2")]], RAW_EVENTS.field("headers").type)
    table = pa.table({"body": [b"x"] * 5, "headers": pa.concat_arrays([headers[:1], headers])}).slice(1)
    found = [row["headers"] for row in rows_of(raw().prepare(table, NOW), RAW_EVENTS)]
    assert found == [[], [("a", "1"), ("b", None)], [], [("c", "2")]]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"headers": {}}, "row 0, column 'body': missing"),
        ({"body": None}, "row 0, column 'body': None"),
        ({"body": 5}, "row 0, column 'body': 5 is not a binary"),
        ("\ud800", r"row 0, column 'body': '\ud800' is not a binary"),
        ({"body": "x", "headers": {"k": 1}}, "row 0, column 'headers': {'k': 1} is not a map<string, string>"),
        ({"body": "x", "key": "y"}, "row 0, column 'key': the stream has no such column"),
        ([b"x", 7], "row 1 is not a dict: 7"),
        (pa.table({"body": [b"x", None]}), "row 1, column 'body': None"),
        (pa.table({"time": [1]}), "row 0, column 'body': missing"),
        (7, "cannot append a int: 7"),
    ],
)
def test_raw_events_that_are_none_are_named(event: Any, message: str) -> None:
    with pytest.raises(InvalidRecord) as failure:
        raw().prepare(event, NOW)
    assert failure.value.message.startswith(message)


@given(st.data())
def test_any_column_for_any_other_fits_or_is_refused_with_an_error_of_ours(data: st.DataObject) -> None:
    """Types that do not match are refused or cast; whatever happens, never another error than ours."""
    schema = data.draw(ponds.schemas(most=2))
    other = pa.schema([(name, data.draw(ponds.types())) for name in schema.names])
    table = data.draw(ponds.tables(other))
    for form in (table, table.to_pandas(timestamp_as_object=True, types_mapper=None)):
        try:
            parts = meters(schema).prepare(form, NOW)
        except MillpondError:
            continue
        assert len(rows_of(parts, schema)) == table.num_rows
