"""The process that is killed: a writer under load, started again and again.

Run as a script it imports everything once and then, for each line `pond directory, number of the life` on standard
input, forks a child that opens the pond and appends from several threads until it is killed, while the pond settles and
merges in the background. The child says what it sends before it sends it (`S`) and what was acknowledged (`A`), one
line each, on standard output, which is a pipe: what is written to it survives the writer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import zlib

import pyarrow as pa

import millpond
from millpond.errors import Backpressure, PondLocked

THREADS = 4
STREAMS = {"safe": "disk", "quick": "os", "loose": "memory"}
SCHEMA = pa.schema([("id", pa.int64()), ("check", pa.int64()), ("filling", pa.string())])


def check_of(number: int) -> int:
    """What must stand beside an id."""
    return zlib.crc32(str(number).encode())


def row_of(number: int) -> dict[str, object]:
    return {"id": number, "check": check_of(number), "filling": "x" * (number % 300)}


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def ids_of(life: int, thread: int, sequence: int) -> list[int]:
    """The records of an append: known to both sides from its number alone."""
    first = (life * THREADS + thread) * 10_000_000 + sequence * 100
    return list(range(first, first + 1 + (sequence * 7 + thread) % 20))


def live(directory: str, life: int) -> None:
    """Append until the end."""
    try:
        pond = millpond.open(directory, journal_file_bytes=200_000, segment_bytes=64_000, flush_seconds=0.2)
    except PondLocked as error:
        say("LOCKED", error.code)
        os._exit(3)
    settle = millpond.Settle(every="300ms", bytes="200KB")
    for name, durability in STREAMS.items():
        pond.create_stream(name, SCHEMA, keys=["id"], streamlets=3, durability=durability, settle=settle, exist_ok=True)
    say("OPEN", os.getpid())

    def work(thread: int) -> None:
        sequence = 0
        while True:
            for name in STREAMS:
                sequence += 1
                ids = ids_of(life, thread, sequence)
                rows = [row_of(n) for n in ids]
                say("S", name, life, thread, sequence)
                data = rows if sequence % 2 else pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
                try:
                    ack = pond.stream(name).append(data, producer=f"p{life}-{thread}", sequence=sequence)
                except Backpressure:
                    say("R", name, life, thread, sequence)
                    continue
                ranges = {s: [r.start, r.stop] for s, r in ack.ranges.items()}
                say("A", name, life, thread, sequence, json.dumps(ranges, separators=(",", ":")))

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    for line in sys.stdin:
        directory, life = line.split()
        child = os.fork()
        if child == 0:
            try:
                live(directory, int(life))
            except BaseException as error:
                say("FAILED", repr(error).replace("\n", " "))
            os._exit(1)
        say("BORN", life, child)
        _, status = os.waitpid(child, 0)
        say("DEAD", life, status)


if __name__ == "__main__":
    main()
