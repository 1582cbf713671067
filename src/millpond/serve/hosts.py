"""Which `Host` and which `Origin` a request may carry.

A web page that somebody visits can send requests to this machine, also to loopback. Its browser says two things that
the page cannot forge. `Origin` is where the page came from: only the server's own pages and those of configured origins
may call. `Host` is the name by which the browser found us: a page that lets its own name point at 127.0.0.1 (DNS
rebinding) is of one origin with us in the browser's eyes, but the name gives it away. So names are taken by a list:
loopback, the address that is listened on, and what `allowed_hosts` adds. An address in figures cannot be rebound, so a
server that listens on every address takes any.

Whoever is not a browser sends no `Origin`, and a `Host` that it wrote itself: these checks are not what keeps it out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from millpond.errors import Forbidden, InvalidInput, InvalidValue
from millpond.serve.settings import LOOPBACK_NAMES, is_loopback

# A name with its dots or an address in brackets, and a port that may be empty (RFC 3986). Nothing else: no user, no
# path, no escapes, no blanks.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})))(?::([0-9]{0,5}))?\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY = "*"


class Host(NamedTuple):
    """A name or an address in its one spelling, and the port if there is one."""

    name: str
    port: int | None


def parse_host(text: str) -> Host | None:
    """A `Host` header's value; None if it is none."""
    found = _HOST.match(text)
    if found is None:
        return None
    six, name, figures = found.groups()
    port = int(figures) if figures else None
    if port is not None and not 0 < port < 65_536:
        return None
    if six is not None:
        try:
            return Host(str(ipaddress.IPv6Address(six)), port)
        except ValueError:
            return None
    return None if ".." in name else Host(name.lower().removesuffix("."), port)


def parse_origin(text: str) -> tuple[str, Host] | None:
    """The scheme and the host of an `Origin` header's value, the port always said; None if it is none (also `null`)."""
    scheme, separator, rest = text.partition("://")
    host = parse_host(rest) if separator and scheme.lower() in _DEFAULT_PORTS else None
    if host is None:
        return None
    scheme = scheme.lower()
    return scheme, Host(host.name, host.port or _DEFAULT_PORTS[scheme])


def is_address(name: str) -> bool:
    """Whether a host is an address in figures, which no name server can point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """What one server accepts. Immutable, and so thread-safe.

    `bound_host` is the address listened on. An entry of `allowed_hosts` is a name, with a port if only that is meant,
    or `*`; one of `allowed_origins` is a scheme, a host and, if it is not the usual one, a port.
    """

    def __init__(self, allowed_hosts: Iterable[str], bound_host: str, allowed_origins: Iterable[str] = ()) -> None:
        allowed = list(allowed_hosts)
        self._any_host = _ANY in allowed
        self._hosts = {_configured_host(each) for each in allowed if each != _ANY}
        self._origins = {_configured_origin(each) for each in allowed_origins}
        bound = bound_host.strip("[]")
        self._any_address = is_address(bound) and ipaddress.ip_address(bound).is_unspecified
        own = parse_host(f"[{bound}]" if ":" in bound else bound)
        self._own = {*LOOPBACK_NAMES, *([own.name] if own is not None else [])}

    def accepts_host(self, header: str) -> bool:
        """Whether a request may call us that."""
        host = parse_host(header)
        if host is None:
            return False
        if self._any_host or host.name in self._own or is_loopback(host.name):
            return True
        if self._any_address and is_address(host.name):
            return True
        return host in self._hosts or Host(host.name, None) in self._hosts

    def accepts_origin(self, origin: str, host: str) -> bool:
        """Whether a page from `origin` may send a request to `host`."""
        page = parse_origin(origin)
        if page is None:
            return False
        if page in self._origins:
            return True
        scheme, source = page
        called = parse_host(host)
        return called is not None and source == Host(called.name, called.port or _DEFAULT_PORTS[scheme])

    def check(self, host: str | None, origin: str | None) -> None:
        """`InvalidInput` without a `Host`, `Forbidden` with one or an `Origin` that is not accepted."""
        if host is None:
            raise InvalidInput("the request has no Host header", hint="HTTP/1.1 asks for one")
        if not self.accepts_host(host):
            raise Forbidden(
                f"the server is not called {host[:100]!r}",
                hint="allowed_hosts of the server names what it may be called, besides loopback and its address",
            )
        if origin is not None and not self.accepts_origin(origin, host):
            raise Forbidden(
                f"pages of {origin[:100]!r} may not call here",
                hint="allowed_origins of the server names the origins that may",
            )


def _configured_host(text: str) -> Host:
    host = parse_host(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    if host is None:
        raise InvalidValue(f"allowed_hosts: {text!r} is no host", hint="a name or an address, e.g. pond.example")
    return host


def _configured_origin(text: str) -> tuple[str, Host]:
    origin = parse_origin(text.removesuffix("/"))
    if origin is None:
        raise InvalidValue(
            f"allowed_origins: {text!r} is no origin", hint="a scheme and a host, e.g. https://ops.example"
        )
    return origin
