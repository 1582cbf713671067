"""The doors under faults of network and process: what was sent once arrives once, what was acknowledged stays.

Between client and server stands `FaultProxy`; the server is a process of its own, and is killed as one.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import millpond
from millpond.errors import DiskFull
from millpond.testing.fault_proxy import FaultProxy, Faults
from tests.serving import Served, serving, wait_until

pytestmark = pytest.mark.timeout(600)

SCHEMA = "lane int not null, n bigint not null, sender int not null"
CUTS = Faults(cut_answers=0.2)
SENDERS = 4
# About 25 records each: thousands of batches, and a fifth of their answers is cut.
BATCH_BYTES = "1500B"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "pond") as running:
        running.create("s", schema=SCHEMA, keys=["lane"], streamlets=3, settle={"every": "5s", "bytes": "2MB"})
        yield running


def record(sender: int, n: int) -> dict[str, int]:
    return {"lane": n % 7, "n": n, "sender": sender}


def in_parallel(work: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def records_of(served: Served) -> list[dict[str, int]]:
    """Everything in the stream, in the order of offsets within each streamlet."""
    with millpond.connect(served.flight) as pond:
        rows = pond.stream("s").scan(columns=["sender", "n", "_streamlet", "_offset"]).to_pylist()
    return sorted(rows, key=lambda row: (row["_streamlet"], row["_offset"]))


def assert_once_and_in_order(rows: list[dict[str, int]], expected: dict[int, int]) -> None:
    """Of every sender its records 0 to n, each once, in the order they were sent within a streamlet."""
    sent = [(sender, n) for sender, count in expected.items() for n in range(count)]
    assert sorted((row["sender"], row["n"]) for row in rows) == sorted(sent)
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        order[row["_streamlet"], row["sender"]].append(row["n"])
    for found in order.values():
        assert found == sorted(found)


# What was sent once arrives once.


def produce_through_cuts(served: Served, records: int) -> tuple[int, int]:
    """Appends through batching producers, each with a proxy of its own; how many answers were cut, and how many packets
    the server had seen before."""
    each = records // SENDERS

    def send(sender: int) -> tuple[int, int]:
        with FaultProxy(served.flight_port, seed=sender) as proxy:
            with millpond.connect(f"grpc://127.0.0.1:{proxy.port}") as pond:
                stream = pond.stream("s")
                with stream.producer(batch_bytes=BATCH_BYTES, linger="1s") as producer:
                    proxy.faults = CUTS
                    for n in range(each):
                        producer.append(record(sender, n))
                    producer.flush()
                    proxy.faults = Faults()
                    figures = producer.figures
            assert figures.records_acknowledged == each
            assert figures.records_failed == 0
            return proxy.answers_cut, figures.duplicates

    cuts, duplicates = zip(*in_parallel(send, SENDERS), strict=True)
    assert_once_and_in_order(records_of(served), dict.fromkeys(range(SENDERS), each))
    return sum(cuts), sum(duplicates)


def test_100_000_records_arrive_once_although_a_fifth_of_the_answers_is_cut(served: Served) -> None:
    cuts, duplicates = produce_through_cuts(served, 100_000)
    assert cuts >= 500
    assert duplicates >= 500
    assert served.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_million_records_arrive_once_although_a_fifth_of_the_answers_is_cut(served: Served) -> None:
    cuts, _ = produce_through_cuts(served, 1_000_000)
    assert cuts >= 5_000
    assert served.stop() == 0


def post_until_answered(client: httpx.Client, rows: list[dict[str, int]], key: str) -> tuple[dict[str, Any], int]:
    """The acknowledgement, and how often it took."""
    for attempt in itertools.count(1):
        try:
            answer = client.post("/v1/streams/s/records", json=rows, headers={"idempotency-key": key})
        except httpx.TransportError:
            continue
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found, attempt
    raise AssertionError


def post_through_cuts(served: Served, appends: int) -> int:
    """Appends with a key each, sent again with the same key when the answer was cut; how many were cut."""
    each = appends // SENDERS
    with FaultProxy(served.rest_port, CUTS, seed=1) as proxy:

        def send(sender: int) -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", trust_env=False, timeout=60) as client:
                for number in range(each):
                    rows = [record(sender, 2 * number), record(sender, 2 * number + 1)]
                    answer, attempts = post_until_answered(client, rows, f"{sender}-{number}")
                    assert sum(r["stop"] - r["start"] for r in answer["ranges"].values()) == 2
                    assert answer["duplicate"] == (attempts > 1)

        in_parallel(send, SENDERS)
        cuts = proxy.answers_cut
    assert_once_and_in_order(records_of(served), dict.fromkeys(range(SENDERS), 2 * each))
    return cuts


def test_appends_with_a_key_arrive_once_although_a_fifth_of_the_answers_is_cut(served: Served) -> None:
    assert post_through_cuts(served, 2_000) >= 300
    assert served.stop() == 0
    assert served.complaints() == []


@pytest.mark.long
@pytest.mark.timeout(0)
def test_very_many_appends_with_a_key_arrive_once(served: Served) -> None:
    assert post_through_cuts(served, 100_000) >= 15_000


def test_requests_that_are_cut_in_their_middle_leave_nothing(served: Served) -> None:
    """Half a request is no request; sent again, with its key, it counts once."""
    with FaultProxy(served.rest_port, Faults(cut_requests=0.3, delay_seconds=0.001), seed=2) as proxy:
        with httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", trust_env=False, timeout=60) as client:
            for number in range(200):
                post_until_answered(client, [record(0, number)], str(number))
        assert proxy.requests_cut >= 40
    assert_once_and_in_order(records_of(served), {0: 200})
    assert served.stop() == 0
    assert served.complaints() == []


# Killed.


class Senders:
    """Producers by Flight and requests by REST, at work in threads until the server is gone; and what was
    acknowledged. Numbers are a sender's own, so that what is there can be told from what is not."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._lock = threading.Lock()
        self._heard = threading.Condition(self._lock)
        self.acknowledged: dict[int, set[int]] = defaultdict(set)
        self.unknown: dict[int, set[int]] = defaultdict(set)
        self._threads = [threading.Thread(target=self._post, args=(n,), daemon=True) for n in (0, 1, 2)]
        self._threads += [threading.Thread(target=self._put, args=(n,), daemon=True) for n in (3, 4)]
        self._failures: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int) -> None:
        """Until every sender has had so many acknowledgements."""
        with self._heard:
            heard = self._heard.wait_for(
                lambda: self._failures or min(len(self.acknowledged[n]) for n in range(5)) >= count, 120
            )
        assert heard, {n: len(found) for n, found in self.acknowledged.items()}
        assert not self._failures

    def join(self) -> None:
        """Until all have noticed that there is nobody any more."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
        assert not self._failures, self._failures

    def _heard_of(self, sender: int, numbers: list[int], *, known: bool = True) -> None:
        with self._heard:
            (self.acknowledged if known else self.unknown)[sender].update(numbers)
            self._heard.notify_all()

    def _post(self, sender: int) -> None:
        """REST: single events and small arrays, each with a key but for sender 2."""
        try:
            with self._served.client() as client:
                for n in itertools.count(0, 2):
                    rows = [record(sender, n), record(sender, n + 1)]
                    keyed = {} if sender == 2 else {"idempotency-key": f"{sender}-{n}"}
                    try:
                        answer = client.post("/v1/streams/s/records", json=rows, headers=keyed)
                    except httpx.TransportError:
                        self._heard_of(sender, [n, n + 1], known=False)
                        return
                    if answer.status_code == 503:  # it is stopping, and said so
                        return
                    answer.raise_for_status()
                    self._heard_of(sender, [n, n + 1])
        except BaseException as error:
            self._failures.append(error)

    def _put(self, sender: int) -> None:
        """Flight: a batching producer, whose futures say what was acknowledged."""
        try:
            with millpond.connect(self._served.flight) as pond:
                producer = pond.stream("s").producer(
                    f"sender-{sender}", batch_bytes=BATCH_BYTES, linger="1ms", buffer="30KB", wait="2s", give_up="1s"
                )
                for n in itertools.count():
                    try:
                        future = producer.append(record(sender, n))
                    except millpond.MillpondError:
                        return
                    self.unknown[sender].add(n)
                    future.add_done_callback(lambda done, n=n: done.exception() or self._heard_of(sender, [n]))
                    if self._served.process.poll() is not None:
                        return
        except millpond.MillpondError:
            return
        except BaseException as error:
            self._failures.append(error)


def assert_promises_kept(served: Served, senders: Senders) -> None:
    """All that was acknowledged is there; nothing is there twice; nothing is there that nobody sent."""
    found = [(row["sender"], row["n"]) for row in records_of(served)]
    assert len(found) == len(set(found)), "something is there twice"
    there = defaultdict(set)
    for sender, n in found:
        there[sender].add(n)
    for sender in range(5):
        assert senders.acknowledged[sender] <= there[sender], f"sender {sender} has lost something"
        assert there[sender] <= senders.acknowledged[sender] | senders.unknown[sender]


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(serving(tmp_path / "pond"))
        first.create("s", schema=SCHEMA, keys=["lane"], streamlets=3, settle={"every": "200ms", "bytes": "100KB"})
        senders = Senders(first)
        senders.wait_for(100)
        first.kill()
        senders.join()
        second = stack.enter_context(serving(tmp_path / "pond"))
        assert_promises_kept(second, senders)
        # Whoever got no answer sends again with the same key: what had arrived is recognised.
        before = {(row["sender"], row["n"]) for row in records_of(second)}
        with second.client() as client:
            for sender in (0, 1):
                for n in sorted(senders.unknown[sender])[::2]:
                    answer, _ = post_until_answered(client, [record(sender, n), record(sender, n + 1)], f"{sender}-{n}")
                    assert answer["duplicate"] == ((sender, n) in before)
        assert_promises_kept(second, senders)
        assert second.stop() == 0


# Stopped.


def test_a_server_that_is_told_to_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "pond", "--drain-seconds", "20") as first:
        first.create("s", schema=SCHEMA, keys=["lane"], streamlets=3)
        senders = Senders(first)
        senders.wait_for(50)
        assert first.stop() == 0
        senders.join()
    # Those who came while it stopped were told so.
    assert [line for line in first.complaints() if '"status":503' not in line] == []
    with serving(tmp_path / "pond") as second:
        assert_promises_kept(second, senders)
        assert second.stop() == 0


HALF_A_REQUEST = (
    b"POST /v1/streams/s/records HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\nexpect: 100-continue\r\n\r\n"
)


def test_a_second_signal_hurries(tmp_path: Path) -> None:
    """A request whose body never comes keeps the server waiting for as long as it drains; not after a second signal."""
    with serving(tmp_path / "pond", "--drain-seconds", "3600", "--request-seconds", "3600") as served:
        served.create("s", schema=SCHEMA)
        with served.client() as client:
            client.post("/v1/streams/s/records", json=record(0, 0)).raise_for_status()
        with socket.create_connection(("127.0.0.1", served.rest_port)) as half:
            half.settimeout(60)
            half.sendall(HALF_A_REQUEST)
            assert half.recv(1_000).startswith(b"HTTP/1.1 100 ")  # it waits for the body
            served.terminate()
            wait_until(lambda: any("stopping" in line for line in served.log), "it has heard the signal")
            assert served.process.poll() is None
            served.terminate()
            assert served.wait() == 0
    with serving(tmp_path / "pond") as second:
        assert_once_and_in_order(records_of(second), {0: 1})
        assert second.stop() == 0


# Full.


def test_a_full_disk_is_507_at_both_doors_and_reads_go_on(tmp_path: Path) -> None:
    with serving(tmp_path / "pond") as first:
        first.create("s", schema=SCHEMA)
        with first.client() as client:
            client.post("/v1/streams/s/records", json=[record(0, 0), record(0, 1)]).raise_for_status()
        assert first.stop() == 0
    # More than any disk has free: as full as a disk can be.
    with serving(tmp_path / "pond", "--pond-disk-reserve-bytes", "1000000TB") as full:
        with full.client() as client:
            for sent in (record(0, 2), [record(0, 2)]):  # the way of single events, and that of all others
                refused = client.post("/v1/streams/s/records", json=sent)
                assert (refused.status_code, refused.json()["code"]) == (507, "disk-full")
                assert int(refused.headers["retry-after"]) >= 1
            assert "appends are refused" in str(client.get("/readyz").json()["reasons"])
        with millpond.connect(full.flight) as pond, pytest.raises(DiskFull):
            pond.stream("s").append(record(0, 2))
        assert_once_and_in_order(records_of(full), {0: 2})
        assert full.stop() == 0


def test_full_memory_is_503_with_a_time_to_come_back_and_reads_go_on(tmp_path: Path) -> None:
    """Records come in faster than they leave memory, and nobody waits for it."""
    options = ["--pond-memory-bytes", "16MB", "--pond-segment-bytes", "8MB", "--pond-memory-wait-seconds", "0s"]
    with serving(tmp_path / "pond", *options) as served:
        served.create("s", schema="text string", durability="memory")
        body = "".join(f'{{"text":"{n}-{"x" * 1_000}"}}\n' for n in range(10_000)).encode()
        taken = 0
        lock = threading.Lock()

        def send(sender: int) -> httpx.Response | None:
            nonlocal taken
            with served.client() as client:
                for _ in range(20):
                    headers = {"content-type": "application/x-ndjson"}
                    answer = client.post("/v1/streams/s/records", content=body, headers=headers)
                    if answer.status_code != 200:
                        return answer
                    with lock:
                        taken += 10_000
            return None

        refused = [answer for answer in in_parallel(send, 3) if answer is not None]
        assert refused
        for answer in refused:
            assert (answer.status_code, answer.json()["code"]) == (503, "memory-full")
            assert int(answer.headers["retry-after"]) >= 1
        with served.client() as client:
            assert client.get("/v1/streams/s/count").json() == {"count": taken}
        assert served.stop() == 0
