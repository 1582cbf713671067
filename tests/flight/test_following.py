"""Followers: credit, heartbeats, and what becomes of those who go away or say nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import millpond
from millpond.errors import OffsetGone, StreamNotFound, TooLarge, TooManyRequests, Unavailable
from millpond.flight import FlightDoor, FlightLink, Limits
from millpond.flight.messages import Credit, decode_note
from millpond.flight.sockets import cut_peer
from millpond.pond.desk import FOLLOWED_BYTES, PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING
from millpond.wire.requests import Append, Read, Scan
from tests.flight.conftest import STREAM, Node, options, put_many, readings

DEADLINE_SECONDS = 30.0


class Exchange:
    """A follower that is not ours."""

    def __init__(self, node: Node, **fields: Any) -> None:
        command = json.dumps({"do": "read", "stream": STREAM, "follow": True, **fields})
        self.writer, self.reader = node.client().do_exchange(flight.FlightDescriptor.for_command(command), options())

    def grant(self, size: int) -> None:
        self.writer.write_metadata(json.dumps({"credit": size}).encode())

    def next(self) -> tuple[pa.RecordBatch | None, dict[str, Any]]:
        chunk = self.reader.read_chunk()
        return chunk.data, json.loads(chunk.app_metadata.to_pybytes())

    def to_the_end(self) -> None:
        while True:
            self.next()

    def until_beat(self) -> Iterator[pa.RecordBatch]:
        """What is pushed before the next heartbeat."""
        while True:
            batch, note = self.next()
            if batch is None:
                assert set(note) == {"position"}
                return
            yield batch


def quick(**more: Any) -> Limits:
    return Limits(**{"heartbeat_seconds": 0.1, "close_seconds": 1.0, **more})


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def wait_until(what: Callable[[], bool]) -> None:
    """Look now and then, for as long as two busy cores may take."""
    ended = threading.Event()
    for _ in range(int(DEADLINE_SECONDS / 0.05)):
        if what():
            return
        ended.wait(0.05)
    raise AssertionError("it never came true")


def test_who_grants_little_gets_little(make_node: Callable[..., Node]) -> None:
    node = make_node(quick())
    node.stream.append(readings(*range(10_000)))
    follower = Exchange(node, batch_rows=100)
    assert list(follower.until_beat()) == []  # where it stands, and nothing without credit
    follower.grant(1)
    (first,) = follower.until_beat()
    assert first.num_rows == 100
    assert list(follower.until_beat()) == []
    follower.grant(first.nbytes - 1 + 3 * first.nbytes)  # what was overdrawn counts
    assert 2 <= len(list(follower.until_beat())) <= 4
    follower.reader.cancel()


def test_credit_is_what_the_batches_take(make_node: Callable[..., Node]) -> None:
    node = make_node(quick())
    node.stream.append(readings(*range(50_000)))
    follower = Exchange(node, batch_rows=500)
    list(follower.until_beat())
    for granted in (10_000, 50_000, 100_000):
        follower.grant(granted)
        sizes = [batch.nbytes for batch in follower.until_beat()]
        assert sum(sizes) - max(sizes) < granted + 30_000
        assert sum(sizes) >= granted - 30_000
    follower.reader.cancel()


def test_a_follower_is_sent_little_at_once(make_node: Callable[..., Node]) -> None:
    """However large the batches that were appended are: a slow one holds a batch in the node's memory."""
    node = make_node(quick())
    node.stream.append(readings(*range(100_000)))
    follower = Exchange(node)
    list(follower.until_beat())
    follower.grant(100_000_000)
    sizes = [batch.nbytes for batch in follower.until_beat()]
    assert sum(sizes) > 4 * FOLLOWED_BYTES
    assert max(sizes) <= FOLLOWED_BYTES
    follower.reader.cancel()


def test_what_is_no_credit_ends_the_exchange(node: Node) -> None:
    for said in (b"{}x", b'{"credit": -1}', b'{"credit": "much"}', b'{"more": 1}'):
        follower = Exchange(node)
        follower.writer.write_metadata(said)
        with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
            follower.to_the_end()
        assert b"invalid-input" in caught.value.extra_info


def test_a_follower_that_vanishes_is_let_go_of(make_node: Callable[..., Node]) -> None:
    node = make_node(quick(streams_max=1))
    follower = Exchange(node)
    follower.grant(1_000)
    follower.next()
    with pytest.raises(TooManyRequests):
        node.link().fetch(Scan(STREAM))
    follower.reader.cancel()
    wait_until(lambda: threads("millpond-push") == 0)
    node.stream.append(readings(1))
    assert _fetched(node) == 1


def _fetched(node: Node) -> int:
    found = []

    def fetched() -> bool:
        with suppress(TooManyRequests):
            found.append(sum(batch.num_rows for batch in node.link().fetch(Scan(STREAM)).batches))
        return bool(found)

    wait_until(fetched)
    return found[0]


def test_a_follower_that_never_answers_is_cut_off(make_node: Callable[..., Node]) -> None:
    node = make_node(quick(idle_seconds=0.3))
    follower = Exchange(node)
    with pytest.raises((flight.FlightError, pa.ArrowException)):
        follower.to_the_end()
    wait_until(lambda: threads("millpond-push") == 0)


def test_our_follower_answers_and_stays(make_node: Callable[..., Node]) -> None:
    node = make_node(quick(idle_seconds=0.5))
    with node.link().follow(Read(STREAM, start="latest", follow=True)) as reader:
        for _ in range(6):  # longer than a silent one would be let stay
            assert reader.poll() is None
        node.stream.append(readings(7))
        assert next(iter(reader))["temp"].to_pylist() == [7]


def test_closing_the_door_ends_followers_and_puts(node: Node) -> None:
    link = node.link()
    put = link.put(Append(STREAM))
    put.write(readings(1))
    put.next_ack()
    reader = link.follow(Read(STREAM, follow=True))
    assert next(iter(reader)).num_rows == 1
    node.door.close()

    def read_on() -> None:
        while not reader.closed:
            reader.poll()

    with pytest.raises(Unavailable):  # the stream has no end: the node is going
        read_on()
    with pytest.raises(Unavailable):
        put_many(put)
    wait_until(lambda: threads("millpond-push") == 0)


def test_a_door_closes_although_a_client_does_nothing(make_node: Callable[..., Node]) -> None:
    """One that has a put open, and one that never reads what it is sent."""
    node = make_node(Limits(close_seconds=0.5))
    for n in range(10):
        node.stream.append(readings(*range(n, n + 20_000)))
    client = node.client()
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(STREAM), readings(1).schema, options())
    writer.write_batch(readings(1))
    reader = client.do_get(flight.Ticket(b'{"do":"scan","stream":"grid/meters"}'), options())
    closing = threading.Thread(target=node.door.close)
    closing.start()
    closing.join(DEADLINE_SECONDS)
    assert not closing.is_alive()
    with suppress(flight.FlightError, pa.ArrowException):  # it may have been sent all before
        reader.read_all()
    with pytest.raises((flight.FlightError, pa.ArrowException)):
        writer.close()


def test_a_drop_is_told_to_its_followers(node: Node) -> None:
    reader = node.link().follow(Read(STREAM, follow=True))
    node.pond.drop_stream(STREAM)
    with pytest.raises((StreamNotFound, OffsetGone)):
        wait_until(lambda: reader.poll() is None and reader.closed)


def test_errors_of_the_request_are_raised_at_once(node: Node) -> None:
    with pytest.raises(StreamNotFound):
        node.link().follow(Read("grid/nobody", follow=True))


def test_a_slow_reader_holds_no_more_than_its_window(node: Node) -> None:
    """What it has not taken stays where it is."""
    for n in range(40):
        node.stream.append(readings(*range(n * 5_000, n * 5_000 + 5_000)))
    link: FlightLink = node.link()
    with link.follow(Read(STREAM, follow=True, batch_rows=1_000), window_bytes=200_000) as reader:
        first = next(iter(reader))
        held: list[int] = []

        def settled() -> bool:
            held.append(reader._arrived.qsize())
            return len(held) > 5 and len(set(held[-5:])) == 1

        wait_until(settled)
        assert 1 <= held[-1] <= 200_000 // first.nbytes + 2
        rest = 0
        while rest < 199_000:
            rest += next(iter(reader)).num_rows
        assert rest == 199_000


def test_notes_that_are_large_are_refused() -> None:
    with pytest.raises(TooLarge):
        decode_note(b" " * 20_000 + b"{}", Credit)


def test_a_read_that_a_closing_door_cuts_short_does_not_look_whole(tmp_path: Path) -> None:
    """The end is said where there is one: half of a stream must not pass for all of it."""
    with millpond.open(tmp_path / "pond", background=False) as pond:
        stream = pond.create_stream("s", pa.schema([("n", pa.int64())]))
        stream.append([{"n": n} for n in range(20_000)])
        door = FlightDoor(PondDesk(pond, SecretGate("s", EVERYTHING)), token="s", limits=Limits(close_seconds=0.5))
        with FlightLink(door.location, "s") as link:
            reader = link.follow(Read("s", batch_rows=100), window_bytes=1)
            wait_until(lambda: reader.poll() is not None)
            closing = threading.Thread(target=door.close)
            closing.start()

            def read_on() -> None:
                while reader.poll() is not None or not reader.closed:
                    pass

            with pytest.raises(Unavailable):
                read_on()
            closing.join()


def test_a_follower_is_sent_batches_and_sends_none(node: Node) -> None:
    exchange = Exchange(node)
    exchange.writer.begin(readings(1).schema)
    exchange.writer.write_batch(readings(1))
    with pytest.raises(flight.FlightError, match="batch"):
        exchange.to_the_end()


def test_a_caller_is_found_among_the_connections() -> None:
    """As gRPC names it, whatever kind of socket it listens on."""
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening,
        socket.create_connection(("127.0.0.1", listening.getsockname()[1])) as caller,
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert cut_peer(f"ipv4:127.0.0.1:{caller.getsockname()[1]}") == 1
            caller.settimeout(10)
            assert caller.recv(1) == b""
