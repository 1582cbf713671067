"""Arrow from anybody: sizes are known before anything is decoded, and damage never gets through nor crashes."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import InvalidRecord, TooLarge
from millpond.ingest.arrow import to_batch
from millpond.ingest.arrow_stream import ArrowBody, read_arrow_body
from tests.conftest import ROOT

LIMITS = {"decoded_bytes_max": 10_000_000, "rows_max": 100_000, "columns_max": 50}


def read(body: bytes, **changes: int) -> ArrowBody:
    return read_arrow_body(body, **(LIMITS | changes))


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


# The columns of `batch`, as a stream has them.
STORED = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("t", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
        ("v", pa.string()),
        ("z", pa.int8()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("sum", pa.decimal128(20, 4)),
    ]
)


def batch(rows: int = 100) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "n": pa.array(range(rows)),
            "s": pa.array([f"text {n}" for n in range(rows)]),
            "d": pa.array(["a", "b"] * (rows // 2)).dictionary_encode(),
            "l": pa.array([[n, None] for n in range(rows)]),
            "m": pa.array([[("k", n)] for n in range(rows)], pa.map_(pa.string(), pa.int64())),
            "t": pa.array([{"x": n, "y": [str(n)]} for n in range(rows)]),
            "v": pa.array(["a long text that is not inlined"] * rows, pa.string_view()),
            "z": pa.nulls(rows),
            "b": pa.array([n % 3 == 0 for n in range(rows)]),
            "at": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            "day": pa.array(range(rows), pa.date32()),
            "sum": pa.array([Decimal(n) / 4 for n in range(rows)], pa.decimal128(20, 4)),
        }
    )


def test_what_is_read_fits_a_stream() -> None:
    assert to_batch(STORED, read(stream(batch())).batches[0]).num_rows == 100


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_stream_comes_back_as_it_was(compression: str | None) -> None:
    found = read(stream(batch(), batch(50), compression=compression))
    assert found.schema == batch().schema
    assert [each.to_pylist() for each in found.batches] == [batch().to_pylist(), batch(50).to_pylist()]


def test_a_stream_without_batches_is_empty() -> None:
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, pa.schema([("a", pa.int8())])).close()
    assert read(sink.getvalue()) == (pa.schema([("a", pa.int8())]), [])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_it_is_decompressed(compression: str) -> None:
    zeros = pa.record_batch({"a": pa.array(np.zeros(8_000_000, np.int64))})
    body = stream(zeros, compression=compression)
    assert len(body) < 1_000_000
    room = {"rows_max": 10_000_000}

    def refused() -> None:
        with pytest.raises(TooLarge, match="the records take over"):
            read(body, **room)

    assert _peak(lambda: read(body, decoded_bytes_max=100_000_000, **room)) >= 64_000_000
    assert _peak(refused) < 1_000_000


def _peak(act: Callable[[], object]) -> int:
    """How much Arrow allocates at most while something happens."""
    inner = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(inner)
    pa.set_memory_pool(pool)
    try:
        act()
        return int(pool.max_memory() or 0)
    finally:
        pa.set_memory_pool(inner)


def test_a_bomb_in_a_dictionary_is_refused_too() -> None:
    values = pa.array([b"\0" * 20_000_000])
    bomb = pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)})
    with pytest.raises(TooLarge, match="the records take over"):
        read(stream(bomb, compression="zstd"))


def test_many_batches_are_counted_together() -> None:
    assert read(stream(batch(100), compression="zstd"), decoded_bytes_max=100_000).batches
    with pytest.raises(TooLarge):
        read(stream(*[batch(100)] * 40, compression="zstd"), decoded_bytes_max=100_000)


def test_rows_that_take_no_bytes_are_counted() -> None:
    nulls = pa.record_batch({"z": pa.nulls(200_000)})
    with pytest.raises(TooLarge, match="records"):
        read(stream(nulls))
    assert read(stream(nulls.slice(0, 100_000))).batches[0].num_rows == 100_000
    inner = pa.ListArray.from_arrays(pa.array([0, 20_000_000], pa.int32()), pa.nulls(20_000_000))
    with pytest.raises(TooLarge):
        read(stream(pa.record_batch({"l": inner})))


def test_columns_are_counted_with_their_inner_ones() -> None:
    flat = pa.record_batch({f"c{n}": pa.array([n]) for n in range(51)})
    deep = pa.record_batch({"s": pa.array([{f"c{n}": n for n in range(50)}])})
    for each in (flat, deep):
        with pytest.raises(TooLarge, match="50 columns"):
            read(stream(each))
        assert read(stream(each), columns_max=51).batches


@pytest.mark.parametrize("kind", [pa.uuid(), pa.json_(), pa.list_(pa.bool8())])
def test_extension_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidRecord, match="extension"):
        read(stream(pa.record_batch([pa.nulls(1, kind)], names=["x"])))


def test_extension_types_that_nobody_knows_are_refused_as_well() -> None:
    field = pa.field("x", pa.int8(), metadata={"ARROW:extension:name": "made.up", "ARROW:extension:metadata": ""})
    with pytest.raises(InvalidRecord, match="extension"):
        read(stream(pa.record_batch([pa.array([1], pa.int8())], schema=pa.schema([field]))))


def test_dictionaries_in_deltas_are_refused() -> None:
    first = pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a"]))})
    second = pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([1]), pa.array(["a", "b"]))})
    with pytest.raises(InvalidRecord, match="deltas"):
        read(stream(first, second, emit_dictionary_deltas=True))
    assert read(stream(first, second)).batches[1].to_pylist() == [{"d": "b"}]


def test_offsets_that_point_outside_are_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1_000_000, 5], np.int32)), pa.py_buffer(b"hello")]
    )
    bad.validate()
    with pytest.raises(InvalidRecord):
        read(stream(pa.record_batch([bad], names=["s"])))


@pytest.mark.parametrize("scale", [-2_147_483_644, -1, 21, 2_147_483_000])
def test_decimals_that_arrow_itself_cannot_stand_are_refused(scale: int) -> None:
    """They are valid in Arrow's eyes, and crash the process or fill its memory when a value is looked at."""
    odd = pa.nulls(1, pa.decimal128(20, scale))
    for column in (odd, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), odd)):
        sent = pa.record_batch([column], names=["sum"])
        with pytest.raises(InvalidRecord, match="decimals"):
            read(stream(sent))
        with pytest.raises(InvalidRecord, match="decimals"):
            to_batch(pa.schema([("sum", pa.decimal128(20, 4))]), sent)


def test_names_that_are_not_utf8_are_refused() -> None:
    for good in (stream(pa.record_batch({"a_name": [1]})), stream(pa.record_batch({"s": [{"a_name": 1}]}))):
        assert read(good).batches
        with pytest.raises(InvalidRecord):
            read(good.replace(b"a_name", b"a_\xffame"))


def test_text_that_is_not_utf8_is_refused() -> None:
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    with pytest.raises(InvalidRecord):
        read(stream(pa.record_batch([bad], names=["s"])))


@pytest.mark.parametrize(
    "body", [b"", b"x", b"ARROW1\0\0", b"\xff\xff\xff\xff\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRecord, match="Arrow stream"):
        read(body)


def test_thousands_of_empty_batches_are_refused() -> None:
    one = stream(pa.record_batch({"a": pa.array([], pa.int8())}))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int8())])) as writer:
        for _ in range(10_001):
            writer.write_batch(pa.record_batch({"a": pa.array([], pa.int8())}))
    assert read(one).batches
    with pytest.raises(TooLarge, match="messages"):
        read(sink.getvalue())


# Fuzzing happens in a process of its own: a crash there is a failure here.

FUZZ = """
import faulthandler, io, random, sys
faulthandler.enable()
import pyarrow as pa
sys.path.insert(0, {root!r})
from tests.ingest.test_arrow_stream import batch, read, stream
from millpond.errors import InvalidInput
from millpond.ingest.arrow import to_batch
from tests.ingest.test_arrow_stream import STORED

random.seed({seed})
bodies = [stream(batch(20), batch(4), compression=form) for form in (None, "lz4", "zstd")]
bodies.append(stream(batch(4)))
refused = 0
for turn in range({turns}):
    body = bytearray(random.choice(bodies))
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        at = random.randrange(len(body))
        change = random.randrange(4)
        if change == 0:
            body[at] ^= 1 << random.randrange(8)
        elif change == 1:
            body[at : at + 8] = random.choice((b"\\xff" * 8, bytes(8), b"\\x7f" * 8, (1 << 40).to_bytes(8, "little")))
        elif change == 2:
            del body[at : at + random.randrange(1, 64)]
        else:
            body[at:at] = body[random.randrange(len(body)) :][: random.randrange(1, 64)]
        if not body:
            body = bytearray(b"x")
    try:
        for each in read(bytes(body)).batches:
            to_batch(STORED, each)
    except InvalidInput as error:
        assert error.hint
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("seed", range(3))
def test_damaged_streams_are_refused_and_never_crash(seed: int) -> None:
    turns = 400
    code = FUZZ.format(root=str(ROOT), seed=seed, turns=turns)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    assert turns // 4 < int(ended.stdout) <= turns
