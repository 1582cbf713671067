"""Ponds for tests: opened in a temporary directory, closed afterwards.

Everything here that is about the public API runs twice: on a pond that is open in this process (`embedded`), and on the
same pond served by a Flight door in another thread and connected to (`connected`). Tests about files, settings or
other things that only the owner of a pond has are marked `embedded` and run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.client.pond import RemotePond
from millpond.flight import FlightDoor
from millpond.pond.desk import PondDesk
from millpond.pond.gate import SecretGate
from millpond.wire.access import EVERYTHING

METERS = pa.schema([("vid", pa.string()), ("city", pa.string()), ("temp", pa.float64())])


SECRET = "for-tests-only"


class Connected(RemotePond):
    """A connected pond that takes the served one with it when it is closed."""

    def __init__(self, served: millpond.Pond) -> None:
        self.served = served
        self._door = FlightDoor(PondDesk(served, SecretGate(SECRET, EVERYTHING)))
        connected = millpond.connect(self._door.location, SECRET)
        super().__init__(connected._connection, connected._node)

    def close(self, *, settle: bool | None = None) -> None:
        super().close()
        self._door.close()
        self.served.close(settle=settle)


class Ponds:
    """Opens the pond of one directory, again and again; nothing happens in it by itself unless asked."""

    def __init__(self, path: Path, *, connected: bool) -> None:
        self.path, self._connected = path, connected
        self._open: list[millpond.Pond] = []

    def __call__(self, **options: Any) -> millpond.Pond:
        pond: Any = millpond.open(self.path, **{"background": False, "disk_reserve_bytes": 0} | options)
        self._open.append(pond)
        if self._connected:
            pond = Connected(pond)
            self._open.append(pond)
        found: millpond.Pond = pond
        return found

    def close(self) -> None:
        for pond in reversed(self._open):
            pond.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ponds" in metafunc.fixturenames:
        alone = any(metafunc.definition.iter_markers("embedded"))
        metafunc.parametrize("ponds", ["embedded"] if alone else ["embedded", "connected"], indirect=True)


@pytest.fixture
def ponds(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ponds]:
    made = Ponds(tmp_path / "pond", connected=request.param == "connected")
    yield made
    made.close()


@pytest.fixture
def pond(ponds: Ponds) -> millpond.Pond:
    return ponds()


@pytest.fixture
def meters(pond: millpond.Pond) -> millpond.Stream:
    return pond.create_stream("grid/meters", METERS, keys=["vid", "city"], streamlets=2)


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    cities = ("Nice", "Lyon", "Lille")
    return [{"vid": f"v{n}", "city": cities[n % 3], "temp": float(n)} for n in range(start, stop)]


def temps(stream: millpond.Stream) -> list[float]:
    found: list[float] = sorted(stream.scan(columns=["temp"])["temp"].to_pylist())
    return found
