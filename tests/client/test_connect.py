"""Connecting: by every kind of URL, to a real server; and what is said where there is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.cli.exits import Exit
from millpond.client.address import Address, location_of
from millpond.errors import Forbidden, InvalidValue, PondClosed, StreamNotFound, Unauthenticated, Unavailable
from millpond.pond.tokens import TokenGate
from millpond.wire.access import Grant
from millpond.wire.answers import Node
from millpond.wire.requests import CreateToken
from tests.cli.conftest import Commands
from tests.client.conftest import NUMBERS, SECRET, Certificates, Served
from tests.client.proxy import Proxy
from tests.serving import serving


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_by_http_and_straight_to_flight(tmp_path: Path) -> None:
    with serving(tmp_path / "pond") as server:
        with millpond.connect(server.url) as pond:
            stream = pond.create_stream("numbers", NUMBERS)
            stream.append({"n": 1})
            node = pond.node()
            assert (node.flight_port, node.flight_tls) == (server.flight_port, False)
            assert pond.id == node.pond
            assert pond.path == server.url
        with millpond.connect(server.flight) as pond:
            assert pond.stream("numbers").count() == 1
        assert server.stop() == 0
    assert server.complaints() == []


def test_with_tls_and_a_token(tmp_path: Path, certificates: Certificates) -> None:
    ca, cert, key = certificates
    path = tmp_path / "pond"
    millpond.open(path).close()
    token = TokenGate(str(path)).create(CreateToken("me", ("read", "write", "admin"))).token
    with serving(path, "--tls-certificate", str(cert), "--tls-key", str(key)) as server:
        url = server.url.replace("http:", "https:")
        with millpond.connect(url, token, ca=ca) as pond:
            pond.create_stream("numbers", NUMBERS).append({"n": 1})
            assert pond.node().flight_tls
        with millpond.connect(server.flight.replace("grpc:", "grpc+tls:"), token, ca=ca) as pond:
            assert pond.stream("numbers").count() == 1
        listed = Commands(path)("streams", "--json", "--pond", url, "--token", token, "--ca", str(ca)).several
        assert [each["name"] for each in listed] == ["numbers"]
        with pytest.raises(Unavailable, match="is not trusted") as untrusted:
            millpond.connect(url, token)
        assert "--ca" in untrusted.value.hint
        for wrong in (url, server.flight.replace("grpc:", "grpc+tls:")):
            with pytest.raises(Unauthenticated):
                millpond.connect(wrong, "not-" + token, ca=ca)
        with pytest.raises(Unavailable):
            millpond.connect(server.url, token, timeout="10s")  # TLS is spoken there


def test_with_mutual_tls(tmp_path: Path, certificates: Certificates) -> None:
    ca, cert, key = certificates
    path = tmp_path / "pond"
    millpond.open(path).close()
    options = ("--tls-certificate", str(cert), "--tls-key", str(key), "--tls-client-roots", str(ca))
    with serving(path, *options) as server:
        url, flight = server.url.replace("http:", "https:"), server.flight.replace("grpc:", "grpc+tls:")
        for address in (url, flight):
            with millpond.connect(address, ca=ca, certificate=cert, key=key) as pond:
                assert pond.streams() == []
            with pytest.raises(Unavailable):
                millpond.connect(address, ca=ca, timeout="10s")


def test_a_server_that_is_away() -> None:
    for scheme in ("http", "grpc"):
        with pytest.raises(Unavailable, match="does not answer"):
            millpond.connect(f"{scheme}://127.0.0.1:{free_port()}")


def test_a_wrong_token_and_none(served: Served) -> None:
    for token in ("wrong", None):
        with pytest.raises(Unauthenticated) as refused:
            millpond.connect(served.door.location, token)
        assert "wrong'" not in str(refused.value)


class _Page(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>It works!</h1>")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Missing(_Page):
    status = 404


@contextmanager
def listening(page: type[_Page]) -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("page", [_Page, _Missing])
def test_something_that_is_not_millpond(page: type[_Page]) -> None:
    with listening(page) as port:
        with pytest.raises(Unavailable, match="not as Millpond does"):
            millpond.connect(f"http://127.0.0.1:{port}")
        with pytest.raises(Unavailable):
            millpond.connect(f"grpc://127.0.0.1:{port}", timeout="5s")


def test_something_that_does_not_even_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(Unavailable, match="not as Millpond does"):
            millpond.connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "pond",
        "ftp://host:1",
        "grpc://host",
        "http://",
        "http://host:99999",
        "http://host:1/v1",
        "http://host:1?a=b",
        "http://a..b:7070",
        f"http://{'a' * 64}.example:7070",
        "http://ho st:70",
        "http://host:0",
        "http://[::zz]:70",
        "http://[::1",
    ],
)
def test_what_is_no_address_of_a_pond(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"not where a pond is served|not a URL"):
        millpond.connect(url)


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidValue) as refused:
        millpond.connect("http://me:hunter2@127.0.0.1:7070")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7070?token=hunter2",
        "http://127.0.0.1:7070/#hunter2",
        "http://127.0.0.1:7070/?token=a@hunter2",
        "http://me:hunter2@127.0.0.1:99999",
        "http://me:hunter2\u2100@127.0.0.1:7070",
        "http://me:hunter2@[::1",
        "ftp://hunter2@host:1",
    ],
)
def test_no_message_repeats_what_may_be_a_secret_in_a_url(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue) as refused:
        millpond.connect(url)
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    said = Commands(tmp_path)("init", "--pond", url, code=Exit.INVALID).talk
    assert "own directory" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("token", [f"{SECRET}\n", f"{SECRET} x", f"{SECRET}\r\nX: y", f"{SECRET}é", f"{SECRET}\0"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(served: Served, token: str) -> None:
    for url in (served.door.location, f"http://127.0.0.1:{served.port}"):
        with pytest.raises(InvalidValue, match="the token has") as refused:
            millpond.connect(url, token)
        assert SECRET not in f"{refused.value} {refused.value.hint}"


def test_a_variable_may_end_in_a_lines_end(served: Served, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    commands.environment["MILLPOND_TOKEN"] = f"{SECRET}\n"
    assert commands("streams", "--json", "--pond", served.door.location).several == []


def test_a_token_that_was_to_travel_under_tls_never_travels_without() -> None:
    node = Node("0.1.0", "pond", 7071, False, "me", ())
    with pytest.raises(InvalidValue, match="in the clear"):
        location_of(Address.parse("https://node.example:7070"), node)
    assert location_of(Address.parse("https://127.0.0.1:7070"), node) == "grpc://127.0.0.1:7071"
    assert location_of(Address.parse("https://[::1]:7070"), node) == "grpc://[::1]:7071"
    tls = Node("0.1.0", "pond", 7071, True, "me", ())
    assert location_of(Address.parse("https://node.example"), tls) == "grpc+tls://node.example:7071"
    with pytest.raises(Unavailable, match="no Flight door"):
        location_of(Address.parse("http://node.example"), Node("0.1.0", "pond", None, False, "me", ()))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is not a file"):
        millpond.connect("https://127.0.0.1:1", ca=tmp_path / "none.pem")
    with pytest.raises(InvalidValue, match="a key alone"):
        millpond.connect("https://127.0.0.1:1", certificate=__file__)


def test_nothing_shows_the_token(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    shown = [repr(each) for each in (pond, stream, stream.door(), stream.producer(), pond.node())]
    assert not [text for text in shown if SECRET in text]


def test_what_is_closed_says_so(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    producer = stream.producer(linger="10s")
    waiting = producer.append({"n": 1})
    pond.close()
    pond.close()
    assert waiting.result(0).durability == "disk", "producers are flushed first"
    for use in (pond.streams, stream.count, lambda: stream.append({"n": 2}), lambda: stream.read(), pond.node):
        with pytest.raises(PondClosed):
            use()
    assert served.pond.stream("numbers").count() == 1, "the served pond goes on"


def test_a_connection_that_was_cut_while_nobody_used_it_is_not_noticed_by_who_asks(served: Served) -> None:
    with Proxy(served.port) as proxy:
        pond = served.connect(proxy.port)
        stream = pond.create_stream("numbers", NUMBERS)
        stream.append({"n": 1})
        for ask in (stream.count, stream.scan, stream.status, lambda: list(stream.read()), pond.streams):
            proxy.cut()
            ask()
    with pytest.raises(Unavailable):
        stream.count()


def test_closing_finishes_every_producer_although_one_fails(served: Served) -> None:
    pond = served.connect()
    gone, stays = pond.create_stream("gone", NUMBERS), pond.create_stream("stays", NUMBERS)
    waiting = [stream.producer(linger="10s").append({"n": 1}) for stream in (gone, stays)]
    pond.drop_stream("gone")
    with pytest.raises(StreamNotFound):
        pond.close(settle=True)
    assert isinstance(waiting[0].exception(0), StreamNotFound)
    assert waiting[1].result(0).durability == "disk"
    assert served.pond.stream("stays").status().rows_settled == 1


def test_who_may_only_write_can_append_and_nothing_else(served: Served) -> None:
    served.pond.create_stream("grid/numbers", NUMBERS)
    served.pond.create_stream("other", NUMBERS)
    served.stop()
    served.start(Grant("grid", frozenset(("write",))))
    pond = served.connect()
    stream = pond.stream("grid/numbers")
    stream.append({"n": 1})
    with stream.producer() as producer:
        producer.append({"n": 2})
    assert sorted(served.pond.stream("grid/numbers").scan()["n"].to_pylist()) == [1, 2]
    assert [each.name for each in pond.streams()] == ["grid/numbers"]
    for use in (stream.count, stream.scan, stream.status, lambda: stream.read(), stream.snapshot, stream.settle):
        with pytest.raises(Forbidden):
            use()
    for forbidden in (lambda: pond.stream("other"), pond.status, pond.verify, pond.audit):
        with pytest.raises(Forbidden):
            forbidden()


def test_nobody_is_told_of_streams_that_he_has_no_right_on(served: Served) -> None:
    for name in ("grid/numbers", "secret/other"):
        served.pond.create_stream(name, NUMBERS)
    served.stop()
    served.start(Grant("grid", frozenset(("read",))))
    pond = served.connect()
    assert [each.name for each in pond.streams()] == ["grid/numbers"]
    with pytest.raises(StreamNotFound) as missing:
        pond.stream("grid/none")
    assert missing.value.hint == "streams: grid/numbers"
    with pytest.raises(Forbidden) as forbidden:
        pond.stream("secret/other")
    with pytest.raises(Forbidden) as unknown:
        pond.stream("secret/unknown")
    assert forbidden.value.message.replace("other", "unknown") == unknown.value.message


def test_what_others_change_is_noticed(served: Served) -> None:
    pond = served.connect()
    stream = pond.create_stream("numbers", NUMBERS)
    stream.append({"n": 1})
    served.pond.alter_stream("numbers", NUMBERS.append(pa.field("more", pa.string())))
    stream.append({"n": 2, "more": "yes"})
    stream.append({"n": 3})
    assert stream.schema.names[-1] == "more"
    assert stream.count("more = 'yes'") == 1
    served.pond.drop_stream("numbers")
    served.pond.create_stream("numbers", NUMBERS)
    with pytest.raises(millpond.errors.StreamNotFound, match="was dropped"):
        stream.schema  # noqa: B018
    assert pond.stream("numbers").count() == 0


def test_a_stream_that_may_only_be_written_is_listed_without_its_figures(served: Served, tmp_path: Path) -> None:
    served.pond.create_stream("grid/numbers", NUMBERS).append({"n": 1})
    served.pond.create_stream("other/numbers", NUMBERS)
    served.stop()
    served.start(Grant("grid", frozenset(("read",))), Grant("other", frozenset(("write",))))
    listed = Commands(tmp_path)(
        "streams", "--json", "--pond", f"grpc://127.0.0.1:{served.port}", "--token", SECRET
    ).several
    assert [(each["name"], each["records"]) for each in listed] == [("grid/numbers", 1), ("other/numbers", None)]
    assert listed[1]["schema"] == "n bigint, text string"
