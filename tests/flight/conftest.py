"""A real pond behind a Flight door, with callers who may do different things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import millpond
from millpond.errors import MillpondError, Unauthenticated
from millpond.flight import FlightDoor, FlightLink, Limits, Put
from millpond.pond.desk import PondDesk
from millpond.pond.gate import OpenGate
from millpond.wire.access import EVERYTHING, RIGHTS, Caller, Grant
from millpond.wire.failures import decode_failure

SCHEMA = pa.schema([("vid", pa.string()), ("temp", pa.float64())])
STREAM = "grid/meters"
ALL = "may-do-everything"
# Each right alone, on the stream alone; and all rights, on another stream.
TOKENS: dict[str, tuple[Grant, ...]] = {
    ALL: (EVERYTHING,),
    "none": (),
    "elsewhere": (Grant("other", frozenset(RIGHTS)),),
    **{right: (Grant(STREAM, frozenset((right,))),) for right in RIGHTS},
}


class Tokens(OpenGate):
    def authenticate(self, token: str | None) -> Caller:
        if token not in TOKENS:
            raise Unauthenticated("no such token", hint="show another")
        return Caller(token, token, TOKENS[token])


class Node:
    """A pond and its door."""

    def __init__(self, pond: millpond.Pond, door: FlightDoor, closing: ExitStack) -> None:
        self.pond, self.door, self._closing = pond, door, closing
        self.stream = pond.create_stream(STREAM, SCHEMA, keys=["vid"], durability="os")

    def link(self, token: str | None = ALL, **options: Any) -> FlightLink:
        """To this node, closed after the test."""
        return self._closing.enter_context(FlightLink(self.door.location, token, **options))

    def client(self) -> flight.FlightClient:
        """One that is not ours."""
        return self._closing.enter_context(flight.connect(self.door.location))


def options(token: str | None = ALL) -> flight.FlightCallOptions:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return flight.FlightCallOptions(timeout=30, headers=headers)


def readings(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"vid": [f"m-{n}" for n in numbers], "temp": [float(n) for n in numbers]}, schema=SCHEMA)


def put_many(put: Put) -> None:
    """Far more than can be on the way before it is known that none is taken."""
    for n in range(1_000):
        put.write(readings(n))
        put.next_ack()


def told(error: Exception) -> MillpondError:
    """What a Flight error tells of."""
    found = decode_failure(getattr(error, "extra_info", None) or b"")
    if found is None:
        raise AssertionError(f"not one of ours: {error!r}")
    return found


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with ExitStack() as closing:

        def make(limits: Limits | None = None, **more: Any) -> Node:
            pond = closing.enter_context(millpond.open(tmp_path / "pond", background=False))
            door = FlightDoor(PondDesk(pond, Tokens()), limits=limits or Limits(close_seconds=1.0), **more)
            closing.callback(door.close)
            return Node(pond, door, closing)

        yield make


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node()
