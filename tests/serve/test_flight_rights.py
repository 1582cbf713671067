"""Who may do what over Flight: every request there is, and Flight's own questions, with every kind of token."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

import millpond
from millpond.errors import Forbidden, MillpondError, Unauthenticated
from millpond.flight.link import FlightLink
from millpond.pond.tokens import TokenGate
from millpond.wire import requests as ask
from millpond.wire.access import RIGHTS
from millpond.wire.requests import CreateToken
from tests.serving import Served, serving

STREAM = "grid/meters"
SCHEMA = pa.schema([("vid", pa.string()), ("temp", pa.float64())])
# On which prefixes a token has its right, and whether that covers the stream and the pond as a whole.
REACH = {
    "": (True, True),
    "grid": (True, False),
    STREAM: (True, False),
    "lab": (False, False),
    "gridlock": (False, False),
}


# What is no token.
WRONG = (None, "", "mp_x_y", "mp_0123456789_" + "x" * 43)


class Guarded(NamedTuple):
    """A server with a token for every right on every prefix, and ways to ask it."""

    served: Served
    tokens: dict[tuple[str, str], str]
    links: dict[str | None, FlightLink]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server with a token for every right on every prefix."""
    pond: Path = tmp_path_factory.mktemp("guarded") / "pond"
    with millpond.open(pond, background=False) as opened:
        stream = opened.create_stream(STREAM, SCHEMA, keys=["vid"])
        stream.append({"vid": "m-1", "temp": 21.5})
    gate = TokenGate(str(pond))
    tokens = {
        (right, prefix): gate.create(CreateToken(f"{right}-{at}", (right,), (prefix,))).token
        for right in RIGHTS
        for at, prefix in enumerate(REACH)
    }
    with serving(pond) as served:
        links = {token: FlightLink(served.flight, token) for token in (*tokens.values(), *WRONG)}
        try:
            yield Guarded(served, tokens, links)
        finally:
            for link in links.values():
                link.close()


FIELDS = {"stream": STREAM, "key": "m-1", "segment": "none", "name": "x", "token": "nobody", "preview": True}
# What some requests cannot be made without, and others do without.
NEEDED: dict[str, Any] = {
    "group": "g",
    "instance": "i",
    "epoch": 1,
    "number": 1,
    "to": "latest",
    "stages": (),
    "streams": (),
    "producer": "p",
    "sequence": 1,
    "owner": "o",
    "load": "l",
    "version": 0,
    "report": "",
    "pipeline": "p",
    "prefix": "p" * 16,
    "relayout": "r",
    "model": "m",
    "dataset": "d",
    "id": "i",
    "definition": "{}",
    "change": "c",
    "piece": 0,
    "pieces": 1,
    "data": "",
    "layout": "l",
    "start": 0,
    "loaded": False,
    "part": 0,
    "predicate": '{"is": "const", "value": true}',
    **dict.fromkeys(("objects_read", "objects_total", "bytes_read", "bytes_total"), 0),
}


def made(kind: type[ask.Request]) -> Any:
    """A request of a kind, that destroys nothing."""
    given = {field: FIELDS[field] for field in kind.__struct_fields__ if field in FIELDS}
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required and field.name in NEEDED]
    given |= {name: NEEDED[name] for name in needed}
    if kind is ask.CreateToken:
        given["rights"] = ("own",)
    return kind(**given)


CALLS = list(typing.get_args(ask.Call))
FETCHES = list(typing.get_args(ask.Fetch))


def ask_by_flight(link: FlightLink, kind: type[ask.Request]) -> MillpondError | None:
    """What a request by Flight is refused with."""
    request = made(kind)
    try:
        if kind in CALLS:
            link.call(request)
        elif kind is ask.Append:
            link.append(request, pa.record_batch({"vid": ["m-3"], "temp": [1.0]}, schema=SCHEMA))
        else:
            for _ in link.fetch(request).batches:
                pass
    except MillpondError as error:
        return error
    return None


EVERYTHING = [*CALLS, *FETCHES, ask.Read, ask.Append]


@pytest.mark.parametrize("kind", EVERYTHING, ids=lambda kind: kind.__name__)
def test_a_flight_call_asks_for_a_token_and_its_right(kind: type[ask.Request], guarded: Guarded) -> None:
    for shown in WRONG:
        assert isinstance(ask_by_flight(guarded.links[shown], kind), Unauthenticated), shown
    of_stream = "stream" in kind.__struct_fields__
    for (right, prefix), token in guarded.tokens.items():
        on_stream, on_pond = REACH[prefix]
        may = kind.right is None or (kind.right == right and (on_stream if of_stream else on_pond))
        refused = ask_by_flight(guarded.links[token], kind)
        if may:
            assert not isinstance(refused, Forbidden | Unauthenticated), (right, prefix, refused)
        else:
            assert isinstance(refused, Forbidden), (right, prefix, refused)


def test_flights_own_questions_ask_for_a_token_and_show_what_may_be_read(
    guarded: Guarded,
) -> None:
    descriptor = flight.FlightDescriptor.for_path(STREAM)

    def options(token: str) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])

    with flight.connect(guarded.served.flight) as client:
        for question in (
            lambda given: list(client.list_flights(options=given)),
            lambda given: client.get_flight_info(descriptor, given),
            lambda given: client.get_schema(descriptor, given),
            lambda given: list(client.list_actions(given)),
        ):
            for given in (options("mp_x_y"), flight.FlightCallOptions()):
                # get_schema of pyarrow's client raises a plain OSError.
                with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="Unauthenticated"):
                    question(given)
        for (right, prefix), token in guarded.tokens.items():
            reads = right == "read" and REACH[prefix][0]
            assert len(list(client.list_flights(options=options(token)))) == int(reads), (right, prefix)
            if reads:
                assert client.get_schema(descriptor, options(token)).schema.names[:2] == SCHEMA.names
            else:
                with pytest.raises(flight.FlightUnauthorizedError):
                    client.get_flight_info(descriptor, options(token))
