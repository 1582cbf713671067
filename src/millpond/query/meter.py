"""How long records take from ingestion to their consumer (K14), measured by the read that hands them out.

A followed read measures two stages of every record that was ingested since the read began: *buffered*, when its batch
is handed to the consumer, and *processed*, when the consumer comes back for the next one. What was there before is a
backlog: its age says something about the consumer's absence, nothing about the way of a record. A consumer that falls
behind while it follows is measured in full, also where records have settled meanwhile.

Records that were appended together have one time of ingestion: what is measured are the runs of it, so that large
batches cost little.

Not thread-safe: a meter belongs to one read, as the thread that iterates does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.clock import Clock
from millpond.model.schema import INGEST_TIME
from millpond.telemetry import Counts, Follower, Histogram, ReadTelemetry

Micros = npt.NDArray[np.int64]


class Runs(NamedTuple):
    """Times of ingestion, and how many records have each."""

    times: Micros
    records: Counts


_ONE = np.ones(1, np.int64)


class ReadMeter:
    """Of one read of a stream whose telemetry is given."""

    def __init__(self, telemetry: ReadTelemetry, clock: Clock) -> None:
        self._telemetry, self._clock = telemetry, clock
        self._since = clock.now_micros()
        self._following = False
        self._out: Runs | None = None  # what the consumer has

    def follow(self, reader: Follower) -> None:
        """The read goes on as records arrive: its batches have `_ingest_time`."""
        self._following = True
        self._telemetry.follow(reader)

    def handed_out(self, batch: pa.RecordBatch) -> None:
        """The consumer gets these."""
        if self._following:
            self._out = ingest_runs(batch, self._since)
            self._observe(self._telemetry.buffered)

    def count(self, batch: pa.RecordBatch) -> None:
        """The consumer got these, and has come back, or has gone. Not before: to find out how large a batch is takes
        as long as to read a record, and the consumer need not wait for it."""
        self._telemetry.read(batch.num_rows, batch.nbytes)

    def came_back(self) -> None:
        """The consumer is done with what it got."""
        if self._out is not None:
            self._observe(self._telemetry.processed)
            self._out = None

    def _observe(self, stage: Histogram) -> None:
        if self._out is not None:
            observe(self._telemetry, stage, self._out, self._clock.now_micros())


def ingest_runs(batch: pa.RecordBatch, since_micros: int) -> Runs | None:
    """When the records of a batch were ingested, but for those before a time; None if all were. Keeps nothing of the
    batch."""
    return _runs(_micros(batch.column(INGEST_TIME)), since_micros)


def observe(telemetry: ReadTelemetry, stage: Histogram, runs: Runs, now_micros: int) -> None:
    """These records have reached a stage now."""
    # A wall clock may be set back; nothing is done before it was begun.
    if len(runs.times) == 1:  # in fewer steps than numpy takes: whoever follows a stream pays them for every batch
        telemetry.latency_of(stage, max(now_micros - int(runs.times[0]), 0) / 1e6, int(runs.records[0]))
    else:
        telemetry.latency(stage, np.maximum(now_micros - runs.times, 0) / 1e6, runs.records)


def _micros(times: pa.Array) -> Micros:
    """The numbers behind a column of times, in fewer steps than Arrow takes."""
    return np.frombuffer(times.buffers()[1], np.int64, len(times), times.offset * 8)


def _runs(times: Micros, since: int) -> Runs | None:
    """Those that are not before `since`; None if all are."""
    if len(times) == 1:
        return Runs(times.copy(), _ONE) if times[0] >= since else None
    if times[0] == times[-1] and (times == times[0]).all():  # appended together, as most are
        return Runs(times[:1].copy(), np.array([len(times)])) if times[0] >= since else None
    starts = np.append(0, np.flatnonzero(times[1:] != times[:-1]) + 1)
    found = Runs(times[starts], np.diff(starts, append=len(times)))
    if found.times.min() >= since:
        return found
    kept = found.times >= since
    return Runs(found.times[kept], found.records[kept]) if kept.any() else None
