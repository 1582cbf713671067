"""Following a served stream: pushed batches, each record exactly once, whatever happens to the connection."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidValue, StreamNotFound, Unavailable
from millpond.flight import Limits
from tests.client.conftest import NUMBERS, Served
from tests.client.proxy import Cut, Proxy
from tests.serving import wait_until


def taken(reader: Any, count: int) -> list[int]:
    """The next so many records."""
    found: list[int] = []
    while len(found) < count:
        found += next(reader).column("n").to_pylist()
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_goes_on_where_it_was_after_every_cut(served: Served, seed: int) -> None:
    dice = random.Random(seed)
    stream = served.pond.create_stream("numbers", NUMBERS)
    plan = [Cut(), *(Cut(None, dice.randint(2_000, 60_000)) for _ in range(20))]
    with Proxy(served.port, lambda number: plan[number] if number < len(plan) else Cut()) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.read("earliest", follow=True, batch_rows=100) as reader:
            writer = threading.Thread(
                target=lambda: [
                    stream.append([{"n": n, "text": "some text"} for n in range(at, at + 50)])
                    for at in range(0, 10_000, 50)
                ]
            )
            writer.start()
            found = taken(reader, 10_000)
            writer.join()
            assert found == list(range(10_000))
            assert reader.position == {0: 10_000}
        assert proxy.cuts > 5, "the test has tested nothing"


def test_latest_is_the_place_where_it_began_also_if_the_connection_is_lost_at_once(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append({"n": 0})
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.read("latest", follow=True) as reader:
            proxy.cut()
            stream.append({"n": 1})
            assert taken(reader, 1) == [1]


def test_goes_on_when_the_server_comes_back(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS).append({"n": 0})
    with served.connect().stream("numbers").read(follow=True) as reader:
        assert taken(reader, 1) == [0]
        served.stop()
        assert reader.poll() is None
        assert not reader.closed
        served.start()
        served.pond.stream("numbers").append({"n": 1})
        assert taken(reader, 1) == [1]


def test_leaves_a_connection_on_which_nothing_moves_any_more(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append({"n": 0})
    with (
        Proxy(served.port) as proxy,
        served.connect(proxy.port, timeout="1s").stream("numbers").read(follow=True) as reader,
    ):
        assert taken(reader, 1) == [0]
        proxy.stall()
        stream.append({"n": 1})
        assert taken(reader, 1) == [1]


def test_gives_up_in_the_end_with_the_place_to_go_on(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS).append([{"n": 0}, {"n": 1}])
    reader = served.connect().stream("numbers").read(follow=True, give_up="300ms")
    assert taken(reader, 2) == [0, 1]
    served.stop()
    with pytest.raises(Unavailable, match="could not be followed") as gone:
        next(reader)
    assert "start='g1,0:2'" in gone.value.hint
    assert reader.closed
    assert list(reader) == []
    served.start()


def test_is_ended_from_another_thread_while_it_waits(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS)
    reader = served.connect().stream("numbers").read(follow=True)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(reader))
    waiting.start()
    reader.close()
    waiting.join(30)
    assert not waiting.is_alive()
    assert found == []
    assert reader.closed


def test_ends_with_its_pond(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS).append({"n": 0})
    pond = served.connect()
    reader = pond.stream("numbers").read(follow=True)
    assert taken(reader, 1) == [0]
    pond.close()
    assert list(reader) == []


def test_a_limit_holds_across_lost_connections(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append([{"n": n} for n in range(5)])
    with Proxy(served.port) as proxy:
        reader = served.connect(proxy.port).stream("numbers").read(follow=True, limit=7)
        assert taken(reader, 5) == [0, 1, 2, 3, 4]
        proxy.cut()
        stream.append([{"n": n} for n in range(5, 20)])
        assert taken(reader, 2) == [5, 6]
        assert list(reader) == []


def test_without_follow_a_lost_connection_is_an_error(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append([{"n": n, "text": "x" * 1_000} for n in range(30_000)])
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        reader = remote.read(batch_rows=1_000)
        next(reader)
        proxy.cut()
        with pytest.raises(Unavailable):
            list(reader)
        assert reader.closed


def test_what_is_wrong_with_a_read_is_said_by_the_call(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS)
    remote = served.connect().stream("numbers")
    with pytest.raises(InvalidValue, match="no place to start"):
        remote.read("someday", follow=True)
    with pytest.raises(InvalidValue, match="no place to start"):
        remote.read(True, follow=True)
    with pytest.raises(InvalidValue, match="has no column 'm'"):
        remote.read(columns=["m"])
    with pytest.raises(InvalidValue, match="columns is the string"):
        remote.read(columns="n")
    served.pond.drop_stream("numbers")
    with pytest.raises(StreamNotFound):
        remote.read()


@pytest.mark.parametrize("follow", [False, True])
def test_a_reader_that_is_forgotten_leaves_nothing_behind(served: Served, follow: bool) -> None:
    """Neither a thread here nor a place there, though more is to come than fits on the way."""
    stream = served.pond.create_stream("numbers", NUMBERS)
    for _ in range(3):
        stream.append(pa.record_batch([range(8_000), ["x" * 1_000] * 8_000], schema=NUMBERS))
    remote = served.connect().stream("numbers")

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "millpond-follow"]

    before = threads()
    assert next(remote.read(batch_rows=100, follow=follow)).num_rows == 100
    for thread in threads():
        if thread not in before:
            thread.join(30)
            assert not thread.is_alive()
    wait_until(lambda: served.door._server._streams._free._value == Limits().streams_max, "its place is free again")
