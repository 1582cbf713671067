"""Which names and origins a request may carry: what a browser can be made to send from a foreign page is refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import Forbidden, InvalidInput, InvalidValue
from millpond.serve.hosts import HostCheck, parse_host, parse_origin

LOCAL = HostCheck((), "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "127.0.0.1:7070",
            "localhost",
            "localhost:7070",
            "LocalHost:7070",
            "localhost.",
            "localhost.:80",
        ),
        *("[::1]", "[::1]:7070", "[0:0:0:0:0:0:0:1]:7070", "127.0.0.2", "localhost:"),
    ],
)
def test_loopback_is_accepted_by_any_of_its_names(host: str) -> None:
    assert LOCAL.accepts_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:7070", "localhostt"),
        *("", ".", "..", "localhost..", ":7070", "local host", " localhost", "localhost ", "localhost\r\nX: y"),
        *("localhost\n", "localhost\x00", "localhost:99999", "localhost:0", "localhost:-1", "localhost:7070:7070"),
        *("user@localhost", "localhost/evil", "localhost?x", "localhost#x", "http://localhost", "localhost,evil"),
        *("::1", "[::1", "::1]", "[::1%lo]", "[localhost]", "[127.0.0.1]", "[::ffff:8.8.8.8]", "[]", "[::1]x"),
        *(
            "192.168.1.5",
            "0.0.0.0",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "%6cocalhost",
            "loca\u006chost\u200b",
            "ⅼocalhost",
        ),
        "a" * 300,
    ],
)
def test_any_other_name_is_refused(host: str) -> None:
    assert not LOCAL.accepts_host(host)
    with pytest.raises((Forbidden, InvalidInput)):
        LOCAL.check(host, None)


def test_a_request_without_a_host_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no Host"):
        LOCAL.check(None, None)


def test_the_bound_address_and_what_is_configured_are_accepted() -> None:
    check = HostCheck(["Pond.Example", "proxy.example:443", "2001:db8::1"], "192.168.1.5")
    for host in ("192.168.1.5:7070", "pond.example", "POND.example.:9", "proxy.example:443", "[2001:DB8:0::1]:7070"):
        assert check.accepts_host(host), host
    for host in ("192.168.1.6", "sub.pond.example", "example", "proxy.example:80", "proxy.example", "[2001:db8::2]"):
        assert not check.accepts_host(host), host


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "[::]"])
def test_a_server_on_every_address_takes_addresses_and_no_names(bound: str) -> None:
    check = HostCheck((), bound)
    for host in ("10.1.2.3:7070", "[2001:db8::7]:7070", "localhost", "127.0.0.1"):
        assert check.accepts_host(host), host
    assert not check.accepts_host("evil.example")
    assert not check.accepts_host("10.1.2.3.evil.example")


def test_a_star_takes_any_name_that_is_one() -> None:
    check = HostCheck(["*"], "0.0.0.0")
    assert check.accepts_host("anything.example:1")
    assert not check.accepts_host("any thing")


@pytest.mark.parametrize("entry", ["", "a b", "http://pond.example", "pond.example/", "a:b:c"])
def test_a_configured_host_that_is_none_is_an_error(entry: str) -> None:
    with pytest.raises(InvalidValue, match="allowed_hosts"):
        HostCheck([entry], "127.0.0.1")


@pytest.mark.parametrize("entry", ["", "*", "null", "pond.example", "ftp://pond.example", "https://a/b"])
def test_a_configured_origin_that_is_none_is_an_error(entry: str) -> None:
    with pytest.raises(InvalidValue, match="allowed_origins"):
        HostCheck([], "127.0.0.1", [entry])


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:7070", "localhost:7070"),
        ("http://LOCALHOST:7070", "localhost.:7070"),
        ("http://localhost", "localhost"),
        ("http://localhost:80", "localhost"),
        ("https://localhost", "localhost:443"),
        ("https://localhost", "localhost"),
        ("http://[::1]:7070", "[0::1]:7070"),
        ("https://ops.example", "localhost:7070"),
        ("https://ops.example:443", "127.0.0.1:7070"),
    ],
)
def test_our_own_pages_and_configured_ones_may_call(origin: str, host: str) -> None:
    check = HostCheck((), "127.0.0.1", ["https://ops.example/"])
    assert check.accepts_origin(origin, host)
    check.check(host, origin)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "localhost:7070"),
        ("http://localhost:3000", "localhost:7070"),
        ("http://localhost", "localhost:7070"),
        ("http://127.0.0.1:7070", "localhost:7070"),
        ("http://ops.example", "localhost:7070"),
        ("https://ops.example:8443", "localhost:7070"),
        ("null", "localhost:7070"),
        ("", "localhost:7070"),
        ("file://", "localhost:7070"),
        ("http://localhost:7070.evil.example", "localhost:7070"),
        ("http://localhost:7070/", "localhost:7070"),
        ("http://user@localhost:7070", "localhost:7070"),
        ("http://localhost:7070 http://evil.example", "localhost:7070"),
        ("chrome-extension://abc", "localhost:7070"),
    ],
)
def test_foreign_pages_may_not_call(origin: str, host: str) -> None:
    check = HostCheck((), "127.0.0.1", ["https://ops.example"])
    assert not check.accepts_origin(origin, host)
    with pytest.raises(Forbidden):
        check.check(host, origin)


def test_without_an_origin_it_is_no_browser() -> None:
    LOCAL.check("localhost:7070", None)


NAMES = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]{1,20}\.){0,3}[A-Za-z0-9_-]{1,20}", fullmatch=True)


@given(st.text())
def test_no_text_upsets_the_parsers(text: str) -> None:
    host, origin = parse_host(text), parse_origin(text)
    if host is not None:
        assert text.isascii()
        assert not set(host.name) & set("/@?#% \r\n\t\x00,;")
    assert origin is None or host is None


@given(NAMES, st.integers(1, 65_535))
def test_spelling_does_not_matter(name: str, port: int) -> None:
    assert parse_host(f"{name.upper()}:{port}") == parse_host(f"{name.lower()}.:{port}")
    assert parse_host(name) == (name.lower(), None)


@given(st.ip_addresses(v=6), st.integers(1, 65_535))
def test_an_address_has_one_spelling(address: ipaddress.IPv6Address, port: int) -> None:
    assert parse_host(f"[{address.exploded.upper()}]:{port}") == (str(address), port)


@given(NAMES)
def test_only_names_on_the_list_are_accepted(name: str) -> None:
    check = HostCheck(["pond.example"], "127.0.0.1")
    known = {"pond.example", "localhost", "localhost.localdomain", "ip6-localhost"}
    if check.accepts_host(name):
        assert name.lower() in known or ipaddress.ip_address(name).is_loopback
