"""A lock on a file of a served pond dies with its holder: killed, or asleep for longer than its lease. E2"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import millpond
from millpond.client.pond import RemotePond
from millpond.errors import FileLocked
from millpond.files import FileWriter
from tests.serving import Served, serving

HOLDER = Path(__file__).parent / "holder.py"
LEASE = "1s"
# Two busy cores make everything take its time.
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served") / "pond") as running:
        yield running
        assert running.stop() == 0


class Holder:
    def __init__(self, served: Served, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOLDER), served.url, name, LEASE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hears() == "holding"

    def append(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.hears()

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def holding(served: Served, name: str) -> Iterator[Holder]:
    holder = Holder(served, name)
    try:
        yield holder
    finally:
        holder.process.kill()
        holder.process.communicate()


def held_at_last(pond: RemotePond, name: str) -> FileWriter:
    """Alone, once the lease of another one is over."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return pond.open_file(name, "a", exclusive=True, lease="30s")
        except FileLocked:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_killed_holder_loses_the_file(served: Served) -> None:
    with millpond.connect(served.url) as pond, holding(served, "killed") as holder:
        assert holder.append("one ") == "appended"
        with pytest.raises(FileLocked):
            pond.open_file("killed", "a", exclusive=True)
        holder.process.send_signal(signal.SIGKILL)
        with held_at_last(pond, "killed") as file:
            file.append(b"two")
        with pond.open_file("killed") as reader:
            assert reader.read() == b"one two"


def test_a_holder_that_slept_beyond_its_lease_cannot_write_any_more(served: Served) -> None:
    with millpond.connect(served.url) as pond, holding(served, "asleep") as holder:
        assert holder.append("one ") == "appended"
        holder.process.send_signal(signal.SIGSTOP)
        file = held_at_last(pond, "asleep")
        file.append(b"two")
        holder.process.send_signal(signal.SIGCONT)
        assert holder.append("not this") == "fenced"
        file.append(b" three")
        file.close()
        assert holder.append("not this either") == "fenced"
        with pond.open_file("asleep") as reader:
            assert reader.read() == b"one two three"


def test_a_holder_that_only_waits_keeps_the_file(served: Served) -> None:
    with millpond.connect(served.url) as pond, holding(served, "idle") as holder:
        until = time.monotonic() + 2.5  # two and a half leases
        while time.monotonic() < until:
            with pytest.raises(FileLocked):
                pond.open_file("idle", "a", exclusive=True)
        assert holder.append("one") == "appended"
