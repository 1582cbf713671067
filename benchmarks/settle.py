"""Settling against a bare Parquet writer on the same rows."""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from benchmarks import records
from benchmarks.figures import report, timed

BATCHES, ROWS, RUNS = 200, 10_000, 3


def settle() -> bool:
    """Rows per second of `settle()`, everything synced, against `pyarrow.parquet.write_table` (which syncs nothing)."""
    made = [records.batch(number, ROWS) for number in range(BATCHES)]
    rows = BATCHES * ROWS
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as directory:
        for run in range(RUNS):
            where = os.path.join(directory, f"pond-{run}")
            with millpond.open(where, memory_bytes=2_000_000_000, background=False) as pond:
                stream = pond.create_stream(
                    "bench/settle", records.SCHEMA, keys=["vid"], streamlets=4, event_time="date"
                )
                for each in made:
                    stream.append(each, durability="os")
                stored = pa.Table.from_batches(stream.read()).combine_chunks()
                pond.log.sync()
                pond.log.tend()
                ours.append(rows / timed(stream.settle))
            path = os.path.join(directory, "bare.parquet")
            bare.append(rows / timed(lambda path=path, stored=stored: pq.write_table(stored, path)))
    return report(
        "settle, rows/s ÷ bare write_table",
        sorted(ours)[RUNS // 2],
        sorted(bare)[RUNS // 2],
        ">= 0.5",
        "rows/s",
        rows=rows,
    )
