"""A pond served in this process, and what tests do to the way there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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
        self.door = FlightDoor(desk, port=self.port, limits=Limits(close_seconds=0.3))
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


def numbers(stream: Any) -> list[int]:
    """What a stream holds, in the order of offsets."""
    return [n for batch in stream.read(columns=["n"]) for n in batch.column("n").to_pylist()]
