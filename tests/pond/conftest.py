"""Ponds for tests: opened in a temporary directory, closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond

METERS = pa.schema([("vid", pa.string()), ("city", pa.string()), ("temp", pa.float64())])


class Ponds:
    """Opens the pond of one directory, again and again; nothing happens in it by itself unless asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[millpond.Pond] = []

    def __call__(self, **options: Any) -> millpond.Pond:
        pond = millpond.open(self.path, **{"background": False, "disk_reserve_bytes": 0} | options)
        self._open.append(pond)
        return pond

    def close(self) -> None:
        for pond in self._open:
            pond.close()


@pytest.fixture
def ponds(tmp_path: Path) -> Iterator[Ponds]:
    made = Ponds(tmp_path / "pond")
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
