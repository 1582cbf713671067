"""The records that benchmarks send: 100 bytes each, shaped like meter readings, the same in every run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("vid", pa.string()),
        ("city", pa.string()),
        ("date", pa.timestamp("us", tz="UTC")),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("temp", pa.float64()),
        ("load", pa.float64()),
        ("note", pa.string()),
    ]
)
CITIES = np.array(["Nice", "Paris", "Lyon", "Toulouse", "Marseille", "Lille", "Bordeaux", "Nantes"])
START_MICROS = 1_700_000_000_000_000


def batch(number: int, rows: int) -> pa.RecordBatch:
    """Batch `number` of a run; rows of about 100 bytes."""
    random = np.random.default_rng(number)
    meters = random.integers(0, 100_000, rows)
    columns = [
        pa.array([f"meter-{m:06d}" for m in meters]),
        pa.array(CITIES[meters % len(CITIES)]),
        pa.array(START_MICROS + (number * rows + np.arange(rows)) * 1_000).view(pa.timestamp("us", tz="UTC")),
        pa.array(43 + random.random(rows) * 7),
        pa.array(-1 + random.random(rows) * 8),
        pa.array(random.normal(15, 8, rows)),
        pa.array(random.gamma(2, 300, rows)),
        pa.array([f"reading {m:05d} of the day, ok" for m in meters]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def row(number: int) -> dict[str, object]:
    """One record as a dict."""
    made: dict[str, object] = batch(number, 1).to_pylist()[0]
    return made
