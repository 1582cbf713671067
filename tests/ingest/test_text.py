"""Text in and out: whatever a stream holds can be written, read back unchanged, and a mistake is named by its line."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidRecord, InvalidValue, MillpondError, TooLarge
from millpond.ingest import Ingest, text
from millpond.ingest.json_rows import JsonRows
from millpond.model.definition import StreamDefinition
from millpond.model.rows import codec_of
from millpond.model.schema import RAW_EVENTS, SYSTEM_FIELDS, TIMESTAMP
from millpond.testing import strategies as ponds

SCHEMA = pa.schema(
    [
        pa.field("vid", pa.string(), nullable=False),
        ("temp", pa.float64()),
        ("small", pa.float32()),
        ("n", pa.int16()),
        ("at", TIMESTAMP),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 2)),
        ("ok", pa.bool_()),
        ("blob", pa.binary()),
        ("blobs", pa.list_(pa.binary())),
        ("pos", pa.struct([("lat", pa.float64()), ("raw", pa.binary())])),
        ("attrs", pa.map_(pa.string(), pa.int8())),
        ("counts", pa.map_(pa.int8(), pa.string())),
    ]
)


def stream(schema: pa.Schema = SCHEMA, **more: Any) -> StreamDefinition:
    return StreamDefinition(2, "grid/meters", (schema,), **more)


RAW = stream(RAW_EVENTS, raw=True)


def read(form: str, data: bytes, definition: StreamDefinition) -> pa.Table:
    batches = list(text.reader_of(form, io.BytesIO(data), definition))
    return pa.Table.from_batches(batches, schema=batches[0].schema if batches else definition.schema)


def written(form: str, batches: list[pa.RecordBatch], schema: pa.Schema) -> bytes:
    out = io.BytesIO()
    with text.writer_of(form, out, schema) as writer:
        for batch in batches:
            writer.write(batch)
    assert not out.closed
    return out.getvalue()


@pytest.mark.parametrize("form", text.FORMS)
@given(st.data())
def test_what_is_written_is_read_back(form: str, data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    batches = data.draw(st.lists(ponds.batches(schema, most=6), max_size=3))
    found = read(form, written(form, batches, schema), stream(schema))
    ponds.assert_same_rows(found, pa.Table.from_batches(batches, schema=schema))


@given(st.data())
def test_lines_are_json_for_everyone_else(data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    batch = data.draw(ponds.batches(schema))
    lines = written("ndjson", [batch], schema).decode().splitlines() if batch.num_rows else []

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert len(rows) == batch.num_rows
    for row in rows:
        assert {name.removesuffix("_base64") for name in row} == {n.removesuffix("_base64") for n in schema.names}


def test_no_other_forms() -> None:
    with pytest.raises(InvalidValue, match="no form of records 'xml'") as failure:
        text.reader_of("xml", io.BytesIO(), RAW)
    assert failure.value.hint == "one of ndjson, csv, arrow"
    with pytest.raises(InvalidValue):
        text.writer_of("xml", io.BytesIO(), SCHEMA)


ROW: dict[str, Any] = {
    "vid": 'a"\n',
    "temp": float("-inf"),
    "small": float("nan"),
    "n": -7,
    "at": datetime(2024, 2, 29, 12, 0, 0, 17, tzinfo=UTC),
    "day": date(2024, 2, 29),
    "price": Decimal("12345678901234567.89"),
    "ok": True,
    "blob": b"\xff",
    "blobs": [b"text", None],
    "pos": {"lat": 1.5, "raw": b"\xfe"},
    "attrs": [("k", 1)],
    "counts": [(1, "x")],
}


def test_the_form_of_every_type_in_json() -> None:
    (line,) = written("ndjson", [pa.RecordBatch.from_pylist([ROW], schema=SCHEMA)], SCHEMA).splitlines()
    assert line.decode() == (
        '{"vid":"a\\"\\n","temp":"-Infinity","small":"NaN","n":-7,"at":"2024-02-29T12:00:00.000017Z",'
        '"day":"2024-02-29","price":"12345678901234567.89","ok":true,"blob_base64":"/w==","blobs":["text",null],'
        '"pos":{"lat":1.5,"raw_base64":"/g=="},"attrs":{"k":1},"counts":[[1,"x"]]}'
    )


def test_the_form_of_every_type_in_csv() -> None:
    head, line = written("csv", [pa.RecordBatch.from_pylist([ROW | {"vid": "a"}], schema=SCHEMA)], SCHEMA).splitlines()
    assert head.decode() == (
        '"vid","temp","small","n","at","day","price","ok","blob_base64","blobs_base64","pos","attrs","counts"'
    )
    assert line.decode() == (
        '"a",-inf,nan,-7,"2024-02-29T12:00:00.000017Z",2024-02-29,12345678901234567.89,true,"/w==",'
        '"[""dGV4dA=="",null]","{""lat"":1.5,""raw_base64"":""/g==""}","{""k"":1}","[[1,""x""]]"'
    )


def test_system_columns_are_written_too() -> None:
    schema = pa.schema([("vid", pa.string()), *SYSTEM_FIELDS])
    row = {"vid": "a", "_streamlet": 1, "_offset": 2, "_ingest_time": datetime(2024, 1, 1, tzinfo=UTC)}
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    assert json.loads(written("ndjson", [batch], schema))["_ingest_time"] == "2024-01-01T00:00:00.000000Z"
    assert written("csv", [batch], schema).splitlines()[1] == b'"a",1,2,"2024-01-01T00:00:00.000000Z"'


@pytest.mark.parametrize(
    ("column", "value", "becomes"),
    [
        ("temp", 3, 3.0),
        ("temp", "NaN", "nan"),
        ("temp", "Infinity", "inf"),
        ("small", "-Infinity", "-inf"),
        ("at", "2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("at", "2024-02-29T12:00:00+02:00", datetime(2024, 2, 29, 10, tzinfo=UTC)),
        ("at", "2024-02-29 12:00:00.5", datetime(2024, 2, 29, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("at", "2024-02-29T12:00:00.123456000Z", datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC)),
        ("at", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("price", "1.5", Decimal("1.50")),
        ("price", 2, Decimal("2.00")),
        ("price", 1.1, Decimal("1.10")),
        ("price", "-1e3", Decimal("-1000.00")),
        ("blob", "é", "é".encode()),
        ("blob_base64", "/w==", b"\xff"),
        ("blobs_base64", ["/w==", None], [b"\xff", None]),
        ("attrs", [["k", 1], ["k", 2]], [("k", 1), ("k", 2)]),
        ("pos", {"raw_base64": "/w=="}, {"lat": None, "raw": b"\xff"}),
        ("pos", {}, {"lat": None, "raw": None}),
        ("blob_base64", None, None),
    ],
)
def test_what_json_may_say(column: str, value: Any, becomes: Any) -> None:
    line = json.dumps({"vid": "a", column: value}).encode()
    row = read("ndjson", line, stream()).to_pylist()[0]
    assert ponds.comparable(row[column.removesuffix("_base64")]) == (
        becomes if isinstance(becomes, str) else ponds.comparable(becomes)
    )
    one = codec_of(SCHEMA).to_batch([JsonRows(SCHEMA).one(line)]).to_pylist()[0]
    assert ponds.comparable(one) == ponds.comparable(row)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 3 is not JSON: Input data was truncated"),
        (b"{} x", "line 3 is not JSON: JSON is malformed"),
        (b'{"vid": "\xff"}', "line 3 is not JSON: 'utf-8' codec can't decode"),
        (rb'{"vid": "\ud800"}', "line 3 is not JSON: "),
        (b'{"vid": "a", "n": ' + b"[" * 100_000, "line 3 is not JSON: "),
        (b"[1]", "line 3 is not a dict: [1]"),
        (b"{}", "line 3, column 'vid': missing"),
        (b'{"vid": null}', "line 3, column 'vid': None, but the column may not be null"),
        (b'{"vid": "a", "nn": 1}', "line 3, column 'nn': the stream has no such column"),
        (b'{"vid": "a", "_offset": 1}', "line 3, column '_offset': set by Millpond"),
        (b'{"vid": "a", "n": 40000}', "line 3, column 'n': 40000 is not an int16: expected int <= 32767"),
        (b'{"vid": "a", "n": 1.0}', "line 3, column 'n': 1.0 is not an int16: expected int | null, got float"),
        (b'{"vid": "a", "temp": "x"}', "line 3, column 'temp': 'x' is not a double: expected a number or one of NaN"),
        (b'{"vid": "a", "temp": 1e999}', "line 3"),
        (b'{"vid": "a", "small": 1e39}', "line 3, column 'small': 1e+39 is not a float: too large for a float32"),
        (b'{"vid": "a", "at": 5}', "line 3, column 'at': 5 is not a timestamp[us, tz=UTC]: expected an ISO 8601 time"),
        (b'{"vid": "a", "at": "now"}', "line 3, column 'at': 'now' is not a timestamp[us, tz=UTC]: not an ISO 8601"),
        (b'{"vid": "a", "at": "2024-01-01T00:00:00.1234567Z"}', "line 3, column 'at': '2024-01-01T00:00:00.1234567Z'"),
        (b'{"vid": "a", "at": "0001-01-01T00:00:00+01:00"}', "line 3, column 'at': "),
        (b'{"vid": "a", "day": "x"}', "line 3, column 'day': 'x' is not a date32[day]"),
        (
            b'{"vid": "a", "price": "1_000"}',
            "line 3, column 'price': '1_000' is not a decimal128(20, 2): not a decimal",
        ),
        (b'{"vid": "a", "price": "NaN"}', "line 3, column 'price': 'NaN' is not a decimal128(20, 2)"),
        (b'{"vid": "a", "price": "1.555"}', "line 3, column 'price': '1.555' is not a decimal128(20, 2): does not fit"),
        (b'{"vid": "a", "price": 12345678901234567.89}', "line 3, column 'price': 1.2345678901234568e+16 is not a"),
        (b'{"vid": "a", "price": "1e999999999"}', "line 3, column 'price': "),
        (b'{"vid": "a", "blob": 5}', "line 3, column 'blob': 5 is not a binary: expected text, got int"),
        (b'{"vid": "a", "blob_base64": "%"}', "line 3, column 'blob_base64': '%' is not a binary: not base64"),
        (b'{"vid": "a", "blob_base64": "\xc3\xa9"}', "line 3, column 'blob_base64': 'é' is not a binary: not base64"),
        (b'{"vid": "a", "blob": "", "blob_base64": ""}', "line 3: 'blob' and 'blob_base64' are one column"),
        (b'{"vid": "a", "pos": {"raw": "", "raw_base64": ""}}', "line 3, column 'pos': {'raw': '', 'raw_base64': ''}"),
        (b'{"vid": "a", "counts": {"1": "x"}}', "line 3, column 'counts': {'1': 'x'} is not a map<int8, string>"),
    ],
)
def test_a_line_that_does_not_fit_is_named(line: bytes, message: str) -> None:
    good = b'{"vid": "a"}'
    with pytest.raises(InvalidRecord) as failure:
        read("ndjson", b"\n".join([good, b"", line, good]), stream())
    assert failure.value.message.startswith(message)
    assert failure.value.hint


def test_lines_are_counted_over_all_batches() -> None:
    good = b'{"vid": "a"}\n'
    batches = text.read_ndjson(io.BytesIO(good * 200_000 + b'{"vid": 5}\n'), stream(), batch_rows=1_000)
    for _ in range(100):
        assert next(batches).num_rows <= 1_000
    with pytest.raises(InvalidRecord, match="line 200001, column 'vid'"):
        list(batches)


def test_windows_line_ends_empty_lines_a_byte_order_mark_and_no_end_of_line() -> None:
    data = b'\xef\xbb\xbf{"vid":"a"}\r\n\r\n  \n{"vid":"b"}\n{"vid":"c"}'
    assert read("ndjson", data, stream()).column("vid").to_pylist() == ["a", "b", "c"]


def test_a_line_in_the_middle_of_two_reads() -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.left = b'{"vid":"abc"}\n{"vid":"def"}\n'

        def read(self, size: int = -1) -> bytes:
            piece, self.left = self.left[:5], self.left[5:]
            return piece

    found = [batch.column("vid").to_pylist() for batch in text.read_ndjson(Slow(), stream())]  # type: ignore[arg-type]
    assert found == [["abc"], ["def"]]


def test_a_slow_pipe_is_followed_without_delay() -> None:
    inward, outward = os.pipe()
    got: list[str] = []
    arrived = threading.Event()

    def follow() -> None:
        with os.fdopen(inward, "rb") as source:
            for batch in text.read_ndjson(source, stream()):
                got.extend(batch.column("vid").to_pylist())
                arrived.set()

    reader = threading.Thread(target=follow)
    reader.start()
    os.write(outward, b'{"vid":"a"}\n')
    assert arrived.wait(30)
    assert got == ["a"]
    os.write(outward, b'{"vid":"b"}')
    os.close(outward)
    reader.join(30)
    assert got == ["a", "b"]


def test_a_file_without_newlines_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LINE_BYTES_MAX", 10_000_000)
    with pytest.raises(TooLarge, match=r"a line of over 10\.0 MB"):
        read("ndjson", b"x" * 12_000_000, stream())


def test_json_arrays_and_single_objects() -> None:
    rows = JsonRows(SCHEMA)
    assert [row[0] for row in rows.array(b'[{"vid":"a"},{"vid":"b","temp":"NaN"}]')] == ["a", "b"]
    assert [row[0] for row in rows.array(b'{"vid":"a"}')] == ["a"]
    assert rows.array(b"[]") == []
    with pytest.raises(InvalidRecord, match="row 1, column 'vid'"):
        rows.array(b'[{"vid":"a"},{"vid":5}]')
    with pytest.raises(InvalidRecord, match="the text is not JSON"):
        rows.array(b'[{"vid":"a"},')


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"vid,temp\na,1.5\nb,\n", [{"vid": "a", "temp": 1.5}, {"vid": "b"}]),
        (b'"temp","vid"\r\n1,"a ""q"", \nz"\r\n', [{"vid": 'a "q", \nz', "temp": 1.0}]),
        (b"\xef\xbb\xbfvid\na\n", [{"vid": "a"}]),
        (b'vid\n""\n', [{"vid": ""}]),
        (b"vid,temp,n\n\na,nan,1\n\n", [{"vid": "a", "temp": float("nan"), "n": 1}]),
        (b"vid,temp\na,Infinity", [{"vid": "a", "temp": float("inf")}]),
        (b"vid,at\na,2024-02-29\n", [{"vid": "a", "at": datetime(2024, 2, 29, tzinfo=UTC)}]),
        (b"vid,at\na,2024-02-29 12:00\n", [{"vid": "a", "at": datetime(2024, 2, 29, 12, tzinfo=UTC)}]),
        (b"vid,at\na,2024-02-29T12:00:00-01:30\n", [{"vid": "a", "at": datetime(2024, 2, 29, 13, 30, tzinfo=UTC)}]),
        (
            b"vid,at\na,2024-02-29T12:00:00.000001000Z\n",
            [{"vid": "a", "at": datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)}],
        ),
        (b"vid,blob\na,text\n", [{"vid": "a", "blob": b"text"}]),
        (b"vid,blob_base64\na,/w==\n", [{"vid": "a", "blob": b"\xff"}]),
        (b'vid,attrs\na,"{""k"":1}"\nb,\n', [{"vid": "a", "attrs": [("k", 1)]}, {"vid": "b"}]),
        (
            b"vid,price,ok,day\na,1.5,true,2024-02-29\n",
            [{"vid": "a", "price": Decimal("1.50"), "ok": True, "day": date(2024, 2, 29)}],
        ),
        (b"vid,temp\n", []),
        (b"vid,temp", []),
    ],
)
def test_what_csv_may_say(data: bytes, expected: list[dict[str, Any]]) -> None:
    ponds.assert_same_rows(read("csv", data, stream()), pa.Table.from_pylist(expected, schema=SCHEMA))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no header"),
        (b"\n", "there is no header"),
        (b"\xff\n", "the header is not CSV"),
        (b"vid,tmep\n", "the header, column 'tmep': the stream has no such column"),
        (b"vid,_offset\n", "the header, column '_offset': set by Millpond"),
        (b"vid,vid\na,b\n", "the header names column 'vid' twice"),
        (b"vid,blob,blob_base64\na,b,c\n", "the header names column 'blob' twice"),
        (b"temp\n1\n", "record 1, column 'vid': missing"),
        (b"vid,temp\na,1\nb\n", "after record 0: CSV parse error: "),
        (b"vid,temp\na,1\nb,x\n", "record 2, column 'temp': 'x' is not a double"),
        (b"vid,temp\na,1\n,1\n", "record 2, column 'vid': None, but the column may not be null"),
        (b"vid,temp\na,1e999\n", "record 1, column 'temp': '1e999' is not a double: too large"),
        (b"vid,small\na,1e39\n", "record 1, column 'small': 1e+39 is not a float: too large"),
        (b"vid,n\na,1\na,1.0\n", "record 2, column 'n': '1.0' is not an int16"),
        (b"vid,n\na,40000\n", "record 1, column 'n': '40000' is not an int16"),
        (b"vid,at\na,soon\n", "record 1, column 'at': 'soon' is not a timestamp[us, tz=UTC]"),
        (b"vid,at\na,2024-01-01T00:00:00.0000001Z\n", "record 1, column 'at': '2024-01-01T00:00:00.0000001Z'"),
        (b"vid,price\na,1.555\n", "record 1, column 'price': '1.555' is not a decimal128(20, 2)"),
        (b"vid,blob_base64\na,%\n", "record 1, column 'blob_base64': '%' is not a binary"),
        (b'vid,attrs\na,"{"\n', "record 1, column 'attrs': '{' is not a map<string, int8>"),
        (b'vid,attrs\na,"{""k"":""x""}"\n', "record 1, column 'attrs': '{\"k\":\"x\"}' is not a map<string, int8>"),
        (b"vid,ok\na,yes\n", "record 1, column 'ok': 'yes' is not a bool"),
        (b"vid\n\xff\n", "after record 0: "),
    ],
)
def test_csv_that_does_not_fit_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRecord) as failure:
        read("csv", data, stream())
    assert failure.value.message.startswith(message)
    assert failure.value.hint


def test_csv_records_are_counted_over_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.ingest import csv_text

    monkeypatch.setattr(csv_text, "BLOCK_BYTES", 1_000)
    lines = [f"meter-{number},{number}" for number in range(1_000)]
    batches = list(text.read_csv(io.BytesIO("\n".join(["vid,temp", *lines]).encode()), stream()))
    assert len(batches) > 5
    assert sum(batch.num_rows for batch in batches) == 1_000
    lines[777] = "meter-777,x"
    with pytest.raises(InvalidRecord, match="record 778, column 'temp': 'x'"):
        list(text.read_csv(io.BytesIO("\n".join(["vid,temp", *lines]).encode()), stream()))


@pytest.mark.parametrize("data", [b"", b"garbage that is no arrow stream", written("arrow", [], SCHEMA)[:40]])
def test_what_is_no_arrow_stream(data: bytes) -> None:
    with pytest.raises(InvalidRecord, match="after 0 rows: not an Arrow stream"):
        read("arrow", data, stream())


def test_arrow_is_cast_and_counted() -> None:
    schema = pa.schema([("n", pa.int64()), ("vid", pa.large_string())])
    rows = [{"n": 1, "vid": "a"}, {"n": 2, "vid": "b"}]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    found = read("arrow", written("arrow", [batch, batch], schema), stream())
    assert found.select(["n", "vid"]).to_pylist() == rows * 2
    wrong = pa.RecordBatch.from_pylist([{"n": 1, "vid": "a"}, {"n": 70_000, "vid": "b"}], schema=schema)
    with pytest.raises(InvalidRecord, match="row 3, column 'n': 70000 is not an int16"):
        read("arrow", written("arrow", [batch, wrong], schema), stream())


def test_an_arrow_stream_that_ends_too_early_is_an_error() -> None:
    batch = pa.RecordBatch.from_pylist([{"vid": "a" * 1000}] * 100, schema=SCHEMA)
    data = written("arrow", [batch, batch], SCHEMA)
    with pytest.raises(InvalidRecord, match="after 100 rows: not an Arrow stream"):
        read("arrow", data[: len(data) * 3 // 4], stream())


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("ndjson", b'{"body":"x"}\n{"body_base64":"/w==","headers":{"k":"v"},"time":"2024-01-01T00:00:00Z"}\n'),
        ("csv", b'body_base64,headers,time\neA==,,\n/w==,"{""k"":""v""}",2024-01-01T00:00:00Z\n'),
    ],
)
def test_raw_events_from_text(form: str, data: bytes) -> None:
    ingest = Ingest(RAW)
    found = [part.batch for batch in text.reader_of(form, io.BytesIO(data), RAW) for part in ingest.prepare(batch, 5)]
    assert pa.Table.from_batches(found, schema=RAW_EVENTS).to_pylist() == [
        {"time": datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "headers": [], "body": b"x"},
        {"time": datetime(2024, 1, 1, tzinfo=UTC), "headers": [("k", "v")], "body": b"\xff"},
    ]


def test_a_raw_event_without_a_body_is_named_by_its_line() -> None:
    with pytest.raises(InvalidRecord, match="line 2, column 'body': missing"):
        read("ndjson", b'{"body":"x"}\n{"headers":{}}\n', RAW)


def lines_of_garbage() -> Iterator[st.SearchStrategy[bytes]]:
    yield st.binary(max_size=40)
    yield st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SCHEMA.names), inner, max_size=4),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
    yield st.lists(st.sampled_from([b"vid", b"temp", b",", b"\n", b'"', b"x", b"1", b"\r"]), max_size=20).map(b"".join)


@pytest.mark.parametrize("form", text.FORMS)
@given(st.one_of(*lines_of_garbage()), st.one_of(*lines_of_garbage()))
def test_garbage_is_read_or_refused_with_an_error_of_ours(form: str, first: bytes, second: bytes) -> None:
    for definition in (stream(), RAW):
        try:
            read(form, first + b"\n" + second, definition)
        except MillpondError:
            continue
