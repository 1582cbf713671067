"""Resident memory against live bytes, in a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

import psutil

import millpond
from benchmarks import records
from benchmarks.figures import report

LIVE_BYTES = 1_000_000_000
ROWS = 10_000


def memory() -> bool:
    """1 GB live in sealed segments with key hashes; again after half has settled."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.memory"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    met = report("resident memory above idle ÷ live bytes, sealed", found["full"], found["live"], "<= 1.4", "bytes")
    return report("the same after half has settled", found["half"], found["half_live"], "<= 1.5", "bytes") and met


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _steady() -> int:
    """Resident memory once it has stopped falling."""
    last = _resident()
    for _ in range(20):
        time.sleep(0.1)
        now = _resident()
        if now >= last:
            return now
        last = now
    return last


def _main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = {"memory_bytes": 3_000_000_000}
        with millpond.open(os.path.join(directory, "pond"), background=False, **settings) as pond:  # type: ignore[arg-type]
            both = [
                pond.create_stream(f"bench/m{n}", records.SCHEMA, keys=["vid", "city"], streamlets=2) for n in range(2)
            ]
            for stream in both:  # everything that is loaded on first use, and the threads' stacks
                stream.append(records.batch(0, ROWS))
                stream.settle()
            made = [records.batch(number, ROWS) for number in range(20)]
            idle = _steady()
            live = 0
            for number in itertools.count():
                if live >= LIVE_BYTES:
                    break
                both[number % 2].append(made[number % len(made)], durability="os")
                live += made[number % len(made)].nbytes
            for stream in both:
                pond.log.seal(stream.definition.id)
            pond.log.tend()
            full = _steady() - idle
            both[0].settle()
            half_live = pond.log.bytes_live(both[1].definition.id)
            half = _steady() - idle
            spilled = pond.status().log.spilled_bytes
            assert spilled == 0, "everything must be in memory for this figure"
    print(json.dumps({"idle": idle, "live": live, "full": full, "half": half, "half_live": half_live}))


if __name__ == "__main__":
    _main()
