"""A served pond with streams of every kind, shared by the tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Served, serving

# Every type that a stream may have.
EVERY_TYPE = (
    "a_tinyint tinyint, a_smallint smallint, an_int int, a_bigint bigint, a_float float, a_double double, "
    "a_boolean boolean, a_string string, a_binary binary, a_date date, a_timestamp timestamp, a_decimal decimal(20,4), "
    "a_list array<int>, a_struct struct<x: int, y: string>, a_map map<string, double>"
)
METERS = [{"vid": f"m-{n % 5}", "city": ("Nice", "Ulm")[n % 2], "temp": n / 2} for n in range(40)]


def fill(served: Served) -> None:
    """The streams: with keys and two streamlets, settled in part; with every type; and of raw events."""
    served.create(
        "grid/meters", schema="vid string not null, city string, temp double", keys=["vid", "city"], streamlets=2
    )
    served.create("every/type", schema=EVERY_TYPE)
    served.create("events")
    with served.client() as client:

        def post(path: str, **sent: Any) -> None:
            client.post(f"/v1/streams/{path}", **sent).raise_for_status()

        post("grid/meters/records", json=METERS[:20])
        post("grid/meters/settle")
        post("grid/meters/records", json=METERS[20:])
        post("every/type/records", json=[{"a_string": "é", "a_binary_base64": "AAH/", "a_list": [1, None]}, {}])
        post("events/records", content=b"\xff\x00 any bytes", headers={"content-type": "application/x-anything"})


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A real server. At the end it stops when told, and has complained of nothing."""
    pond: Path = tmp_path_factory.mktemp("served") / "pond"
    with serving(pond) as running:
        fill(running)
        yield running
        assert running.stop() == 0
    assert running.complaints() == []
