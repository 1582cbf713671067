"""Connections that misbehave: they hurt nobody but themselves, and none is kept for ever."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import millpond
from millpond.pond.tokens import TokenGate
from millpond.wire.access import RIGHTS
from millpond.wire.requests import CreateToken
from tests.serving import Served, serving

BODY = b'{"n": 1}'
POST = (
    b"POST /v1/streams/s/records HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)
FOLLOW = b"GET /v1/streams/s/records?follow=true&start=latest HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with little patience and few places."""
    limits = ["--request-seconds", "1s", "--idle-seconds", "1s", "--followers-max", "3"]
    with serving(tmp_path_factory.mktemp("hasty") / "pond", *limits) as running:
        running.create("s", schema="n bigint, `limit` string", keys=["n", "limit"])
        yield running
        assert running.stop() == 0


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.rest_port), timeout=30)


def count(served: Served) -> int:
    with served.client() as client:
        found: int = client.get("/v1/streams/s/count").json()["count"]
        return found


def test_one_clients_reset_takes_nobody_elses_answer(hasty: Served) -> None:
    """Answers of a group are sent together: one that cannot be sent must not keep the others."""
    stop = threading.Event()
    answered: list[int] = []
    failed: list[Exception] = []

    def well_behaved() -> None:
        try:
            with hasty.client(timeout=20.0) as client:
                for _ in range(150):
                    client.post("/v1/streams/s/records", json={"n": 1}).raise_for_status()
                    answered.append(1)
        except Exception as error:
            failed.append(error)

    def rude() -> None:
        while not stop.is_set():
            with connected(hasty) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(POST % len(BODY) + BODY)

    good = [threading.Thread(target=well_behaved) for _ in range(4)]
    bad = [threading.Thread(target=rude) for _ in range(4)]
    for thread in good + bad:
        thread.start()
    for thread in good:
        thread.join()
    stop.set()
    for thread in bad:
        thread.join()
    assert failed == []
    assert len(answered) == 600


def test_a_follower_with_a_request_behind_it_is_forgotten_when_it_goes(hasty: Served) -> None:
    for _ in range(4):
        with connected(hasty) as connection:
            connection.sendall(FOLLOW + FOLLOW)
            assert connection.recv(15).startswith(b"HTTP/1.1 200")
    with hasty.client() as client:
        for _ in range(100):  # each a moment in which the server may notice
            with client.stream("GET", "/v1/streams/s/records", params={"follow": "true"}) as answer:
                if answer.status_code == 200:
                    return
    raise AssertionError("no place is free: the followers that went still hold theirs")


@pytest.mark.parametrize(
    "sent",
    [
        POST % 10,
        POST % 10 + b"{",
        b"POST /v1/streams/s/records HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: loc",
        b"",
    ],
    ids=["no body", "half a body", "no chunk", "a stray line", "half a head", "nothing"],
)
def test_a_connection_that_owes_something_is_closed(hasty: Served, sent: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(sent)
        while connection.recv(65_536):  # an answer, perhaps; then the end, or the time-out of this socket
            pass


def test_a_record_that_is_kept_is_acknowledged_whatever_follows_it(hasty: Served) -> None:
    """Otherwise whoever sent a wrong length would send the record again."""
    before = count(hasty)
    with connected(hasty) as connection:
        connection.sendall(POST % len(BODY) + BODY + b"} this is no request\r\n\r\n")
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["durability"] == "disk"
    assert count(hasty) == before + 1


def test_a_key_may_be_called_as_a_parameter_is(hasty: Served) -> None:
    with hasty.client() as client:
        client.post("/v1/streams/s/records", json={"n": 99, "limit": "high"}).raise_for_status()
        found = client.get("/v1/streams/s/get", params={"key": "high", "by": "limit"}).json()["records"]
    assert [record["n"] for record in found] == [99]


def test_a_request_counts_once_against_its_rate(tmp_path: Path) -> None:
    with serving(tmp_path / "pond") as first:
        first.create("s", schema="n bigint")
        assert first.stop() == 0
    rate = ["--requests-per-second", "0.001", "--requests-burst", "1"]
    with serving(tmp_path / "pond", *rate) as strict, strict.client() as client:
        assert client.post("/v1/streams/s/records", json=[{"n": 1}, {"n": 2}]).status_code == 200
        assert client.post("/v1/streams/s/records", json=[{"n": 3}]).status_code == 429


def test_revoking_a_token_ends_what_it_follows(tmp_path: Path) -> None:
    millpond.open(tmp_path / "pond").close()
    boss = TokenGate(str(tmp_path / "pond")).create(CreateToken("boss", RIGHTS, ("",))).token
    with serving(tmp_path / "pond", token=boss) as running, running.client() as client:
        running.create("s", schema="n bigint")
        reading = client.post("/v1/tokens", json={"name": "reader", "rights": ["read"]}).json()["token"]
        headers = {"authorization": f"Bearer {reading}"}
        with (
            httpx.Client(base_url=running.url, headers=headers, trust_env=False, timeout=30) as other,
            other.stream("GET", "/v1/streams/s/records", params={"follow": "true"}) as answer,
        ):
            assert answer.status_code == 200
            assert client.delete("/v1/tokens/reader").status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):  # ended without its end
                answer.read()


def answers(connection: socket.socket, count: int) -> list[tuple[dict[str, str], dict[str, object]]]:
    """The headers and bodies of so many answers with 200."""
    found = []
    with connection.makefile("rb") as lines:
        for _ in range(count):
            assert lines.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = {}
            while (line := lines.readline()) != b"\r\n":
                name, _, value = line.decode().strip().partition(": ")
                headers[name] = value
            found.append((headers, json.loads(lines.read(int(headers["content-length"])))))
    return found


def test_an_event_is_answered_as_any_other_request(hasty: Served) -> None:
    """Its answer takes a way of its own, unless the client asks for the connection to be closed."""
    event = (POST % len(BODY)) + BODY
    with connected(hasty) as kept, connected(hasty) as closed:
        kept.sendall(event)
        ((quick, _),) = answers(kept, 1)
        closed.sendall(event.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        ((usual, _),) = answers(closed, 1)
        assert closed.recv(1) == b""
    assert usual.pop("connection") == "close"
    assert quick.pop("date").endswith("GMT")
    usual.pop("date")
    assert list(quick) == list(usual)
    assert quick["content-type"] == usual["content-type"] == "application/json"


def test_events_that_are_sent_in_one_go_are_answered_in_their_order(hasty: Served) -> None:
    before = count(hasty)
    with connected(hasty) as connection:
        connection.sendall(((POST % len(BODY)) + BODY) * 40)
        found = [body["ranges"] for _, body in answers(connection, 40)]
    assert [ranges["0"]["start"] for ranges in found] == list(range(before, before + 40))  # type: ignore[index]
