"""A pond served in this process, and what tests do to the way there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import trustme

import millpond
from millpond.client.pond import RemotePond
from millpond.flight import FlightDoor, Limits
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING, Grant

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])
SECRET = "a-secret-for-tests"


class Served:
    """A pond with a Flight door, which can be closed and opened again on the same port."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connected: list[RemotePond] = []
        self.port = 0
        self.start()

    def start(self, *grants: Grant) -> None:
        self.pond = millpond.open(self._path, background=False, disk_reserve_bytes=0)
        desk = PondDesk(self.pond, SecretGate(SECRET, *(grants or (EVERYTHING,))))
        self.door = FlightDoor(desk, port=self.port, limits=Limits(close_seconds=0.3, heartbeat_seconds=0.2))
        self.port = self.door.port

    def stop(self) -> None:
        self.door.close()
        self.pond.close()

    def connect(self, port: int | None = None, **options: Any) -> RemotePond:
        pond = millpond.connect(f"grpc://127.0.0.1:{port or self.port}", SECRET, **options)
        self._connected.append(pond)
        return pond

    def close(self) -> None:
        try:
            for pond in self._connected:
                pond.close()
        finally:
            self.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "pond")
    yield made
    made.close()


class Certificates(NamedTuple):
    """Files in PEM form: who signed, and what a server on this machine shows."""

    ca: Path
    certificate: Path
    key: Path


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    made = Certificates(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    authority.cert_pem.write_to_path(made.ca)
    issued.private_key_pem.write_to_path(made.key)
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(made.certificate, append=number > 0)
    return made


def numbers(stream: Any) -> list[int]:
    """What a stream holds, in the order of offsets."""
    return [n for batch in stream.read(columns=["n"]) for n in batch.column("n").to_pylist()]
