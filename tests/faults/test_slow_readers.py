"""Fifty readers that take next to nothing: nobody else is slowed by much, and the server holds little for them."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.testing.fault_proxy import FaultProxy, Faults
from tests.serving import Served, serving

pytestmark = [pytest.mark.timeout(600), pytest.mark.alone]

# Each reads at this rate, through a small window: a fraction of what there is.
SLOW = Faults(answer_bytes_per_second=2_000)
READERS = 50
# What they may cost. It is not met by every run: how much of what was freed goes back to the system differs from run to
# run, so the quick one only holds that it is a fraction of the 3.5 GB that holding a window for each would take.
GROWTH_BYTES_MAX = 50_000_000
GROWTH_BYTES_QUICK = 700_000_000
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


def medians(served: Served) -> tuple[float, float]:
    writing = [turn_of_writing(served) for _ in range(TURNS)]
    reading = [turn_of_reading(served) for _ in range(TURNS)]
    return statistics.median(writing), statistics.median(reading)


@pytest.mark.parametrize(
    "growth_max", [GROWTH_BYTES_QUICK, pytest.param(GROWTH_BYTES_MAX, marks=pytest.mark.long)], ids=["quick", "strict"]
)
def test_fifty_slow_readers_slow_nobody_and_cost_little_memory(served: Served, growth_max: int) -> None:
    medians(served)  # what is first needed now is there from here on
    writing, reading = medians(served)
    before = served.rss_bytes()
    with slow_readers(served):
        tries = [medians(served)]
        # Other work of the machine comes and goes: a slower turn counts if it stays one.
        while len(tries) < TRIES and (tries[-1][0] > 1.5 * writing or tries[-1][1] > 1.5 * reading):
            tries.append(medians(served))
        slowed_writing, slowed_reading = (min(found) for found in zip(*tries, strict=True))
        print()
        growth = served.rss_bytes() - before
    after_writing, after_reading = medians(served)
    # Against the slower of before and after: other work of the machine is no fault of the readers.
    figures = {
        "writing": slowed_writing / max(writing, after_writing),
        "reading": slowed_reading / max(reading, after_reading),
        "growth_mb": growth / 1e6,
    }
    assert growth <= growth_max, figures
    assert figures["writing"] <= 1.5, figures
    assert figures["reading"] <= 1.5, figures
    assert served.stop() == 0
