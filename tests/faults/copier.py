"""Instances of a consumer program that copies the stream `in` to `out` in transactions, until they are killed.

    python -m tests.faults.copier grpc://127.0.0.1:7071 STRATEGY LEASE

This process only forks: a line `NAME` on stdin starts an instance of that name, told by `BORN NAME PID`. So that an
instance is killed and there again within milliseconds, and has nothing of its predecessor. It is done at the end of
stdin; its instances are the caller's to end.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import millpond
from millpond.consume.consumer import Consumer
from millpond.errors import Backpressure, Fenced, TransactionOver, Unavailable
from millpond.model.schema import SYSTEM_COLUMNS

IN, OUT, GROUP = "in", "out", "copy"
# Few, so that many transactions are under way while instances die.
RECORDS = 10
# What a consumer hears when it was expelled, when its node was started anew or is away. It goes on.
PASSING = (Fenced, TransactionOver, Unavailable, Backpressure)
PAUSE_SECONDS = 0.05


def copy(url: str, strategy: str, lease: str, instance: str) -> None:
    while True:
        try:
            with millpond.connect(url) as pond:
                consumer = pond.consumer(
                    IN,
                    group=GROUP,
                    strategy=strategy,  # type: ignore[arg-type]
                    by="lane" if strategy == "hash" else None,
                    lease=lease,
                    instance=instance,
                    kills_max=1_000_000,  # these records kill nobody: the test does
                )
                copy_on(consumer)
        except PASSING:
            time.sleep(PAUSE_SECONDS)  # the node is away: not asked in a tight loop


def copy_on(consumer: Consumer) -> None:
    while True:
        try:
            batches = list(consumer.poll(max_records=RECORDS, timeout="200ms"))
            if batches:
                with consumer.transaction() as tx:
                    for batch in batches:
                        tx.append(OUT, batch.drop_columns(list(SYSTEM_COLUMNS)))
        except PASSING:
            time.sleep(PAUSE_SECONDS)


def main(url: str, strategy: str, lease: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burial
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            copy(url, strategy, lease, line.strip())
        print(f"BORN {line.strip()} {child}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
