"""What the REST door says while the pond is not open yet, or not any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx

import millpond
from millpond.pond.desk import PondDesk
from millpond.pond.gate import OpenGate
from millpond.serve.limits import RateLimiter
from millpond.serve.rest import RestDoor
from millpond.serve.settings import ServeSettings
from millpond.serve.state import NodeState
from millpond.telemetry import DoorCounters

Result = TypeVar("Result")


def ask(state: NodeState, *requests: tuple[str, str], settings: ServeSettings | None = None) -> list[httpx.Response]:
    """The answers of a door in this state, without a server around it."""
    door = RestDoor(state, settings or ServeSettings(), DoorCounters())

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(door)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.request(method, path) for method, path in requests]

    return in_a_loop(run)


def in_a_loop(run: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """In a thread of its own: the browser tests leave a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(run())).result()


def test_a_door_tells_how_far_recovery_is() -> None:
    state = NodeState()
    alive, ready, streams = ask(state, ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/v1/streams"))
    assert alive.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["reasons"] == ["the pond is being opened"]
    state.recovered = (250, 1_000)
    (ready,) = ask(state, ("GET", "/readyz"))
    assert ready.json()["reasons"] == ["the journal is being recovered: 25 %"]
    assert streams.status_code == 503
    assert streams.json()["code"] == "unavailable"
    assert int(streams.headers["retry-after"]) >= 1


def with_pond(path: Path, look: Callable[[NodeState, millpond.Pond], Any]) -> None:
    with millpond.open(path, background=False) as pond:
        state = NodeState()
        state.ready(PondDesk(pond, OpenGate()), list)
        look(state, pond)


def test_a_door_that_is_closing_takes_nothing_new(pond_dir: Path) -> None:
    def look(state: NodeState, pond: millpond.Pond) -> None:
        pond.create_stream("events")
        (before,) = ask(state, ("POST", "/v1/streams/events/records"))
        assert before.status_code == 200
        state.stop()
        for answer in ask(state, ("POST", "/v1/streams/events/records"), ("GET", "/v1/streams")):
            assert answer.status_code == 503
        (ready,) = ask(state, ("GET", "/readyz"))
        assert ready.json()["reasons"] == ["the server is stopping"]
        assert pond.stream("events").count() == 1

    with_pond(pond_dir, look)


def test_what_ails_a_pond_is_a_reason_not_to_be_ready(pond_dir: Path) -> None:
    def look(state: NodeState, pond: millpond.Pond) -> None:
        state.ailments = lambda: ["appends are refused: a sync failed"]
        (ready,) = ask(state, ("GET", "/readyz"))
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
        assert ready.json()["reasons"] == ["appends are refused: a sync failed"]

    with_pond(pond_dir, look)


def test_pages_of_other_origins_may_call_where_they_are_allowed(pond_dir: Path) -> None:
    settings = ServeSettings(allowed_origins=("https://ops.example",))

    def look(state: NodeState, pond: millpond.Pond) -> None:
        door = RestDoor(state, settings, DoorCounters())

        async def run() -> None:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(door),
                base_url="http://localhost",
                headers={"origin": "https://ops.example"},
            ) as client:
                preflight = await client.options("/v1/streams")
                assert preflight.status_code == 204
                assert "PUT" in preflight.headers["access-control-allow-methods"]
                answer = await client.get("/v1/streams")
                assert answer.headers["access-control-allow-origin"] == "https://ops.example"
                other = await client.get("/v1/streams", headers={"origin": "https://evil.example"})
                assert other.status_code == 403
                assert "access-control-allow-origin" not in other.headers

        in_a_loop(run)

    with_pond(pond_dir, look)


def test_a_caller_over_its_rate_is_told_when_to_come_back(pond_dir: Path) -> None:
    with millpond.open(pond_dir, background=False) as pond:
        state = NodeState()
        state.ready(PondDesk(pond, OpenGate(), RateLimiter(0.5, 2).check), list)
        *fine, refused = ask(state, *[("GET", "/v1")] * 3)
        assert [answer.status_code for answer in fine] == [200, 200]
        assert refused.status_code == 429
        assert refused.json()["code"] == "too-many-requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 2
