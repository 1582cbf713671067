"""A connection that lets nothing through and does not end either: nothing waits for it longer than was asked for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError, Unavailable
from millpond.flight import link
from millpond.flight.patience import within
from millpond.ingest import producer as producing
from tests.client.conftest import NUMBERS, Served
from tests.client.proxy import Proxy

# Far more than a test takes if all is well.
PATIENCE_SECONDS = 30


def raised_by(work: Callable[[], Any]) -> BaseException | None:
    """What `work` raises. Done in another thread: what hangs fails the test and does not hang it."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except MillpondError as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert raised, "it hangs"
    return raised[0]


def megabytes(count: int) -> pa.RecordBatch:
    """More than fits into the buffers between two ends, so that writing it blocks."""
    return pa.record_batch([range(1_000 * count), ["x" * 1_000] * 1_000 * count], schema=NUMBERS)


@pytest.mark.parametrize("what", ["scan", "read", "append"])
def test_who_asks_is_told_in_time(served: Served, what: str) -> None:
    served.pond.create_stream("numbers", NUMBERS)
    asked: dict[str, Callable[[Any], Any]] = {
        "scan": lambda stream: stream.scan(),
        "read": lambda stream: list(stream.read()),
        "append": lambda stream: stream.append(megabytes(12)),
    }
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port, timeout="500ms").stream("numbers")
        remote.append({"n": 1})
        proxy.stall()
        assert isinstance(raised_by(lambda: asked[what](remote)), Unavailable)


def test_what_was_left_behind_ends_with_the_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = {"grpc.keepalive_time_ms": 1_000, "grpc.keepalive_timeout_ms": 1_000}
    monkeypatch.setattr(link, "_CHANNEL", [(name, soon.get(name, value)) for name, value in link._CHANNEL])
    served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port, timeout="500ms").stream("numbers")
        remote.append({"n": 1})
        proxy.stall()
        before = threading.enumerate()
        assert isinstance(raised_by(lambda: remote.append(megabytes(12))), Unavailable)
        for thread in threading.enumerate():
            if thread not in before and thread.name == "millpond-call":
                thread.join(PATIENCE_SECONDS)
                assert not thread.is_alive(), "the write hangs for ever"
        assert remote.append({"n": 2}).durability == "disk", "there is a new connection"


def test_a_producer_leaves_a_write_that_hangs(served: Served) -> None:
    stream = served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        producer = remote.producer(linger="1ms", batch_bytes="16MB", give_up="10s")
        producer.append({"n": 1}).result(PATIENCE_SECONDS)
        proxy.stall()
        assert producer.append(megabytes(12)).result(PATIENCE_SECONDS).durability == "disk"
        assert raised_by(producer.close) is None
    assert stream.count() == 12_001


def test_a_producer_leaves_only_so_many_connections_behind(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_HANGING_MAX", 1)
    served.pond.create_stream("numbers", NUMBERS)
    with Proxy(served.port) as proxy:
        remote = served.connect(proxy.port).stream("numbers")
        producer = remote.producer(linger="1ms", batch_bytes="16MB", give_up="2s")
        producer.append({"n": 1}).result(PATIENCE_SECONDS)
        before = proxy.connections
        proxy.stall()
        producer.append(megabytes(12))
        error = raised_by(producer.close)
        assert isinstance(error, Unavailable)
        assert "1 connections let nothing through" in error.message
        assert proxy.connections == before


def test_ctrl_c_ends_the_waiting() -> None:
    """Also for a call that does not end itself."""
    blocked, late = threading.Event(), threading.Event()

    def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        blocked.wait(PATIENCE_SECONDS)
        return "late"

    with pytest.raises(KeyboardInterrupt):
        within(PATIENCE_SECONDS, "here", work, lambda told: late.set() if told == "late" else None)
    assert not late.is_set()
    blocked.set()
    assert late.wait(PATIENCE_SECONDS), "what came too late was not let go"
