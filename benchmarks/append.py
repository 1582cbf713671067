"""Appending: large batches against plain writes, single records against one sync each, and many streams."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable

import numpy as np

import millpond
from benchmarks import records
from benchmarks.figures import report, talk
from millpond.storage import LocalStorage
from millpond.testing.slow_sync import SlowSyncStorage

THREADS = 4
BATCHES = 720
BATCH_ROUNDS = 9
ROWS = 10_000
QUOTA_BYTES = 256_000_000
TOUCHED_BYTES = 400_000_000
ROUNDS = 5


def in_threads(count: int, work: Callable[[int], object]) -> float:
    """Seconds until all threads have done their work, started together."""
    gate = threading.Barrier(count + 1)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - began
    if failures:
        raise failures[0]
    return taken


def _median_turn(ours: list[float], plain: list[float]) -> tuple[float, float]:
    """Of pairs that were measured one right after the other, the one with the median ratio."""
    return sorted(zip(ours, plain, strict=True), key=lambda turn: turn[0] / turn[1])[len(ours) // 2]


def touch_memory() -> None:
    """Take memory and give it back. A virtual machine gets memory from its host page by page at the first touch, which
    takes several times as long as writing to it; page cache and heap then start with pages that are there."""
    np.ones(TOUCHED_BYTES // 8)


def plain_writes(file: int, pieces: list[bytes], count: int) -> float:
    """Bytes per second of write + fdatasync at the end of a file, one piece at a time."""
    began = time.perf_counter()
    for number in range(count):
        os.write(file, pieces[number % len(pieces)])
        os.fdatasync(file)
    return count * len(pieces[0]) / (time.perf_counter() - began)


def batches() -> bool:
    """10,000-row batches of 100-byte records from four threads, at `disk`, with memory warmed to the quota. In turns
    with plain writes of the same bytes in the same pieces: what counts is the median of the turns' ratios."""
    made = [records.batch(number, ROWS) for number in range(32)]
    pieces = [memoryview(b.serialize()).tobytes() for b in made]
    with (
        tempfile.TemporaryDirectory() as directory,
        millpond.open(os.path.join(directory, "pond"), memory_bytes=QUOTA_BYTES, background=False) as pond,
    ):
        file = os.open(os.path.join(directory, "plain"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        stream = pond.create_stream("bench/batches", records.SCHEMA, keys=["vid"], streamlets=4)
        while pond.status().log.spilled_bytes == 0:
            stream.append(made[0])
        each = BATCHES // THREADS // BATCH_ROUNDS

        def work(thread: int) -> None:
            for number in range(each):
                stream.append(made[(thread * each + number) % len(made)])

        ours, plain = [], []
        before = pond.status().log.syncs
        for _ in range(BATCH_ROUNDS):
            touch_memory()
            ours.append(each * THREADS * len(pieces[0]) / in_threads(THREADS, work))
            touch_memory()
            plain.append(plain_writes(file, pieces, each * THREADS))
        syncs = pond.status().log.syncs - before
        os.close(file)
    for name, found in (("batches", ours), ("plain writes", plain)):
        talk(f"{name}, MB/s: {[round(speed / 1e6) for speed in found]}")
    middle = _median_turn(ours, plain)
    return report(
        "append batches at disk, bytes/s ÷ plain write + fdatasync", *middle, ">= 0.5", "bytes/s",
        threads=THREADS, rows=BATCHES * ROWS, syncs=syncs,
    )  # fmt: skip


def _singles(threads: int, seconds: float, sync_delay_seconds: float) -> tuple[float, float]:
    """Appends per second of single records, and of one write + fdatasync per record, in turns: those of the turn with
    the median ratio."""
    row = records.row(1)
    data = bytes(100)
    ours, plain = [], []
    with tempfile.TemporaryDirectory() as directory:
        storage = SlowSyncStorage(LocalStorage(), sync_delay_seconds)
        file = storage.create_append(os.path.join(directory, "plain"))
        with millpond.open(os.path.join(directory, "pond"), background=False, storage=storage) as pond:
            stream = pond.create_stream("bench/singles", records.SCHEMA, keys=["vid"], streamlets=4)
            counts = [0] * threads

            def work(thread: int) -> None:
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    stream.append(row)
                    counts[thread] += 1

            in_threads(threads, lambda thread: [stream.append(row) for _ in range(20)])
            for _ in range(ROUNDS):
                before = sum(counts)
                taken = in_threads(threads, work)
                ours.append((sum(counts) - before) / taken)
                began, done = time.perf_counter(), 0
                while time.perf_counter() - began < seconds / 2:
                    file.write([data])
                    file.sync()
                    done += 1
                plain.append(done / (time.perf_counter() - began))
        file.close()
    talk(f"single appends: {[round(each) for each in ours]}, one sync each: {[round(each) for each in plain]}")
    return _median_turn(ours, plain)


def singles() -> bool:
    """Single records at `disk` from 64 threads; the same with a millisecond added to every sync."""
    ours, plain = _singles(64, 2.0, 0.0)
    met = report("single appends at disk, 64 threads ÷ one fdatasync each", ours, plain, ">= 4", "appends/s")
    ours, plain = _singles(64, 2.0, 0.001)
    return report("single appends at disk, sync + 1 ms ÷ one such sync each", ours, plain, ">= 12", "appends/s") and met


def many_streams() -> bool:
    """The cost of an append in a pond of 1,000 streams against one of 10, one thread, at `os`."""

    def cost(streams: int) -> float:
        with tempfile.TemporaryDirectory() as directory, millpond.open(os.path.join(directory, "pond")) as pond:
            made = [pond.create_stream(f"bench/s{n}", records.SCHEMA, keys=["vid"]) for n in range(streams)]
            data = records.batch(1, 100)
            for stream in made:
                stream.append(data, durability="os")
            turn = itertools.cycle(made)
            began = time.perf_counter()
            for _ in range(3_000):
                next(turn).append(data, durability="os")
            return (time.perf_counter() - began) / 3_000

    few, many = [], []
    for _ in range(3):
        few.append(cost(10))
        many.append(cost(1_000))
    talk(f"append with 10 streams: {few}, with 1,000: {many}")
    return report("cost per append, 1,000 streams ÷ 10", min(many) * 1e6, min(few) * 1e6, "<= 1.5", "µs/append")
