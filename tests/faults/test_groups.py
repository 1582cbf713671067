"""Consumer groups of a served pond whose instances die, sleep, lose answers and lose their server: once, all of it.

Three instances of `copier.py` copy one stream to another in transactions. Whatever is done to them, the copy ends up
with what the stream has, each record once, and under `hash` in order for each key. 30 kills in `make test`,
MILLPOND_FAULT_CYCLES in `make fault`.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import millpond
from millpond.consume.protocol import GroupStatus
from millpond.testing.fault_proxy import FaultProxy, Faults
from tests.faults.copier import GROUP, IN, OUT
from tests.serving import ROOT, Served, serving, wait_until

pytestmark = pytest.mark.timeout(900)

SCHEMA = "lane int not null, n bigint not null"
LANES = 7
INSTANCES = 3
# A dead instance's records go to others after this, unless one of its name is back before.
LEASE = "2s"
DEADLINE_SECONDS = 180.0
FEED_RECORDS = 120


class Copiers:
    """The instances. Each is a process, told by its name."""

    def __init__(self, url: str, strategy: str, lease: str = LEASE) -> None:
        self._nursery = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.faults.copier", url, strategy, lease],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        )
        self.pids: dict[str, int] = {}
        self._names = (f"copier-{number}" for number in itertools.count())
        for _ in range(INSTANCES):
            self.start(next(self._names))

    def start(self, name: str) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(f"{name}\n")
        self._nursery.stdin.flush()
        born, told, pid = self._nursery.stdout.readline().split()
        assert (born, told) == ("BORN", name)
        self.pids[name] = int(pid)

    def kill_one(self, chance: random.Random) -> None:
        """kill -9 of one of them; another one starts at once, under its name or under a new one."""
        name = chance.choice(sorted(self.pids))
        os.kill(self.pids.pop(name), signal.SIGKILL)
        self.start(name if chance.random() < 0.7 else next(self._names))

    def end(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(DEADLINE_SECONDS)
        self._nursery.stdout.close()


@contextmanager
def copying(url: str, strategy: str, lease: str = LEASE) -> Iterator[Copiers]:
    copiers = Copiers(url, strategy, lease)
    try:
        yield copiers
    finally:
        copiers.end()


class Streams:
    """What goes in and what came out. The connection outlives its server."""

    def __init__(self, url: str) -> None:
        self._pond = millpond.connect(url)
        self._sent = [0] * LANES
        self.fed = 0

    def create(self) -> None:
        from millpond.model.schema_text import parse_schema

        settle = millpond.Settle(every="1s", bytes="100KB")
        for name in (IN, OUT):
            self._pond.create_stream(name, parse_schema(SCHEMA), keys=["lane"], streamlets=2, settle=settle)

    def feed(self, records: int = FEED_RECORDS) -> None:
        rows = []
        for number in range(records):
            lane = number % LANES
            rows.append({"lane": lane, "n": self._sent[lane]})
            self._sent[lane] += 1
        self._pond.stream(IN).append(rows)
        self.fed += records

    @property
    def copied(self) -> int:
        return sum(self._pond.stream(OUT).status().head.values())

    def status(self) -> GroupStatus:
        return self._pond.group(IN, GROUP).status()

    def wait_for(self, copied: int) -> None:
        wait_until(lambda: self.copied >= copied, f"{copied} records are copied", DEADLINE_SECONDS)

    def assert_copied_once(self, *, in_order: bool) -> None:
        """Everything, once; the group knows it."""
        wait_until(lambda: self.status().lag_total == 0, "the group has processed everything", DEADLINE_SECONDS)
        rows = self._pond.stream(OUT).scan(columns=["lane", "n", "_streamlet", "_offset"]).to_pylist()
        expected = sorted((lane, n) for lane, count in enumerate(self._sent) for n in range(count))
        assert sorted((row["lane"], row["n"]) for row in rows) == expected
        status = self.status()
        assert (status.dead, status.missed) == (0, 0)
        if in_order:
            order: dict[int, list[int]] = defaultdict(list)
            for row in sorted(rows, key=lambda row: (row["_streamlet"], row["_offset"])):
                order[row["lane"]].append(row["n"])
            for lane, found in order.items():
                assert found == sorted(found), f"lane {lane} is out of order"

    def close(self) -> None:
        self._pond.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "pond") as running:
        yield running


@pytest.fixture
def streams(served: Served) -> Iterator[Streams]:
    made = Streams(served.flight)
    made.create()
    yield made
    made.close()


def kill_and_copy(served: Served, streams: Streams, strategy: str, kills: int, seed: int) -> None:
    """Each kill comes at a moment of its own while records are being copied."""
    chance = random.Random(seed)
    with copying(served.flight, strategy) as copiers:
        for _ in range(kills):
            streams.feed()
            streams.wait_for(streams.fed - FEED_RECORDS + chance.randrange(1, FEED_RECORDS))
            copiers.kill_one(chance)
        streams.feed()
        streams.assert_copied_once(in_order=strategy == "hash")


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
def test_instances_that_are_killed_copy_everything_once(served: Served, streams: Streams, strategy: str) -> None:
    kill_and_copy(served, streams, strategy, kills=15, seed=1)
    assert served.stop() == 0
    assert served.complaints() == []


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_instances_that_are_killed_very_often_copy_everything_once(
    served: Served, streams: Streams, strategy: str
) -> None:
    kill_and_copy(served, streams, strategy, int(os.environ.get("MILLPOND_FAULT_CYCLES", "1000")), seed=2)


def fenced(served: Served) -> float:
    """How many requests were refused because their sender was no member any more."""
    with served.client() as client:
        shown = client.get("/metrics").raise_for_status().text
    found = re.search(r"^millpond_group_fenced_total\{.*\} (\S+)$", shown, re.MULTILINE)
    assert found is not None
    return float(found[1])


def pause_and_copy(served: Served, streams: Streams, strategy: str, pauses: int, seed: int) -> None:
    """Each pause lasts until the group has given the sleeper up, and what it had was copied by others."""
    chance = random.Random(seed)
    with copying(served.flight, strategy, lease="1s") as copiers:
        for _ in range(pauses):
            streams.feed()
            streams.wait_for(streams.fed - FEED_RECORDS + chance.randrange(1, FEED_RECORDS))
            name = chance.choice(sorted(copiers.pids))
            os.kill(copiers.pids[name], signal.SIGSTOP)
            try:
                wait_until(
                    lambda: name not in {member.instance for member in streams.status().members},  # noqa: B023
                    f"{name} is expelled",
                    DEADLINE_SECONDS,
                )
                streams.wait_for(streams.fed)
            finally:
                os.kill(copiers.pids[name], signal.SIGCONT)
            wait_until(
                lambda: name in {member.instance for member in streams.status().members},  # noqa: B023
                f"{name} has joined again",
                DEADLINE_SECONDS,
            )
        streams.feed()
        streams.assert_copied_once(in_order=strategy == "hash")
    assert fenced(served) >= pauses


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
def test_instances_that_sleep_beyond_their_lease_copy_nothing_twice(
    served: Served, streams: Streams, strategy: str
) -> None:
    pause_and_copy(served, streams, strategy, pauses=3, seed=3)
    assert served.stop() == 0
    assert served.complaints() == []


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("strategy", ["fifo", "round_robin", "hash"])
def test_instances_that_sleep_very_often_copy_nothing_twice(served: Served, streams: Streams, strategy: str) -> None:
    pause_and_copy(served, streams, strategy, int(os.environ.get("MILLPOND_FAULT_CYCLES", "1000")) // 10, seed=4)


@pytest.mark.parametrize("strategy", ["fifo", "hash"])
def test_answers_that_are_cut_make_nothing_happen_twice(served: Served, streams: Streams, strategy: str) -> None:
    """Joins, polls and commits that happened, and whose asker cannot know it."""
    with FaultProxy(served.flight_port, seed=5) as proxy, copying(f"grpc://127.0.0.1:{proxy.port}", strategy):
        streams.feed()
        streams.wait_for(FEED_RECORDS // 2)
        proxy.faults = Faults(cut_answers=0.1)
        for _ in range(5):
            streams.feed()
            streams.wait_for(streams.fed - FEED_RECORDS // 2)
        streams.assert_copied_once(in_order=strategy == "hash")
        assert proxy.answers_cut >= 10
    assert served.stop() == 0


def test_a_server_that_is_killed_in_between_changes_nothing(tmp_path: Path) -> None:
    chance = random.Random(6)
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / "pond"))
        port = server.flight_port
        streams = Streams(server.flight)
        stack.callback(streams.close)
        streams.create()
        stack.enter_context(copying(server.flight, "hash"))
        for _ in range(3):
            streams.feed()
            streams.wait_for(streams.fed - FEED_RECORDS + chance.randrange(1, FEED_RECORDS))
            server.kill()
            server = stack.enter_context(serving(tmp_path / "pond", "--flight-port", str(port)))
        streams.feed()
        streams.assert_copied_once(in_order=True)
        assert server.stop() == 0
        assert server.complaints() == []
