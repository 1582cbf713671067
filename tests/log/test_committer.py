"""What an ack may claim when appends of several durabilities, retries and a close meet in one group."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from millpond.errors import DiskFull, InvalidValue, JournalClosed
from millpond.log.embedded.engine import EmbeddedLog
from tests.log.conftest import Failing, Pool, append, definition, files, numbers


class Calls:
    """Calls in threads of their own, each queued at the committer before the next one starts."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._threads: list[threading.Thread] = []
        self.outcomes: list[Any] = []

    def __call__(self, call: Callable[..., Any], *args: Any, **options: Any) -> None:
        at = len(self.outcomes)
        self.outcomes.append(None)

        def run() -> None:
            try:
                self.outcomes[at] = call(*args, **options)
            except Exception as error:
                self.outcomes[at] = error

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)
        committer = self._log._committer
        while len(committer.queue) <= at and not committer.queue.closed:
            thread.join(0.001)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def one_group(log: EmbeddedLog) -> Iterator[Calls]:
    """What is called inside waits for the committer, and is then taken as one group."""
    held, go = threading.Event(), threading.Event()
    holder = threading.Thread(target=log._committer.run_inside, args=(lambda: (held.set(), go.wait()),))
    holder.start()
    held.wait()
    calls = Calls(log)
    yield calls
    go.set()
    holder.join()
    calls.join()


def test_a_stronger_retry_in_the_group_of_its_weaker_first_is_not_acknowledged_early(pool: Pool) -> None:
    """I1: the first is acknowledged from memory; the retry asks for the disk and must wait for it."""
    storage = Failing()
    log = pool(storage=storage)
    append(log, 0)
    storage.sync_error = errno.EIO
    with one_group(log) as call:
        call(append, log, 500, durability="memory", producer="p", sequence=1)
        call(append, log, 500, durability="disk", producer="p", sequence=1)
    first, retry = call.outcomes
    assert first.durability == "memory"
    assert isinstance(retry, JournalClosed)
    with pytest.raises(JournalClosed):
        log.close()


def test_a_sync_that_failed_for_a_retry_is_not_tried_again_for_the_rest_of_the_group(pool: Pool) -> None:
    """I1: never retried on the same file."""
    storage = Failing()
    log = pool(storage=storage)
    append(log, 0)
    storage.sync_error, storage.sync_errors_left = errno.EIO, 1
    with one_group(log) as call:
        call(append, log, 500, durability="os", producer="p", sequence=1)
        call(append, log, 500, durability="disk", producer="p", sequence=1)
        call(append, log, 1_000, durability="disk")
    first, retry, other = call.outcomes
    assert first.durability == "os"
    assert isinstance(retry, JournalClosed)
    assert isinstance(other, JournalClosed)
    with pytest.raises(JournalClosed):
        log.close()


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_stronger_retry_of_what_could_not_be_written_yet_is_back_pressure(pool: Pool, durability: str) -> None:
    storage = Failing()
    log = pool(storage=storage)
    storage.write_error = errno.ENOSPC
    append(log, 0, durability="memory", producer="p", sequence=1)
    assert append(log, 0, durability="memory", producer="p", sequence=1).duplicate
    with pytest.raises(DiskFull, match="written when there is room"):
        append(log, 0, durability=durability, producer="p", sequence=1)
    storage.write_error = 0
    assert append(log, 0, durability=durability, producer="p", sequence=1).duplicate
    log.close()
    assert numbers(pool(), 0, 500) == list(range(500))


def test_a_close_speaks_for_what_was_acknowledged_while_it_was_under_way(pool: Pool) -> None:
    storage = Failing()
    log = pool(storage=storage)
    append(log, 0)
    storage.write_error = errno.ENOSPC
    with one_group(log) as call:
        flushed = len(log._committer.queue)
        call(log.close)
        if len(log._committer.queue) > flushed:  # the close itself is queued: others may come behind it
            call(append, log, 500, durability="memory")
    closing, *acked = call.outcomes
    assert not acked or isinstance(closing, DiskFull), "an append was acknowledged and is gone, and nobody said so"


@pytest.mark.parametrize(
    ("producer", "sequence"), [("p", 1.0), ("p", "1"), ("p", None), ("p\ud800", 1), (7, 1), ("p", -1)]
)
def test_a_sequence_that_cannot_be_written_down_does_not_close_the_journal(
    pool: Pool, producer: Any, sequence: Any
) -> None:
    log = pool()
    with pytest.raises(InvalidValue, match="an int, 0 to"):
        append(log, 0, producer=producer, sequence=sequence)
    append(log, 0)
    assert not log.status().refused


def test_a_sequence_may_be_any_kind_of_whole_number(pool: Pool) -> None:
    """Also when it is stated at the beginning of the next journal file."""
    log = pool()
    for n in np.arange(10):
        append(log, int(n) * 500, producer="p", sequence=n)
    assert len(files(pool)) > 1
    log.close()
    assert append(pool(), 4_500, producer="p", sequence=9).duplicate


def test_a_stream_dropped_while_the_journal_rolls_does_not_close_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file states what is known of every stream; meanwhile one of them goes."""
    log = pool(streams=[(definition(20), {}), (definition(21), {})])

    def state_while_another_is_dropped() -> list[Any]:
        with log._lock:
            log._published.drop(21)
        return []

    monkeypatch.setattr(log._published.producers[20], "state", state_while_another_is_dropped)
    append(log, 0)
    assert numbers(log, 0, 500) == list(range(500))
