"""Consuming: polls with a commit each against a plain read, and a copy in transactions against one without."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa

import millpond
from benchmarks import records
from benchmarks.figures import report, talk, timed

RECORDS = 1_000_000
APPENDED_ROWS = 10_000
BATCH_ROWS = 1_000
ROUNDS = 5
COPIED = 300_000


def consume() -> bool:
    """Both figures."""
    with tempfile.TemporaryDirectory() as directory, millpond.open(directory, background=False) as pond:
        stream = pond.create_stream("grid/meters", records.SCHEMA, keys=["vid"])
        for number in range(RECORDS // APPENDED_ROWS):
            stream.append(records.batch(number, APPENDED_ROWS), durability="os")
        groups = (f"group-{number}" for number in count())
        return poll_and_commit(pond, stream, groups) & copy(pond, stream, groups)


def poll_and_commit(pond: Any, stream: Any, groups: Iterator[str]) -> bool:
    """Records per second of polls of 1,000 records, each committed, against those of a read in such batches."""

    def read() -> None:
        assert sum(batch.num_rows for batch in stream.read(batch_rows=BATCH_ROWS)) == RECORDS

    def polled(wait: bool) -> None:
        with pond.consumer(stream.name, group=next(groups)) as consumer:
            seen = 0
            while seen < RECORDS:
                for batch in consumer.poll(max_records=BATCH_ROWS, timeout="1s"):
                    seen += batch.num_rows
                consumer.commit(wait=wait)
            assert sum(consumer.lag().values()) == 0

    waited = statistics.median(timed(lambda: polled(True)) for _ in range(3))
    ours, plain = _in_turns(lambda: polled(False), read)
    each = round(RECORDS / waited)
    # A commit that is waited for takes a write to the journal and two changes of thread, whatever the batch.
    return report(
        "consume.poll_and_commit", RECORDS / ours, RECORDS / plain, ">= 0.5", "records/s", each_commit_waited_for=each
    )


def copy(pond: Any, stream: Any, groups: Iterator[str]) -> bool:
    """A copy of a stream to another, 1,000 records at a time: outputs and position in one transaction each, against an
    append and a commit each."""
    names = (f"grid/copy-{number}" for number in count())

    def copied(transactional: bool) -> None:
        target = pond.create_stream(next(names), records.SCHEMA)
        with pond.consumer(stream.name, group=next(groups)) as consumer:
            seen = 0
            while seen < COPIED:
                for batch in consumer.poll(max_records=BATCH_ROWS, timeout="1s"):
                    rows: pa.RecordBatch = batch.select(records.SCHEMA.names)
                    seen += rows.num_rows
                    if transactional:
                        with consumer.transaction() as tx:
                            tx.append(target.name, rows)
                    else:
                        target.append(rows)
                        consumer.commit()
        assert target.count() == COPIED
        pond.drop_stream(target.name)

    ours, plain = _in_turns(lambda: copied(True), lambda: copied(False))
    return report("consume.transactional_copy", COPIED / ours, COPIED / plain, ">= 0.6", "records/s")


def _in_turns(ours: Any, plain: Any) -> tuple[float, float]:
    """The turn with the median ratio, of several, one after the other."""
    turns = []
    for _ in range(ROUNDS):
        turns.append((timed(ours), timed(plain)))
        talk(f"  ours {turns[-1][0]:.2f} s, plain {turns[-1][1]:.2f} s")
    return sorted(turns, key=lambda turn: turn[0] / turn[1])[ROUNDS // 2]
