"""`millpond.connect`: from a URL to a pond."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.client.address import Address, Trust, check_token, flight_location
from millpond.client.connection import Connection
from millpond.client.pond import RemotePond
from millpond.model.units import Duration, parse_seconds
from millpond.wire.answers import Node
from millpond.wire.requests import AboutNode


def connect(
    url: str,
    token: str | None = None,
    *,
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    timeout: Duration = "60s",
) -> RemotePond:
    """Connect to a pond that `millpond serve` serves; close it, or use it as a context manager.

    `url`: `http://127.0.0.1:7070`, `https://…`, or straight to the Flight door: `grpc://…`, `grpc+tls://…`. `token`:
    who calls, for a server that asks. `ca`: a file in PEM form with who signed the server's certificate, if the system
    does not trust it already; `certificate` and `key`: our own, for mutual TLS. `timeout`: how long an answer may take.
    """
    address = Address.parse(url)
    token = check_token(token)
    trust = Trust(_path(ca), _path(certificate), _path(key))
    seconds = parse_seconds(timeout)
    location = flight_location(address, token, trust, seconds)
    tls = trust.for_flight() if location.startswith("grpc+tls") else {}
    connection = Connection(address.shown, location, token, tls, seconds)
    try:
        node: Node = connection.ask(AboutNode(), Node)
    except BaseException:
        connection.close()
        raise
    return RemotePond(connection, node)


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)
