"""Recovery until the first read is served, against reading and checksumming the same files."""

from __future__ import annotations

import glob
import os
import tempfile

from isal import isal_zlib

import millpond
from benchmarks import records
from benchmarks.figures import report, timed

APPENDS, ROWS, RUNS = 3_000, 1_000, 3


def recovery() -> bool:
    """1,000-row appends, 300 MB of journal."""
    data = [records.batch(number, ROWS) for number in range(50)]
    with tempfile.TemporaryDirectory() as directory:
        where = os.path.join(directory, "pond")
        with millpond.open(where, background=False) as pond:
            stream = pond.create_stream("bench/recovery", records.SCHEMA, keys=["vid"])
            for number in range(APPENDS):
                stream.append(data[number % len(data)], durability="os")
        files = sorted(glob.glob(os.path.join(where, "journal", "*.journal")))
        total = sum(os.path.getsize(path) for path in files)

        def read_and_check() -> None:
            for path in files:
                with open(path, "rb") as file:
                    isal_zlib.crc32(file.read())

        def open_and_read() -> None:
            pond = millpond.open(where, background=False)
            first = next(iter(pond.stream("bench/recovery").read()))
            taken.append(first.num_rows)
            ponds.append(pond)

        ours, plain, taken, ponds = [], [], [], []
        for _ in range(RUNS):
            plain.append(total / timed(read_and_check))
            ours.append(total / timed(open_and_read))
            ponds.pop().close()
        assert all(taken)
    return report("recovery, bytes/s ÷ read + checksum", max(ours), max(plain), ">= 0.3", "bytes/s", bytes=total)
