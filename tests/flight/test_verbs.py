"""Every verb of the Flight door, as a client that is not ours uses it."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from millpond.errors import InvalidInput, NoSuchRoute
from millpond.flight.messages import action_names, decode_action
from millpond.wire.requests import Call
from tests.flight.conftest import SCHEMA, STREAM, Node, options, readings, told

DEADLINE_SECONDS = 30.0


def got(node: Node, ticket: bytes) -> pa.Table:
    return node.client().do_get(flight.Ticket(ticket), options()).read_all()


def put(node: Node, descriptor: flight.FlightDescriptor, *batches: Any) -> list[dict[str, Any]]:
    """Put batches, each alone or with what stands beside it; the messages that come back."""
    writer, reader = node.client().do_put(descriptor, SCHEMA, options())
    with writer:
        for each in batches:
            if isinstance(each, tuple):
                writer.write_with_metadata(*each)
            else:
                writer.write_batch(each)
        writer.done_writing()
        notes = []
        while (note := reader.read()) is not None:
            notes.append(json.loads(note.to_pybytes()))
    return notes


# Put.


def test_a_put_by_path_acknowledges_each_batch(node: Node) -> None:
    notes = put(node, flight.FlightDescriptor.for_path(STREAM), readings(1, 2), readings(3), readings())
    assert notes == [
        {"ranges": {"0": {"start": 0, "stop": 2}}, "durability": "os", "rows": 2},
        {"ranges": {"0": {"start": 2, "stop": 3}}, "durability": "os", "rows": 1},
        {"durability": "os"},
    ]
    assert node.stream.scan()["temp"].to_pylist() == [1, 2, 3]


def test_a_path_may_be_in_parts(node: Node) -> None:
    assert len(put(node, flight.FlightDescriptor.for_path(*STREAM.split("/")), readings(1))) == 1


def test_a_put_by_command_numbers_its_batches(node: Node) -> None:
    command = {"do": "append", "stream": STREAM, "producer": "p", "sequence": 7, "durability": "disk"}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
    first = put(node, descriptor, readings(1), readings(2))
    again = put(node, descriptor, readings(1), readings(2), readings(3))
    assert [note["durability"] for note in first] == ["disk", "disk"]
    assert [note.get("duplicate", False) for note in again] == [True, True, False]
    assert [note["ranges"] for note in again[:2]] == [note["ranges"] for note in first]
    assert node.stream.scan()["temp"].to_pylist() == [1, 2, 3]


def test_a_batch_may_bring_its_own_sequence(node: Node) -> None:
    command = {"do": "append", "stream": STREAM, "producer": "p", "sequence": 0}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
    beside = [(readings(n), json.dumps({"sequence": n}).encode()) for n in (5, 5, 9)]
    notes = put(node, descriptor, *beside)
    assert [note.get("duplicate", False) for note in notes] == [False, True, False]
    assert node.stream.count() == 2


def test_batches_of_one_put_keep_their_order_and_their_offsets(node: Node) -> None:
    """Small ones are committed together, and each is still told its own offsets."""
    notes = put(node, flight.FlightDescriptor.for_path(STREAM), *(readings(n, n) for n in range(300)))
    assert [note["ranges"]["0"] for note in notes] == [{"start": 2 * n, "stop": 2 * n + 2} for n in range(300)]
    assert node.stream.scan()["temp"].to_pylist() == [float(n // 2) for n in range(600)]


def test_a_put_to_many_streamlets_tells_what_went_where(node: Node) -> None:
    wide = node.pond.create_stream("grid/wide", SCHEMA, keys=["vid"], streamlets=4)
    notes = put(node, flight.FlightDescriptor.for_path("grid/wide"), *(readings(*range(n, n + 9)) for n in range(40)))
    assert [note["rows"] for note in notes] == [9] * 40
    ends: dict[int, int] = {}
    for note in notes:
        for streamlet, offsets in note["ranges"].items():
            assert offsets["start"] == ends.get(int(streamlet), 0)
            ends[int(streamlet)] = offsets["stop"]
    assert ends == {s: head for s, head in wide.snapshot().heads.items() if head}


def test_what_is_wrong_in_the_middle_of_a_put_keeps_what_came_before_and_nothing_after(node: Node) -> None:
    writer, reader = node.client().do_put(flight.FlightDescriptor.for_path(STREAM), SCHEMA, options())
    command = json.dumps({"sequence": "no number"}).encode()
    notes: list[dict[str, Any]] = []
    for n in range(20):
        writer.write_batch(readings(n))
    writer.write_with_metadata(readings(20), command)
    writer.done_writing()
    while (note := reader.read()) is not None:
        notes.append(json.loads(note.to_pybytes()))
        if "failure" in notes[-1]:
            break
    assert [note["rows"] for note in notes[:-1]] == [1] * 20
    assert (notes[-1]["failure"]["code"], notes[-1]["acknowledged"]) == ("invalid-input", 20)
    with pytest.raises(flight.FlightServerError) as caught:
        writer.close()
    assert json.loads(caught.value.extra_info)["acknowledged"] == 20
    assert node.stream.count() == 20


# Get.


def test_a_get_takes_every_kind_of_ticket(node: Node) -> None:
    node.stream.append(readings(*range(10)))
    assert got(node, b'{"do":"scan","stream":"grid/meters","where":"temp > 6"}')["temp"].to_pylist() == [7, 8, 9]
    assert got(node, b'{"do":"get","stream":"grid/meters","key":"m-3"}')["temp"].to_pylist() == [3]
    page = got(node, b'{"do":"read","stream":"grid/meters","start":"4","limit":3}')
    assert page["_offset"].to_pylist() == [4, 5, 6]
    (segment,) = node.stream.segments()
    ticket = json.dumps({"do": "read-segment", "stream": STREAM, "segment": segment.id}).encode()
    assert got(node, ticket).num_rows == 10
    assert got(node, b'{"do":"audit"}').num_rows == 0
    assert got(node, b'{"do":"objects","stream":"grid/meters"}').num_rows == 0


def test_the_endpoints_of_a_stream_give_each_streamlet_settled_and_live(node: Node) -> None:
    wide = node.pond.create_stream("grid/wide", SCHEMA, keys=["vid"], streamlets=3)
    wide.append(readings(*range(50)))
    wide.settle()
    wide.append(readings(*range(50, 90)))
    client = node.client()
    info = client.get_flight_info(flight.FlightDescriptor.for_path("grid/wide"), options())
    assert (info.total_records, info.schema) == (90, SCHEMA)
    assert info.total_bytes > 0
    parts = [client.do_get(endpoint.ticket, options()).read_all() for endpoint in info.endpoints]
    assert [part.num_rows for part in parts] == [wide.snapshot().heads[s] for s in range(3)]
    assert sorted(pa.concat_tables(parts)["temp"].to_pylist()) == [float(n) for n in range(90)]


def test_sealed_segments_leave_as_they_are(node: Node) -> None:
    for n in range(0, 40_000, 10_000):
        node.stream.append(readings(*range(n, n + 10_000)))
    client = node.client()
    info = client.get_flight_info(flight.FlightDescriptor.for_path(STREAM), options())
    table = client.do_get(info.endpoints[0].ticket, options()).read_all()
    assert table.column_names == SCHEMA.names
    assert table["temp"].to_pylist() == [float(n) for n in range(40_000)]


def test_a_get_that_would_never_end_is_refused(node: Node) -> None:
    with pytest.raises(flight.FlightError) as caught:
        got(node, b'{"do":"read","stream":"grid/meters","follow":true}')
    assert "DoExchange" in told(caught.value).hint


# What is there.


def test_flights_are_listed_with_their_schemas(node: Node) -> None:
    node.pond.create_stream("other/raw")
    client = node.client()
    listed = {info.descriptor.path[0].decode(): info for info in client.list_flights(options=options())}
    assert sorted(listed) == [STREAM, "other/raw"]
    assert listed[STREAM].schema == SCHEMA
    assert [info.descriptor.path for info in client.list_flights(b"other", options())] == [[b"other/raw"]]
    assert client.get_schema(flight.FlightDescriptor.for_path(STREAM), options()).schema == SCHEMA


def test_a_stream_that_is_not_there_is_said_to_be(node: Node) -> None:
    with pytest.raises(flight.FlightError) as caught:
        node.client().get_flight_info(flight.FlightDescriptor.for_path("grid/nobody"), options())
    assert told(caught.value).code == "stream-not-found"


# Actions.


def test_every_call_is_an_action(node: Node) -> None:
    listed = {action.type: action.description for action in node.client().list_actions(options())}
    assert set(listed) == {str(kind.__struct_config__.tag) for kind in Call.__args__}
    assert all(listed.values())


def acted(node: Node, kind: str, body: bytes = b"") -> Any:
    (result,) = node.client().do_action(flight.Action(kind, body), options())
    return json.loads(result.body.to_pybytes())


def test_actions_answer_with_one_message(node: Node) -> None:
    node.stream.append(readings(1, 2, 3))
    assert acted(node, "node")["caller"] == "may-do-everything"
    assert [each["name"] for each in acted(node, "list-streams")] == [STREAM]
    made = acted(node, "create", b'{"stream":"a/b","schema":"n int64"}')
    assert (made["name"], made["schema"]) == ("a/b", "n bigint")
    assert acted(node, "count", b'{"stream":"grid/meters","where":"temp >= 2"}') == {"count": 2}
    assert acted(node, "settle", b'{"stream":"grid/meters","preview":true}')["rows"] == 3
    assert acted(node, "settle", b'{"stream":"grid/meters"}')["rows"] == 3
    assert acted(node, "settle", b'{"stream":"grid/meters"}') is None
    assert acted(node, "drop", b'{"do":"drop","stream":"a/b"}')["done"] is True
    for kind in ("describe", "alter", "stream-status", "segments", "explain", "snapshot"):
        body = {"stream": STREAM, **({"add": "humidity double"} if kind == "alter" else {})}
        assert acted(node, kind, json.dumps(body).encode()) is not None
    for kind in ("pond-status", "verify"):
        assert acted(node, kind) is not None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("describe", b""),
        ("describe", b"[]"),
        ("describe", b"\xff"),
        ("describe", b'{"stream":1}'),
        ("describe", b'{"stream":"a","more":1}'),
        ("describe", b'{"do":"drop","stream":"a"}'),
        ("node", b"{" * 100_000),
        ("node", b" " * 6_000_000 + b"{}"),
    ],
)
def test_what_is_no_request_is_refused(node: Node, kind: str, body: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_action(kind, body)
    with pytest.raises(flight.FlightError) as caught:
        list(node.client().do_action(flight.Action(kind, body), options()))
    assert isinstance(told(caught.value), InvalidInput)


def test_an_action_that_is_not_there_names_those_that_are(node: Node) -> None:
    for name, hint in (("relayot", "did you mean relayout"), ("shutdown", "list_actions() names all")):
        with pytest.raises(flight.FlightError) as caught:
            list(node.client().do_action(flight.Action(name, b""), options()))
        found = told(caught.value)
        assert isinstance(found, NoSuchRoute)
        assert hint in found.hint
    assert {each.type for each in node.client().list_actions(options())} == {name for name, _ in action_names()}


def test_long_errors_arrive(node: Node) -> None:
    """gRPC drops answers whose trailers are over 8 KB."""
    with pytest.raises(flight.FlightError) as caught:
        got(node, json.dumps({"do": "scan", "stream": STREAM, "where": "é" * 100_000}).encode())
    assert told(caught.value).code == "invalid-predicate"


# Exchange.


def test_a_follower_is_pushed_what_arrives(node: Node) -> None:
    node.stream.append(readings(1))
    command = json.dumps({"do": "read", "stream": STREAM, "start": "earliest", "follow": True})
    writer, reader = node.client().do_exchange(flight.FlightDescriptor.for_command(command), options())
    writer.write_metadata(b'{"credit": 1000000}')
    where = reader.read_chunk()
    assert (where.data, json.loads(where.app_metadata.to_pybytes())) == (None, {"position": {"0": 0}})
    first = reader.read_chunk()
    assert first.data["temp"].to_pylist() == [1]
    note = json.loads(first.app_metadata.to_pybytes())
    assert note["position"] == {"0": 1}
    # What its buffers take, and each is filled up to a multiple of eight bytes.
    buffers = sum(1 for column in first.data.columns for buffer in column.buffers() if buffer is not None)
    assert first.data.nbytes <= note["bytes"] < first.data.nbytes + 8 * buffers
    node.stream.append(readings(2, 3))
    assert reader.read_chunk().data["_offset"].to_pylist() == [1, 2]
    reader.cancel()


def test_a_follower_that_is_done_writing_gets_what_it_has_credit_for(node: Node) -> None:
    node.stream.append(readings(*range(1_000)))
    command = json.dumps({"do": "read", "stream": STREAM, "follow": True, "batch_rows": 10})
    writer, reader = node.client().do_exchange(flight.FlightDescriptor.for_command(command), options())
    writer.write_metadata(b'{"credit": 1}')
    writer.done_writing()
    chunks = list(reader)
    assert [chunk.data.num_rows for chunk in chunks if chunk.data is not None] == [10]
    assert json.loads(chunks[-1].app_metadata.to_pybytes()) == {"position": {"0": 10}, "end": True}


def test_many_appends_and_a_follower_meet(node: Node) -> None:
    """Every record once, in order, while they arrive."""
    found: queue.SimpleQueue[float] = queue.SimpleQueue()
    command = json.dumps({"do": "read", "stream": STREAM, "follow": True, "columns": ["temp"]})
    writer, reader = node.client().do_exchange(flight.FlightDescriptor.for_command(command), options())
    writer.write_metadata(b'{"credit": 100000000}')

    def follow() -> None:
        left = 300
        while left:
            chunk = reader.read_chunk()
            for value in chunk.data["temp"].to_pylist() if chunk.data is not None else ():
                found.put(value)
                left -= 1

    following = threading.Thread(target=follow)
    following.start()
    for n in range(300):
        node.stream.append(readings(n))
    following.join(DEADLINE_SECONDS)
    assert [found.get(timeout=1) for _ in range(300)] == [float(n) for n in range(300)]
    reader.cancel()
