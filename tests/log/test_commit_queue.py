"""The hand-over to the committer: whoever puts gets an answer, however a close falls in between."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from millpond.errors import PondClosed
from millpond.log.embedded.commit_queue import CommitQueue, Request
from millpond.log.engine import Ack


def finish_all(queue: CommitQueue) -> None:
    while (group := queue.take(1_000, None)) is not None:
        for request in group:
            request.answer = Ack({}, "disk")
            request.finish()


@pytest.mark.parametrize("seed", range(30))
def test_everybody_gets_an_answer_or_is_refused_when_the_queue_closes(seed: int) -> None:
    """A put that comes between the taker's last look and its end must not wait for ever."""
    queue = CommitQueue()
    taker = threading.Thread(target=finish_all, args=(queue,))
    taker.start()
    outcomes: list[str] = []

    def put(number: int) -> None:
        for _ in range(50 + seed + number):
            request = Request("disk")
            try:
                queue.put(request)
            except PondClosed:
                outcomes.append("refused")
                return
            assert (request.answer is None) != (request.error is None)
            if request.error is not None:
                outcomes.append("refused")
                return
        outcomes.append("done")

    threads = [threading.Thread(target=put, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    assert queue.close()
    assert not queue.close()
    taker.join()
    queue.refuse_rest()
    for thread in threads:
        thread.join(20)
    assert len(outcomes) == 8, "somebody waits for ever"
    assert len(queue) == 0
    with pytest.raises(PondClosed):
        queue.put(Request("disk"))


def test_a_put_after_the_taker_has_gone_is_withdrawn() -> None:
    """The moment that the threads above seldom meet: closed after the look at the flag, drained before the put."""

    queue = CommitQueue()
    queue.close()
    queue.refuse_rest()
    queue._closed = False  # what the caller saw
    with pytest.raises(PondClosed):
        queue.put(Request("disk"))
    assert len(queue) == 0


def test_groups_end_at_their_size_and_at_actions() -> None:
    queue = CommitQueue()
    requests = []
    for size in (10, 10, 10, 0, 10):
        request = Request("disk")
        request.bytes = size
        if not size:
            request.action = print
        requests.append(request)
        queue._waiting.append(request)
    assert queue.take(20, None) == requests[:2]
    assert queue.take(20, None) == requests[2:3]
    assert queue.take(20, None) == requests[3:4]
    assert queue.take(20, None) == requests[4:]
    assert queue.take(20, 0.01) == []
    queue.close()
    assert queue.take(20, None) is None


def test_refusing_the_rest_meets_one_that_withdraws() -> None:
    """The last one in the queue takes itself back between the look and the taking."""

    class Shrinking(deque[Request]):
        def __bool__(self) -> bool:
            return True

    queue = CommitQueue()
    queue._waiting = Shrinking()
    queue.refuse_rest()
