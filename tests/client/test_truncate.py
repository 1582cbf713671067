"""A served stream that is truncated: followers and producers at the other end of a connection go over by themselves."""

from __future__ import annotations

import time

import pytest

from millpond.errors import Truncated
from tests.client.conftest import NUMBERS, Served
from tests.client.proxy import Proxy
from tests.client.test_follow import taken


def test_it_is_the_same_call_with_the_same_answer(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append([{"n": n} for n in range(5)])
    remote = served.connect().stream("numbers")
    assert remote.truncate(preview=True) == stream.truncate(preview=True)
    gone = remote.truncate()
    assert (gone.rows_live, gone.generation, gone.done) == (5, 2, True)
    assert remote.count() == 0
    assert remote.status().generation == 2
    assert remote.snapshot().generation == 2


def test_a_follower_goes_over_and_a_kept_position_is_refused(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append([{"n": n} for n in range(5)])
    remote = served.connect().stream("numbers")
    with remote.read(follow=True) as reader:
        assert taken(reader, 5) == list(range(5))
        kept = reader.position
        assert (kept, kept.generation) == ({0: 5}, 1)
        remote.truncate()
        stream.append([{"n": 100}, {"n": 101}])
        assert taken(reader, 2) == [100, 101]
        assert (reader.position, reader.position.generation) == ({0: 2}, 2)
    for start in (kept, kept.text):
        with pytest.raises(Truncated, match="generation 1 is gone, this is 2"):
            next(remote.read(start))


def test_a_follower_whose_connection_was_lost_meanwhile_goes_over(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    stream.append([{"n": n} for n in range(5)])
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.read(follow=True) as reader:
            assert taken(reader, 5) == list(range(5))
            proxy.cut()
            stream.truncate()
            stream.append([{"n": n} for n in range(200, 220)])
            assert taken(reader, 20) == list(range(200, 220))
            assert reader.position.generation == 2


def test_a_producer_goes_over_and_doubles_nothing(served: Served) -> None:
    """What was under way is in the old generation, which is gone, or in the new one, once."""
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.producer("p", linger="1ms", batch_bytes="2KB") as producer:
            for n in range(2_000):
                producer.append({"n": n})
                if n in (500, 1_200):
                    stream.truncate()
                if n in (501, 900, 1_500):
                    proxy.cut()
            producer.flush()
    found = stream.scan(columns=["n"]).column("n").to_pylist()
    assert len(found) == len(set(found)), "a record is there twice"
    assert set(range(1_201, 2_000)) <= set(found), "what was appended after the last truncation is missing"
    assert stream.status().generation == 3


@pytest.mark.timeout(60)
def test_what_was_taken_and_truncated_before_its_answer_came_is_acknowledged(served: Served) -> None:
    """It was safe, and then discarded with the rest: sent again, it is recognised, though it is nowhere any more."""
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.producer("p", linger="1ms") as producer:
            producer.append({"n": 0}).result(timeout=30)
            proxy.lose_answers()
            unanswered = producer.append({"n": 1})
            while stream.count() < 2:
                time.sleep(0.001)
            stream.truncate()
            proxy.cut()
            ack = unanswered.result(timeout=30)
            assert (ack.ranges, ack.duplicate) == ({}, True)
            producer.append({"n": 2}).result(timeout=30)
            assert producer.figures.duplicates == 1
    assert stream.scan(columns=["n"]).column("n").to_pylist() == [2]
