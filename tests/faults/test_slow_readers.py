"""Fifty readers that take next to nothing: nobody else is slowed by much, and the server holds little for them.

Memory is all that the process holds (VmRSS), at its highest after any of some turns of work. Allocators keep what was
freed, and the first turns raise it with no slow reader there; so it is compared with turns after which it had ceased to
rise. What the readers cost is what stays: in their first seconds, until their sockets are full, the server decodes for
them as for anybody who reads.
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.testing.fault_proxy import FaultProxy, Faults
from tests.serving import Served, serving

pytestmark = [pytest.mark.timeout(900), pytest.mark.alone]

# Each reads at this rate, through a small window: a fraction of what there is.
SLOW = Faults(answer_bytes_per_second=2_000)
READERS = 50
# What they may cost.
GROWTH_BYTES_MAX = 50_000_000
# Memory that rises by less than this from turns to turns has ceased to.
STEADY_BYTES = 5_000_000
WARM_UPS_MAX = 8
# Turns of work, and records in each. What counts is the median turn: the machine is shared.
TURNS = 7
TURN_RECORDS = 300
TRIES = 3


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server with 60 MB of records in a stream, half of them settled."""
    with serving(tmp_path / "pond") as running:
        running.create("s", schema="n bigint, text string", settle={"every": "1h", "bytes": "1GB"})
        running.create("other", schema="n bigint, text string")
        with millpond.connect(running.flight) as pond:
            stream = pond.stream("s")
            for part in range(20):
                if part == 10:
                    stream.settle()
                stream.append(pa.table({"n": range(part * 3_000, (part + 1) * 3_000), "text": ["x" * 1_000] * 3_000}))
        yield running


def http_reader(form: str) -> Callable[[int, ExitStack], None]:
    """Follows by REST from the beginning, and reads no further than the proxy does."""

    def begin(port: int, stack: ExitStack) -> None:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        path = f"/v1/streams/s/records?follow=true&format={form}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        stack.callback(drain(connection).join)
        stack.callback(connection.shutdown, socket.SHUT_RDWR)

    return begin


def drain(connection: socket.socket) -> threading.Thread:
    def read() -> None:
        try:
            while connection.recv(65_536):
                pass
        except OSError:
            return  # it was cut, as all are at the end

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def flight_reader(port: int, stack: ExitStack) -> None:
    """Follows by Flight."""
    pond = stack.enter_context(millpond.connect(f"grpc://127.0.0.1:{port}"))
    stack.enter_context(pond.stream("s").read("earliest", follow=True))


@contextmanager
def slow_readers(served: Served) -> Iterator[None]:
    """All of them, each past its first bytes: a third follows as NDJSON, a third as events, a third by Flight."""
    kinds = [http_reader("ndjson"), http_reader("sse"), flight_reader]

    def begin(number: int) -> ExitStack:
        kind = kinds[number % 3]
        port = served.flight_port if kind is flight_reader else served.rest_port
        with ExitStack() as stack:
            proxy = stack.enter_context(FaultProxy(port, SLOW))
            kind(proxy.port, stack)
            return stack.pop_all()

    with ExitStack() as stack, ThreadPoolExecutor(READERS) as pool:
        for begun in pool.map(begin, range(READERS)):
            stack.push(begun)
        yield


def turn_of_writing(served: Served) -> float:
    """How long it takes to append records one by one, each acknowledged."""
    with served.client() as client:
        began = time.perf_counter()
        for n in range(TURN_RECORDS):
            client.post("/v1/streams/other/records", json={"n": n, "text": "y"}).raise_for_status()
        return time.perf_counter() - began


def turn_of_reading(served: Served) -> float:
    """How long it takes to read what the slow ones read, all of it."""
    with millpond.connect(served.flight) as pond:
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in pond.stream("s").read("earliest"))
        took = time.perf_counter() - began
    assert rows == 60_000
    return took


@dataclass(frozen=True)
class Turns:
    """Median times, and the highest memory."""

    writing: float
    reading: float
    rss_bytes: int


def turns(served: Served) -> Turns:
    rss = []
    writing = [turn_of_writing(served) for _ in range(TURNS)]
    reading = []
    for _ in range(TURNS):
        reading.append(turn_of_reading(served))
        rss.append(served.rss_bytes())
    return Turns(statistics.median(writing), statistics.median(reading), max(rss))


def warmed_up(served: Served) -> Turns:
    """Turns after which memory had ceased to rise."""
    found = [turns(served)]
    while len(found) < WARM_UPS_MAX:
        found.append(turns(served))
        if found[-1].rss_bytes - max(each.rss_bytes for each in found[:-1]) < STEADY_BYTES:
            return found[-1]
    raise AssertionError(f"memory rises with no slow reader there: {[each.rss_bytes for each in found]}")


def test_fifty_slow_readers_slow_nobody_and_cost_little_memory(served: Served) -> None:
    before = warmed_up(served)
    with slow_readers(served):
        tries = [turns(served)]
        # Other work of the machine comes and goes: slower turns, and memory, count if they stay.
        while len(tries) < TRIES and (
            tries[-1].writing > 1.5 * before.writing
            or tries[-1].reading > 1.5 * before.reading
            or tries[-1].rss_bytes > before.rss_bytes + GROWTH_BYTES_MAX
        ):
            tries.append(turns(served))
    after = turns(served)
    # Against the slower of before and after: other work of the machine is no fault of the readers.
    figures: dict[str, Any] = {
        "writing": min(each.writing for each in tries) / max(before.writing, after.writing),
        "reading": min(each.reading for each in tries) / max(before.reading, after.reading),
        "growth_mb": [(each.rss_bytes - before.rss_bytes) / 1e6 for each in tries],
    }
    print(figures)
    assert min(each.rss_bytes for each in tries) - before.rss_bytes <= GROWTH_BYTES_MAX, figures
    assert figures["writing"] <= 1.5, figures
    assert figures["reading"] <= 1.5, figures
    assert served.stop() == 0
