"""A producer whose connections are cut, at any byte and in both directions: every record arrives, once, in order."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from millpond.errors import MillpondError, Unavailable
from tests.client.conftest import NUMBERS, Served, numbers
from tests.client.proxy import Cut, Proxy


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_never_doubles_and_never_loses_whatever_is_cut(served: Served, seed: int) -> None:
    dice = random.Random(seed)

    def plan(number: int) -> Cut:
        # The first is the pond's own. Cuts come late enough for some progress, and in the end nothing is cut.
        if number == 0 or number > 25:
            return Cut()
        return Cut(dice.randint(3_000, 120_000), None) if dice.random() < 0.5 else Cut(None, dice.randint(600, 6_000))

    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port, plan) as proxy:
        pond = served.connect(proxy.port)
        remote = pond.stream("numbers")
        with remote.producer(batch_bytes="4KB", linger="1ms", max_in_flight=32) as producer:
            futures = [producer.append({"n": n, "text": "x" * (n % 50)}) for n in range(20_000)]
        assert all(future.result().durability == "disk" for future in futures)
        figures = producer.figures
        assert proxy.cuts > 5, "the test has tested nothing"
        assert figures.retries > 0
    assert numbers(stream) == list(range(20_000))
    assert (figures.records_acknowledged, figures.records_pending, figures.bytes_pending) == (20_000, 0, 0)


def test_answers_that_are_lost_after_the_commit_are_recognised(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port, lambda number: Cut(None, 900) if 1 <= number <= 8 else Cut()) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.producer(batch_bytes="2KB", linger="1ms", max_in_flight=16) as producer:
            for n in range(3_000):
                producer.append({"n": n, "text": "some text"})
        assert producer.figures.duplicates > 0, "no answer was lost"
    assert numbers(stream) == list(range(3_000))


def test_goes_on_when_the_server_comes_back(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    remote = served.connect().stream("numbers")
    with remote.producer(linger="1ms") as producer:
        producer.append({"n": 0}).result(30)
        served.stop()
        waiting = [producer.append({"n": n}) for n in range(1, 100)]
        assert not any(future.done() for future in waiting[-1:])
        served.start()
        for future in waiting:
            future.result(60)
    stream = served.pond.stream("numbers")
    assert numbers(stream) == list(range(100))


def test_gives_up_in_the_end_and_says_how_many_records_it_was(served: Served) -> None:
    served.pond.create_stream("numbers", NUMBERS)
    remote = served.connect().stream("numbers")
    told: list[tuple[MillpondError, int]] = []
    producer = remote.producer(linger="1ms", give_up="300ms", on_error=lambda error, rows: told.append((error, rows)))
    producer.append({"n": 0}).result(30)
    served.stop()
    futures: list[Future[Any]] = [producer.append({"n": n}) for n in range(1, 8)]
    with pytest.raises(Unavailable, match=r"7 records were not acknowledged"):
        producer.flush()
    for future in futures:
        with pytest.raises(Unavailable):
            future.result(0)
    assert [rows for _, rows in told] == [7]
    assert producer.figures.records_failed == 7
    served.start()
    assert producer.append({"n": 9}).result(60).durability == "disk", "it goes on with what comes later"
    producer.close()
    assert numbers(served.pond.stream("numbers"))[-1] == 9


def test_many_threads_share_a_producer(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port, lambda number: Cut(None, 3_000) if 1 <= number <= 6 else Cut()) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        with remote.producer(batch_bytes="8KB", linger="1ms") as producer:

            def produce(thread: int) -> None:
                for n in range(1_000):
                    producer.append({"n": thread * 1_000 + n})

            threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    found = numbers(stream)
    assert sorted(found) == list(range(4_000))
    for thread in range(4):
        mine = [n for n in found if n // 1_000 == thread]
        assert mine == sorted(mine), "each thread's records keep their order"


def test_leaves_a_connection_on_which_nothing_moves_any_more(served: Served) -> None:
    """A cable that is pulled ends no connection: only that answers stay away tells."""
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port, timeout="500ms").stream("numbers")
        with remote.producer(linger="1ms") as producer:
            producer.append({"n": 0}).result(30)
            before = proxy.connections
            proxy.stall()
            producer.append({"n": 1}).result(30)
            assert proxy.connections > before
    assert numbers(stream) == [0, 1]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("records", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_fifth_of_all_answers_cut(served: Served, records: int) -> None:
    """Each record an append of its own; whenever a few answers have come through, the next ones are lost."""
    stream = served.pond.create_stream("numbers", NUMBERS, durability="os")
    dice = random.Random(records)
    with Proxy(served.port, lambda number: Cut(None, dice.randint(1_000, 4_000)) if number else Cut()) as proxy:
        remote = served.connect(served.port).stream("numbers")
        with_proxy = served.connect(proxy.port).stream("numbers")
        with with_proxy.producer(batch_bytes="1B", linger="0s", max_in_flight=32) as producer:
            for n in range(records):
                producer.append({"n": n})
        figures = producer.figures
    assert remote.count() == records
    assert numbers(stream) == list(range(records))
    assert figures.batches_acknowledged == records
    assert figures.duplicates >= records // 5, "too few answers were lost"
