"""The link: what it asks comes back as what it was, also when the node is away."""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
import trustme

from millpond.errors import (
    Forbidden,
    InvalidRecord,
    InvalidValue,
    PondClosed,
    StreamNotFound,
    Unauthenticated,
    Unavailable,
)
from millpond.flight import FlightLink
from millpond.flight import link as linking
from millpond.model.offsets import OffsetRange
from millpond.wire.answers import Counted
from millpond.wire.requests import Append, CountRows, Describe, Get, ListStreams, Read, Scan
from millpond.wire.tls import Tls
from tests.flight.conftest import ALL, SCHEMA, STREAM, Node, put_many, readings
from tests.serving import wait_until


def test_calls_and_fetches_answer(node: Node) -> None:
    node.stream.append(readings(1, 2, 3))
    link = node.link()
    assert msgspec.json.decode(link.call(CountRows(STREAM)), type=Counted) == Counted(3)
    schema, batches = link.fetch(Scan(STREAM, where="temp > 1"))
    assert schema == SCHEMA
    assert pa.Table.from_batches(batches, schema)["temp"].to_pylist() == [2, 3]
    assert [b.num_rows for b in link.fetch(Read(STREAM, start=1)).batches] == [2]
    assert [b.num_rows for b in link.fetch(Get(STREAM, "m-2")).batches] == [1]
    assert link.flight_info(STREAM).total_records == 3


def test_appends_go_one_after_the_other_over_one_put(node: Node) -> None:
    link = node.link()
    acks = [link.append(Append(STREAM), readings(n)) for n in range(20)]
    assert [ack.ranges for ack in acks] == [{0: OffsetRange(n, n + 1)} for n in range(20)]
    assert len(link._kept) == 1


def test_a_put_that_nobody_uses_gives_its_place_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "_KEPT_SECONDS", 0.01)
    link, places = node.link(), node.door._server._streams._free
    free = places._value
    link.append(Append(STREAM), readings(1))
    wait_until(lambda: not link._kept and places._value == free, "its place is free again")
    link.append(Append(STREAM), readings(2))
    wait_until(lambda: not link._kept and places._value == free, "its place is free again, a second time")
    assert node.stream.count() == 2


def test_a_retried_append_is_kept_once(node: Node) -> None:
    link = node.link()
    first = link.append(Append(STREAM, producer="p", sequence=1), readings(1))
    again = link.append(Append(STREAM, producer="p", sequence=1), readings(1))
    assert (again.ranges, again.duplicate) == (first.ranges, True)
    assert node.stream.count() == 1


def test_a_failed_append_says_what_was_wrong_and_the_next_goes_through(node: Node) -> None:
    link = node.link()
    with pytest.raises(InvalidRecord, match="more"):
        link.append(Append(STREAM), pa.record_batch({"more": [1]}))
    assert link.append(Append(STREAM), readings(1)).ranges == {0: OffsetRange(0, 1)}


def test_a_put_gives_its_acks_in_order(node: Node) -> None:
    with node.link().put(Append(STREAM, durability="disk")) as put:
        for n in range(100):
            put.write(readings(n))
        acks = list(put.acks())
    assert [ack.ranges[0].start for ack in acks] == list(range(100))
    assert {ack.durability for ack in acks} == {"disk"}
    put.done()
    with pytest.raises(InvalidValue):
        put.write(readings(1))


def test_acks_can_be_taken_after_the_end(node: Node) -> None:
    with node.link().put(Append(STREAM)) as put:
        for n in range(10):
            put.write(readings(n))
    assert len(list(put.acks())) == 10
    with pytest.raises(InvalidValue):
        put.next_ack()


def test_a_put_that_fails_says_so_whatever_is_done_next(node: Node) -> None:
    put = node.link("read").put(Append(STREAM))
    with pytest.raises(Forbidden):
        put_many(put)
    with pytest.raises(Forbidden):
        put.done()
    assert node.stream.count() == 0


def test_dictionaries_are_sent_as_what_they_stand_for(node: Node) -> None:
    batch = pa.record_batch({"vid": pa.array(["a", "b", "a"]).dictionary_encode(), "temp": [1.0, 2.0, 3.0]})
    assert node.link().append(Append(STREAM), batch).ranges == {0: OffsetRange(0, 3)}
    assert node.stream.scan()["vid"].to_pylist() == ["a", "b", "a"]


def test_errors_keep_their_class_message_and_hint(node: Node) -> None:
    with pytest.raises(StreamNotFound) as caught:
        node.link().call(Describe("grid/nobody"))
    assert (caught.value.message, caught.value.hint) == ("no stream 'grid/nobody'", f"streams: {STREAM}")
    with pytest.raises(Unauthenticated):
        node.link("unknown").call(ListStreams())
    with pytest.raises(Unauthenticated):
        node.link(None).fetch(Scan(STREAM))


def test_a_server_that_is_away_is_named_with_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        location = f"grpc://127.0.0.1:{unused.getsockname()[1]}"
        with FlightLink(location, "t") as link:
            for act in (
                lambda: link.call(ListStreams()),
                lambda: link.fetch(Scan("a")),
                lambda: link.append(Append("a"), readings(1)),
                lambda: link.follow(Read("a", follow=True)),
            ):
                with pytest.raises(Unavailable, match=location) as caught:
                    act()
                assert caught.value.hint


@pytest.mark.parametrize("location", ["", "nonsense", "http://x:1", "grpc://", "grpc+tls"])
def test_what_is_no_location_is_refused(location: str) -> None:
    with pytest.raises((InvalidValue, Unavailable)):
        FlightLink(location).call(ListStreams())


def test_a_closed_link_says_so(node: Node) -> None:
    link = node.link()
    link.append(Append(STREAM), readings(1))
    link.close()
    link.close()
    for act in (lambda: link.call(ListStreams()), lambda: link.append(Append(STREAM), readings(1))):
        with pytest.raises(PondClosed):
            act()


# TLS.


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def _tls(authority: trustme.CA, *, mutual: bool) -> Tls:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    roots = authority.cert_pem.bytes() if mutual else None
    return Tls(chain, issued.private_key_pem.bytes(), roots)


def test_tls_takes_whoever_trusts_the_authority(make_node: Callable[..., Node], authority: trustme.CA) -> None:
    tls = _tls(authority, mutual=False)
    node = make_node(tls=tls)
    assert node.door.location.startswith("grpc+tls://127.0.0.1:")
    link = node.link(tls_roots=authority.cert_pem.bytes())
    assert link.append(Append(STREAM), readings(1)).ranges == {0: OffsetRange(0, 1)}
    with pytest.raises(Unavailable):
        node.link(tls_roots=trustme.CA().cert_pem.bytes(), timeout_seconds=20).call(ListStreams())
    with FlightLink(f"grpc://127.0.0.1:{node.door.port}", ALL, timeout_seconds=20) as plain, pytest.raises(Unavailable):
        plain.call(ListStreams())
    assert tls.key.decode() not in repr(tls)


def test_mutual_tls_takes_only_those_with_a_certificate(make_node: Callable[..., Node], authority: trustme.CA) -> None:
    node = make_node(tls=_tls(authority, mutual=True))
    roots = authority.cert_pem.bytes()
    mine = authority.issue_cert("client@example.org")
    known = node.link(tls_roots=roots, certificate=mine.cert_chain_pems[0].bytes(), key=mine.private_key_pem.bytes())
    assert known.call(ListStreams())
    with pytest.raises(Unavailable):
        node.link(tls_roots=roots, timeout_seconds=20).call(ListStreams())
    other = trustme.CA().issue_cert("client@example.org")
    foreign = node.link(
        tls_roots=roots,
        certificate=other.cert_chain_pems[0].bytes(),
        key=other.private_key_pem.bytes(),
        timeout_seconds=20,
    )
    with pytest.raises(Unavailable):
        foreign.call(ListStreams())
    with pytest.raises(Unauthenticated):
        node.link(
            "unknown", tls_roots=roots, certificate=mine.cert_chain_pems[0].bytes(), key=mine.private_key_pem.bytes()
        ).call(ListStreams())
