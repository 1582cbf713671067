"""A connected stream is that stream, not its name: one that took the name since is somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millpond
from millpond.client.stream import RemoteStream
from millpond.errors import StreamNotFound
from tests.client.conftest import NUMBERS, Served

USES: dict[str, Callable[[RemoteStream], Any]] = {
    "append": lambda stream: stream.append({"n": 9}),
    "read": lambda stream: list(stream.read()),
    "scan": lambda stream: stream.scan(),
    "get": lambda stream: stream.get(1),
    "count": lambda stream: stream.count(),
    "explain": lambda stream: stream.explain(),
    "map": lambda stream: stream.map(axes=["n", "m"]),
    "segments": lambda stream: stream.segments(),
    "read_segment": lambda stream: list(stream.read_segment("0")),
    "snapshot": lambda stream: stream.snapshot(),
    "settle": lambda stream: stream.settle(),
    "status": lambda stream: stream.status(),
    "info": lambda stream: stream.info(),
    "definition": lambda stream: stream.definition,
}


def recreate(served: Served) -> millpond.Stream:
    served.pond.drop_stream("numbers")
    return served.pond.create_stream("numbers", NUMBERS, keys=["n"])


@pytest.mark.parametrize("use", USES)
def test_an_old_stream_is_not_the_one_that_has_its_name_now(served: Served, use: str) -> None:
    served.pond.create_stream("numbers", NUMBERS, keys=["n"])
    old = served.connect().stream("numbers")
    old.append({"n": 1})
    made = recreate(served)
    with pytest.raises(StreamNotFound, match="was dropped"):
        USES[use](old)
    assert made.count() == 0


def test_nor_does_its_producer_write_there(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS, keys=["n"])
    producer = served.connect().stream("numbers").producer()
    producer.append({"n": 1}).result(10)
    made = recreate(served)
    error = producer.append({"n": 2}).exception(10)
    assert isinstance(error, StreamNotFound)
    with pytest.raises(StreamNotFound):
        producer.close()
    assert made.count() == 0


def test_the_new_one_can_be_had_from_the_same_connection(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS, keys=["n"])
    pond = served.connect()
    pond.stream("numbers").append({"n": 1})
    made = recreate(served)
    pond.stream("numbers").append({"n": 2})
    assert made.count() == 1


def test_a_follower_does_not_go_on_in_another_stream(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS, keys=["n"]).append([{"n": 1}, {"n": 2}])
    with served.connect().stream("numbers").read(follow=True) as reader:
        assert next(reader).num_rows == 2
        served.door.close()
        recreate(served).append([{"n": n} for n in range(5)])
        served.pond.close()
        served.start()
        with pytest.raises(StreamNotFound):
            next(reader)
