"""Whatever is sent to the door, the process lives, other callers are served, and only our own errors come back."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from millpond.errors import InvalidInput, MillpondError, TooLarge
from millpond.flight.messages import action_names
from tests.flight.conftest import SCHEMA, STREAM, Node, options, readings, told

PATH = flight.FlightDescriptor.for_path(STREAM)


def put(node: Node, *batches: pa.RecordBatch, compression: str | None = None) -> MillpondError | None:
    """What a put of these batches is refused with."""
    how = options()
    if compression:
        how = flight.FlightCallOptions(
            headers=how.headers, write_options=pa.ipc.IpcWriteOptions(compression=compression)
        )
    writer, reader = node.client().do_put(PATH, batches[0].schema, how)
    try:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        while reader.read() is not None:
            pass
        writer.close()
    except (flight.FlightError, pa.ArrowException):
        try:
            writer.close()
        except (flight.FlightError, pa.ArrowException) as closing:
            error = closing
        return told(error)
    return None


def bad_offsets(middle: int) -> pa.RecordBatch:
    """Two names; where the first ends and the second begins lies, which Arrow's quick validation does not see."""
    offsets = np.array([0, 3, 6], np.int32)
    names = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdef")])
    offsets[1] = middle
    return pa.RecordBatch.from_arrays([names, pa.array([1.0, 2.0])], schema=SCHEMA)


def not_utf8() -> pa.RecordBatch:
    buffers = [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    names = pa.Array.from_buffers(pa.string(), 2, buffers)
    return pa.RecordBatch.from_arrays([names, pa.array([1.0, 2.0])], schema=SCHEMA)


def dictionary() -> pa.RecordBatch:
    return pa.record_batch({"vid": pa.array(["a", "a"]).dictionary_encode(), "temp": [1.0, 2.0]})


def extension() -> pa.RecordBatch:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    return pa.record_batch({"vid": ids, "temp": [1.0]})


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("offsets beyond the data", lambda: bad_offsets(1_000_000_000)),
        ("offsets that go back", lambda: bad_offsets(-5)),
        ("text that is not UTF-8", not_utf8),
        ("another type", lambda: pa.record_batch({"vid": ["a"], "temp": ["warm"]})),
        ("a column more", lambda: pa.record_batch({"vid": ["a"], "temp": [1.0], "more": [1]})),
        ("a column twice", lambda: pa.RecordBatch.from_arrays([pa.array(["a"])] * 2, names=["vid", "vid"])),
        ("a dictionary", dictionary),
        ("an extension type", extension),
        ("no columns", lambda: pa.RecordBatch.from_arrays([], names=[])),
    ],
)
def test_bad_batches_are_refused_and_nothing_is_kept(node: Node, name: str, make: Callable[[], pa.RecordBatch]) -> None:
    refused = put(node, make())
    if name == "no columns":
        assert refused is None or isinstance(refused, InvalidInput)
    else:
        assert isinstance(refused, InvalidInput), name
    assert node.stream.count() == 0
    assert put(node, readings(1)) is None


def test_bad_batches_among_good_small_ones_are_found(node: Node) -> None:
    """Small batches are checked together: none of them is used before all of it is valid."""
    good = [readings(n) for n in range(50)]
    refused = put(node, *good, bad_offsets(1_000_000_000), readings(99))
    assert isinstance(refused, InvalidInput)
    assert node.stream.scan()["temp"].to_pylist() == [float(n) for n in range(50)]


def test_small_messages_that_are_large_inside_are_refused(node: Node) -> None:
    """16 KB of compressed Arrow may be hundreds of megabytes."""
    zeros = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 300_000_000], np.int32)), pa.py_buffer(bytes(300_000_000))]
    )
    large = pa.RecordBatch.from_arrays([zeros, pa.array([1.0])], schema=SCHEMA)
    assert isinstance(put(node, large, compression="zstd"), TooLarge)
    assert node.stream.count() == 0
    assert put(node, readings(1), compression="zstd") is None


def test_rows_that_take_no_bytes_are_counted(node: Node) -> None:
    nulls = pa.record_batch({"vid": pa.nulls(10_000_001)})
    assert isinstance(put(node, nulls), TooLarge)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.dictionaries(
    st.sampled_from(["do", "stream", "where", "columns", "limit", "start", "key", "generation", "ranges", "predicate"]),
    JSON | st.sampled_from([STREAM, "scan", "get", "read", "temp > 1", "earliest", ["vid"], {"0": [0, 1]}]),
)
MESSAGES = (
    st.binary(max_size=200)
    | JSON.map(lambda each: json.dumps(each).encode())
    | FIELDS.map(lambda each: json.dumps(each).encode())
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=MESSAGES, kind=st.sampled_from([name for name, _ in action_names() if name != "verify"]))
def test_tickets_actions_and_commands_give_answers_or_our_errors(node: Node, message: bytes, kind: str) -> None:
    client = node.client()
    descriptor = flight.FlightDescriptor.for_command(message)

    def exchanged() -> None:
        writer, reader = client.do_exchange(descriptor, options())
        writer.done_writing()
        reader.read_all()

    for act in (
        lambda: client.do_get(flight.Ticket(message), options()).read_all(),
        lambda: list(client.do_action(flight.Action(kind, message), options())),
        lambda: client.get_flight_info(descriptor, options()),
        exchanged,
    ):
        try:
            act()
        except (flight.FlightError, pa.ArrowException) as error:
            told(error)  # or it is none of ours
    assert node.pond.id


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(middle=st.integers(0, 6) | st.integers(-(2**31), 2**31 - 1), note=st.none() | MESSAGES)
def test_batches_with_any_offsets_are_kept_whole_or_refused(node: Node, middle: int, note: bytes | None) -> None:
    writer, reader = node.client().do_put(PATH, SCHEMA, options())
    before = node.stream.count()
    try:
        if note is None:
            writer.write_batch(bad_offsets(middle))
        else:
            writer.write_with_metadata(bad_offsets(middle), note)
        writer.done_writing()
        while reader.read() is not None:
            pass
        writer.close()
    except (flight.FlightError, pa.ArrowException):
        assert node.stream.count() == before
    else:
        assert 0 <= middle <= 6
        assert node.stream.count() == before + 2
