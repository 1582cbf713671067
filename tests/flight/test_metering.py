"""Every call at the Flight door is counted, by verb and by how it ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import millpond
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.telemetry import DoorCounters
from millpond.wire.access import EVERYTHING

SECRET = "s" * 32
SCHEMA = pa.schema([("n", pa.int64())])


class Told(DoorCounters):
    """Says when a call was counted: that happens after its caller has the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Semaphore(0)

    def request(
        self, door: str, route: str, method: str, status: str | int, seconds: float, bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:  # fmt: skip
        super().request(door, route, method, status, seconds, bytes_in, bytes_out)
        self.ended.release()


class Node:
    def __init__(self, pond: millpond.Pond) -> None:
        self.counters = Told()
        self.stream = pond.create_stream("numbers", SCHEMA)
        self.stream.append([{"n": n} for n in range(100)])
        self.door = FlightDoor(PondDesk(pond, SecretGate(SECRET, EVERYTHING)), counters=self.counters)
        self.client = flight.connect(self.door.location)

    def options(self, token: str = SECRET) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=30, headers=[(b"authorization", f"Bearer {token}".encode())])

    def counted(self, calls: int) -> dict[tuple[str, str], tuple[int, int]]:
        """Calls and bytes out by verb and status, once so many have ended."""
        for _ in range(calls):
            assert self.counters.ended.acquire(timeout=30)
        return {
            (each.kind.route, str(each.kind.status)): (each.answered, each.bytes_out)
            for each in self.counters.requests()
        }


@pytest.fixture
def node(pond_dir: Path) -> Iterator[Node]:
    with millpond.open(pond_dir, background=False) as pond:
        made = Node(pond)
        with contextlib.closing(made.door), contextlib.closing(made.client):
            yield made


def test_calls_are_counted_with_what_they_took(node: Node) -> None:
    (info,) = node.client.list_flights(options=node.options())
    table = node.client.do_get(info.endpoints[0].ticket, node.options()).read_all()
    assert table.num_rows == 100
    found = node.counted(2)
    assert found["ListFlights", "ok"] == (1, 0)
    assert found["DoGet", "ok"] == (1, table.nbytes)
    assert {place: reading.total for place, reading in node.counters.seconds().items()} == {
        ("flight", "ListFlights"): 1,
        ("flight", "DoGet"): 1,
    }
    assert set(node.counters.rejections().values()) == {0}


def test_a_put_is_counted_with_what_it_brought(node: Node) -> None:
    batch = pa.record_batch([pa.array(range(1_000))], schema=SCHEMA)
    writer, acks = node.client.do_put(flight.FlightDescriptor.for_path("numbers"), SCHEMA, node.options())
    with writer:
        for _ in range(3):
            writer.write_batch(batch)
        writer.done_writing()
        assert [acks.read() is not None for _ in range(3)] == [True] * 3
    node.counted(1)
    (put,) = node.counters.requests()
    assert (put.kind.route, put.kind.status, put.answered) == ("DoPut", "ok", 1)
    assert put.bytes_in >= 3 * batch.nbytes
    assert node.stream.status().rows_live == 3_100


def test_calls_that_fail_are_counted_by_the_code_of_their_error(node: Node) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(node.client.list_flights(options=node.options("wrong")))
    with pytest.raises(flight.FlightServerError):
        node.client.get_flight_info(flight.FlightDescriptor.for_path("nowhere"), node.options())
    assert set(node.counted(2)) == {("ListFlights", "unauthenticated"), ("GetFlightInfo", "stream-not-found")}
    rejected = {reason: count for reason, count in node.counters.rejections().items() if count}
    assert rejected == {"unauthenticated": 1, "stream-not-found": 1}
