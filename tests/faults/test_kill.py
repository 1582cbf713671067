"""kill -9 of a real process under load, on the real disk: nothing acknowledged is lost, nothing doubled (I1, I2, I3).

20 lives in `make test`, MILLPOND_FAULT_CYCLES in `make fault`. What a power cut would do is not shown here, but by the
modelled disk.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import millpond
from millpond.errors import PondLocked
from tests.faults import victim

pytestmark = pytest.mark.timeout(600)

# A pond is made anew after so many lives: a check reads all of it.
LIVES_PER_POND = 10
DEADLINE_SECONDS = 120.0


@dataclass
class Said:
    """What the lives of one pond said, by stream and then by (life, thread, sequence)."""

    sent: dict[str, set[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(set))
    refused: dict[str, set[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(set))
    acked: dict[str, dict[tuple[int, int, int], dict[int, list[int]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )


class Victim:
    """The process of `victim.py`, and what it says."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.faults.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent.parent,
        )
        self.said = Said()
        self.child = 0
        self._heard = threading.Condition()
        self._acks = 0
        self._words: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            with self._heard:
                if words[0] in "SRA":
                    key = (int(words[2]), int(words[3]), int(words[4]))
                    if words[0] == "S":
                        self.said.sent[words[1]].add(key)
                    elif words[0] == "R":
                        self.said.refused[words[1]].add(key)
                    else:
                        self._acks += 1
                        ranges = {int(s): offsets for s, offsets in json.loads(words[5]).items()}
                        self.said.acked[words[1]][key] = ranges
                else:
                    if words[0] == "BORN":
                        self.child = int(words[2])
                    self._words.append(line.strip())
                self._heard.notify_all()

    def start(self, directory: Path, life: int) -> None:
        assert self.process.stdin is not None
        self._words.clear()
        self._acks = 0
        self.process.stdin.write(f"{directory} {life}\n")
        self.process.stdin.flush()

    def wait_for(self, word: str) -> str:
        """The line with that first word."""
        with self._heard:
            found = self._heard.wait_for(
                lambda: [w for w in self._words if w.split()[0] in (word, "FAILED")], DEADLINE_SECONDS
            )
        assert found, f"no {word} within {DEADLINE_SECONDS} s; heard {self._words}"
        assert found[0].split()[0] == word, found
        return found[0]

    def wait_for_acks(self, count: int) -> None:
        with self._heard:
            heard = self._heard.wait_for(lambda: self._acks >= count, DEADLINE_SECONDS)
        assert heard, f"{self._acks} acks within {DEADLINE_SECONDS} s, not {count}; heard {self._words}"

    def kill(self) -> None:
        """kill -9, and wait until it is dead and all it said was heard."""
        os.kill(self.child, signal.SIGKILL)
        self.wait_for("DEAD")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None and self.child and not any(w.startswith("DEAD") for w in self._words):
            os.kill(self.child, signal.SIGKILL)
        self.process.wait(DEADLINE_SECONDS)
        self._listener.join(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def prey() -> Iterator[Victim]:
    running = Victim()
    yield running
    running.end()


def check_pond(directory: Path, said: Said) -> int:
    """Every promise is kept; returns how many records there are."""
    total = 0
    with millpond.open(directory, background=False) as pond:
        for name, durability in victim.STREAMS.items():
            if name not in {stream.name for stream in pond.streams()}:
                assert not said.acked[name]
                continue
            table = pond.stream(name).scan(columns=["id", "check", "filling", "_streamlet", "_offset"])
            total += table.num_rows
            places: dict[int, tuple[int, int]] = {}
            for row in table.to_pylist():
                number = row["id"]
                assert number not in places, f"{name}: {number} is there twice"
                assert row["check"] == victim.check_of(number)
                assert row["filling"] == "x" * (number % 300)
                places[number] = (row["_streamlet"], row["_offset"])
            offsets = defaultdict(list)
            for streamlet, offset in places.values():
                offsets[streamlet].append(offset)
            for streamlet, found in offsets.items():
                assert sorted(found) == list(range(len(found))), f"{name}/{streamlet} is not dense"
            check_appends(name, said, places, promised=durability != "memory")
            retry_unknown(pond.stream(name), said, places)
    return total


def retry_unknown(stream: millpond.Stream, said: Said, places: dict[int, tuple[int, int]]) -> None:
    """What a producer does that has no answer: it sends again. The next check sees each record once."""
    name = stream.name
    for key in sorted(said.sent[name] - said.acked[name].keys() - said.refused[name]):
        life, thread, sequence = key
        ids = victim.ids_of(*key)
        ack = stream.append([victim.row_of(n) for n in ids], producer=f"p{life}-{thread}", sequence=sequence)
        assert ack.duplicate == (ids[0] in places), f"{name}: {key}"
        said.acked[name][key] = {s: [r.start, r.stop] for s, r in ack.ranges.items()}


def check_appends(name: str, said: Said, places: dict[int, tuple[int, int]], *, promised: bool) -> None:
    known = 0
    for key in said.sent[name]:
        ids = victim.ids_of(*key)
        there = [places[n] for n in ids if n in places]
        ranges = said.acked[name].get(key)
        assert len(there) in (0, len(ids)), f"{name}: {key} is there in part"
        assert not (there and key in said.refused[name]), f"{name}: {key} was refused and is there"
        if ranges is not None and promised:
            assert there, f"{name}: {key} was acknowledged and is lost"
        if ranges is not None and there:
            expected = sorted((s, o) for s, (start, stop) in ranges.items() for o in range(start, stop))
            assert sorted(there) == expected, f"{name}: {key} is not where its ack says"
        known += len(there)
    assert known == len(places), f"{name}: records that nobody sent"


def live_and_die(prey: Victim, root: Path, lives: int, seed: int) -> int:
    rng = random.Random(seed)
    total = 0
    for life in range(lives):
        directory = root / f"pond-{life // LIVES_PER_POND}"
        if life % LIVES_PER_POND == 0:
            shutil.rmtree(root / f"pond-{life // LIVES_PER_POND - 1}", ignore_errors=True)
            prey.said = Said()
        prey.start(directory, life)
        if life % 5 == 4:  # early: while it recovers, or as soon as it has
            prey.wait_for(rng.choice(("BORN", "OPEN")))
        else:
            prey.wait_for_acks(rng.randrange(1, 1_000))
        prey.kill()
        total += check_pond(directory, prey.said)
        if life % LIVES_PER_POND == LIVES_PER_POND - 1:
            check_pond(directory, prey.said)  # what was sent again is there once
    return total


def test_a_process_killed_again_and_again_keeps_its_promises(prey: Victim, tmp_path: Path) -> None:
    """I1, I2, I3: 20 lives."""
    assert live_and_die(prey, tmp_path, 20, seed=1) > 0


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_process_killed_very_often_keeps_its_promises(prey: Victim, tmp_path: Path) -> None:
    """I1, I2, I3: MILLPOND_FAULT_CYCLES lives."""
    lives = int(os.environ.get("MILLPOND_FAULT_CYCLES", "1000"))
    assert live_and_die(prey, tmp_path, lives, seed=2) > 0


def test_a_frozen_process_keeps_its_pond(prey: Victim, tmp_path: Path) -> None:
    """I7: a process that is stopped, and so seems dead, still has the pond; nobody else gets in; it goes on."""
    prey.start(tmp_path / "pond", 0)
    prey.wait_for_acks(20)
    os.kill(prey.child, signal.SIGSTOP)
    try:
        with pytest.raises(PondLocked):
            millpond.open(tmp_path / "pond")
    finally:
        os.kill(prey.child, signal.SIGCONT)
    with prey._heard:
        before = prey._acks
    prey.wait_for_acks(before + 20)
    prey.kill()
    assert check_pond(tmp_path / "pond", prey.said) > 0


def test_of_two_processes_at_once_one_is_refused(prey: Victim, tmp_path: Path) -> None:
    """I7"""
    second = Victim()
    try:
        prey.start(tmp_path / "pond", 0)
        prey.wait_for_acks(5)
        second.start(tmp_path / "pond", 1)
        assert second.wait_for("LOCKED") == "LOCKED pond-locked"
        assert second.wait_for("DEAD").split()[2] == str(3 << 8)
        prey.wait_for_acks(50)
        prey.kill()
        assert check_pond(tmp_path / "pond", prey.said) > 0
    finally:
        second.end()
