"""The Flight door: who may come in, what a ticket gets, and how errors travel."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from millpond.errors import InvalidInput, OffsetGone, PondClosed, StreamNotFound, Unauthenticated, Unavailable
from millpond.flight import FlightDoor, fetch_live
from millpond.flight.fetch import explain, fetch
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import And, Compare, Unknown
from millpond.pond.gate import SecretGate
from millpond.wire import LiveTicket, decode_ticket, encode_ticket
from millpond.wire.access import Caller, new_secret

SCHEMA = pa.schema([("n", pa.int64())])
TOKEN = "the-token-of-this-test"
TICKET = LiveTicket(7, 1, {0: OffsetRange(0, 10)}, ("n",))


class Numbers:
    """A source whose stream 7 holds its own offsets."""

    def __init__(self) -> None:
        self.tickets: list[LiveTicket] = []
        self.go_on = threading.Event()
        self.ended = threading.Event()

    def authenticate(self, token: str | None) -> Caller:
        return SecretGate(TOKEN).authenticate(token)

    def live(self, caller: Caller, ticket: LiveTicket) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        self.tickets.append(ticket)
        if ticket.stream == 13:
            raise StreamNotFound("no stream 13", hint="count again")
        if ticket.stream == 14:
            raise KeyError("/secret/path")
        return SCHEMA, self._endless() if ticket.stream == 8 else self._finite(ticket)

    def _finite(self, ticket: LiveTicket) -> Iterator[pa.RecordBatch]:
        for offsets in ticket.ranges.values():
            yield pa.record_batch({"n": pa.array(range(offsets.start, offsets.stop), pa.int64())}, schema=SCHEMA)
        if ticket.generation == 2:
            raise OffsetGone("truncated on the way", hint="query again")

    def _endless(self) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield pa.record_batch({"n": pa.array(range(100_000), pa.int64())}, schema=SCHEMA)
                self.go_on.wait(10)
        finally:
            self.ended.set()


@pytest.fixture
def source() -> Numbers:
    return Numbers()


@pytest.fixture
def door(source: Numbers) -> Iterator[FlightDoor]:
    door = FlightDoor(source, token=TOKEN)
    yield door
    source.go_on.set()
    door.close()


def test_a_ticket_gets_its_records_and_reaches_the_source_whole(door: FlightDoor, source: Numbers) -> None:
    predicate = And((Compare(">", "n", 3), Unknown("a function")))
    ticket = LiveTicket(7, 1, {0: OffsetRange(0, 10), 2: OffsetRange(40, 45)}, ("n",), predicate)
    batches = list(fetch_live(door.location, door.token, ticket))
    assert pa.Table.from_batches(batches).column("n").to_pylist() == [*range(10), *range(40, 45)]
    assert source.tickets == [ticket]


def test_it_listens_on_loopback_only(door: FlightDoor) -> None:
    assert door.location.startswith("grpc://127.0.0.1:")


@pytest.mark.parametrize("token", ["", "wrong", "é", "x" * 100_000])
def test_a_wrong_token_is_refused_and_nothing_is_read(door: FlightDoor, source: Numbers, token: str) -> None:
    # What no header can hold does not even get as far as the door.
    with pytest.raises(Unauthenticated if token in ("", "wrong") else Unavailable):
        list(fetch_live(door.location, token, TICKET))
    assert source.tickets == []


def test_the_token_is_not_shown(source: Numbers) -> None:
    with contextlib.closing(FlightDoor(source, token=TOKEN)) as other:
        assert other.token == TOKEN
        assert TOKEN not in repr(other)


def test_secrets_differ_and_are_long() -> None:
    assert new_secret() != new_secret()
    assert len(new_secret()) >= 43


def test_errors_keep_their_class_message_and_hint(door: FlightDoor) -> None:
    with pytest.raises(StreamNotFound) as caught:
        list(fetch_live(door.location, door.token, LiveTicket(13, 1, {}, ("n",))))
    assert (caught.value.message, caught.value.hint) == ("no stream 13", "count again")


def test_an_error_on_the_way_reaches_the_reader(door: FlightDoor) -> None:
    with pytest.raises(OffsetGone, match="truncated on the way"):
        list(fetch_live(door.location, door.token, LiveTicket(7, 2, {0: OffsetRange(0, 3)}, ("n",))))


def test_an_error_that_is_not_ours_is_told_without_its_text(door: FlightDoor) -> None:
    with pytest.raises(Unavailable) as caught:
        list(fetch_live(door.location, door.token, LiveTicket(14, 1, {}, ("n",))))
    assert "secret" not in str(caught.value)


def test_executors_get_the_message_as_text(door: FlightDoor) -> None:
    with pytest.raises(flight.FlightError) as caught:
        list(fetch(door.location, door.token, encode_ticket(LiveTicket(13, 1, {}, ("n",)))))
    assert explain(caught.value) == "no stream 13\n  hint: count again [stream-not-found]"


GOOD = encode_ticket(LiveTicket(7, 1, {3: OffsetRange(1, 5)}, ("n", "_offset"), Compare("<", "n", 1)))


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"[]",
        GOOD[:-1],
        GOOD.replace(b"[1,5]", b"[5,1]"),
        GOOD.replace(b"[1,5]", b"[-1,5]"),
        GOOD.replace(b"[1,5]", b"[1,99999999999999999999]"),
        GOOD.replace(b'"3"', b'"3000"'),
        GOOD.replace(b'"stream"', b'"straem"'),
        GOOD.replace(b'"stream":7', b'"stream":7,"extra":1'),
        GOOD.replace(b'"compare"', b'"exec"'),
        GOOD.replace(b'"_offset"', b'"n"'),
        GOOD.replace(b'["n","_offset"]', b"[]"),
        b'{"stream":' + b"[" * 100_000,
        b" " * 6_000_000 + GOOD,
    ],
)
def test_what_is_not_a_ticket_is_refused(door: FlightDoor, source: Numbers, ticket: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_ticket(ticket)
    with pytest.raises(flight.FlightError):
        list(fetch(door.location, door.token, ticket))
    assert source.tickets == []


def test_a_ticket_survives_its_journey() -> None:
    assert encode_ticket(decode_ticket(GOOD)) == GOOD


def test_closing_ends_streams_that_are_being_served(source: Numbers) -> None:
    door = FlightDoor(source, token=TOKEN)
    batches = fetch_live(door.location, door.token, LiveTicket(8, 1, {}, ("n",)))
    next(batches)
    closer = threading.Thread(target=door.close)
    closer.start()
    source.go_on.set()
    with pytest.raises((PondClosed, Unavailable)):
        for _ in batches:
            pass
    closer.join(10)
    assert not closer.is_alive()
    assert source.ended.is_set()
    door.close()


def test_a_stream_ends_when_its_reader_has_gone(door: FlightDoor, source: Numbers) -> None:
    batches = fetch_live(door.location, door.token, LiveTicket(8, 1, {}, ("n",)))
    next(batches)
    batches.close()
    source.go_on.set()
    assert source.ended.wait(10)


def test_a_door_that_is_not_there_is_an_error_with_a_hint() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable) as caught:
            list(fetch_live(f"grpc://127.0.0.1:{unused.getsockname()[1]}", "t", TICKET))
    assert caught.value.hint
