"""A connected pond has what an embedded one has: the same methods, the same parameters, the same words about them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from millpond.client.pond import RemotePond
from millpond.client.reader import RemoteReader
from millpond.client.stream import RemoteStream
from millpond.client.writing import RemoteWriting
from millpond.pond.pond import Pond
from millpond.pond.stream import Stream
from millpond.pond.writing import StreamWriting
from millpond.query import StreamReader

# What only the process that has the pond open can do.
INNER = {
    "log",
    "prepare",
    "telemetry",
    "archive",
    "halves",
    "history",
    "settling",
    "redefine",
    "relayouting",
    "rest",
    "submit",
    "submit_json",
    "submit_batch",
}
# What a connected one has beyond: of the node, or because connections are lost.
BEYOND: dict[type, set[str]] = {
    RemotePond: {"node", "tokens", "served_datasets"},
    RemoteStream: {"forget", "stage"},
    RemoteReader: set(),
}
PARAMETERS_BEYOND = {("RemoteStream", "read"): {"give_up"}}

PAIRS = [(Pond, RemotePond), (Stream, RemoteStream), (StreamReader, RemoteReader)]


def members(kind: type) -> dict[str, Any]:
    """Its own, and those of its part that writes. Others are of both, or of data sets, which only a process with Spark
    has."""
    parts = [part for part in kind.__mro__ if part in (kind, StreamWriting, RemoteWriting)]
    return {name: member for part in parts for name, member in vars(part).items() if not name.startswith("_")}


def words(member: Any) -> list[str]:
    return (member.__doc__ or "").split()


@pytest.mark.parametrize(("embedded", "connected"), PAIRS)
def test_the_same_methods_are_there(embedded: type, connected: type) -> None:
    wanted = set(members(embedded)) - INNER
    assert wanted - set(members(connected)) == set()
    assert set(members(connected)) - wanted == BEYOND[connected]


@pytest.mark.parametrize(("embedded", "connected"), PAIRS)
def test_they_take_the_same_and_say_the_same(embedded: type, connected: type) -> None:
    theirs = members(connected)
    for name, member in members(embedded).items():
        if name in INNER or not inspect.isfunction(member):
            continue
        ours, other = inspect.signature(member).parameters, inspect.signature(theirs[name]).parameters
        place = (connected.__name__, name)
        assert list(other) == [*ours, *PARAMETERS_BEYOND.get(place, ())], place
        for each in ours:
            assert (other[each].kind, other[each].default) == (ours[each].kind, ours[each].default), (*place, each)
        assert words(theirs[name])[:1] == words(member)[:1], place
