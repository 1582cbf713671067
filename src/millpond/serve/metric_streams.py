"""The streams of a pond in numbers, by label, however many streams there are.

A label costs a scraper memory for ever, so at most `STREAMS_MAX` streams have one of their own; the others are summed
under `_other`. A stream that is under `_other` stays there: if it moved, both sums would look like restarts. For the
same reason what a stream under `_other` had counted stays in the sum when it is dropped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from millpond.errors import StreamNotFound
from millpond.log.engine import StreamFigures
from millpond.pond.pond import Pond
from millpond.serve.metric_table import METRICS
from millpond.telemetry import OTHER, Reading, StreamTelemetry
from millpond.wire.status import PondStatus, StreamStatus

STREAMS_MAX = 1_000

BUFFERED, PROCESSED = "buffered", "processed"
LAG_SECONDS = "millpond_boundary_lag_seconds"
_COUNTERS = [metric.name for metric in METRICS if metric.kind == "counter" and metric.labels == ("stream",)]

Values = dict[str, float]
Latencies = Mapping[str, Reading]


class Numbers(NamedTuple):
    """What there is to say under one label: values by metric, and latencies by stage."""

    values: Values
    latencies: Latencies


class _Seen(NamedTuple):
    """The counters of a stream under `_other`, as they were last."""

    counters: array[float]
    latencies: Latencies


class StreamLabels:
    """Not thread-safe. Remembers who has which label from one scrape to the next."""

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._streams_max = streams_max
        self._own: set[int] = set()
        self._others: dict[int, _Seen] = {}
        self._gone = _Sum()

    def numbers(self, pond: Pond, status: PondStatus, now_micros: int) -> Iterator[tuple[str, Numbers]]:
        """Each label with its numbers."""
        there = {each.id for each in status.streams}
        self._own &= there
        for gone in self._others.keys() - there:
            counters, latencies = self._others.pop(gone)
            self._gone.add(Numbers(dict(zip(_COUNTERS, counters, strict=True)), latencies))
        rest = _Sum()
        rest.add(self._gone.numbers())
        for each in sorted(status.streams, key=lambda each: each.id):
            try:
                found = _numbers(pond, each, now_micros)
            except StreamNotFound:
                continue  # dropped meanwhile
            if self._has_own_label(each.id):
                yield each.name, found
            else:
                counters = array("d", [found.values[name] for name in _COUNTERS])
                self._others[each.id] = _Seen(counters, found.latencies)
                rest.add(found)
        if rest.added > 1 or any(self._gone.values.values()):
            yield OTHER, rest.numbers()

    def _has_own_label(self, stream: int) -> bool:
        if stream not in self._own and stream not in self._others and len(self._own) < self._streams_max:
            self._own.add(stream)
        return stream in self._own


class _Sum:
    """Numbers of several streams together: sums, and the largest of the ages."""

    def __init__(self) -> None:
        self.values: Values = {}
        self.added = 0
        self._latencies: dict[str, Reading] = {}

    def add(self, more: Numbers) -> None:
        self.added += 1
        for name, value in more.values.items():
            before = self.values.get(name, 0)
            self.values[name] = max(before, value) if name == LAG_SECONDS else before + value
        for stage, reading in more.latencies.items():
            known = self._latencies.get(stage)
            self._latencies[stage] = reading if known is None else _together(known, reading)

    def numbers(self) -> Numbers:
        return Numbers(dict(self.values), dict(self._latencies))


def _together(one: Reading, other: Reading) -> Reading:
    cumulative = tuple(a + b for a, b in zip(one.cumulative, other.cumulative, strict=True))
    return Reading(one.bounds, cumulative, one.sum + other.sum)


def _numbers(pond: Pond, status: StreamStatus, now_micros: int) -> Numbers:
    stream = pond.stream(status.name)
    if stream.definition.id != status.id:
        raise StreamNotFound(f"stream {status.name!r} was dropped", hint="another one has its name now")
    figures, telemetry = pond.log.figures(status.id, status.boundary), stream.telemetry
    values = _values(status, figures, telemetry)
    if stream.definition.settle is not None:
        oldest = figures.oldest_micros
        values["millpond_boundary_lag_records"] = status.rows_live
        values[LAG_SECONDS] = 0 if oldest is None else max(0, now_micros - oldest) / 1e6
    stages = {BUFFERED: telemetry.reading.buffered, PROCESSED: telemetry.reading.processed}
    readings = {stage: histogram.read() for stage, histogram in stages.items()}
    return Numbers(values, {stage: reading for stage, reading in readings.items() if reading.total})


def _values(status: StreamStatus, figures: StreamFigures, telemetry: StreamTelemetry) -> Values:
    settling, reading = status.settling, telemetry.reading
    return {
        "millpond_appends_total": figures.appends,
        "millpond_filtered_records_total": telemetry.filtered.value,
        "millpond_appended_records_total": figures.rows,
        "millpond_appended_bytes_total": figures.bytes,
        "millpond_stream_memory_bytes": figures.memory_bytes,
        "millpond_live_records": status.rows_live,
        "millpond_live_bytes": status.bytes_live,
        "millpond_pinned_bytes": status.bytes_pinned,
        "millpond_dropped_records_total": status.dropping.rows,
        "millpond_settled_records": status.rows_settled,
        "millpond_settled_bytes": status.bytes_settled,
        "millpond_settled_objects": status.objects,
        "millpond_head_records": sum(status.head.values()),
        "millpond_boundary_records": sum(status.boundary.values()),
        "millpond_archive_commits_total": status.version + 1,
        "millpond_settles_total": settling.settles,
        "millpond_settle_records_total": settling.rows,
        "millpond_settle_written_bytes_total": settling.bytes_written,
        "millpond_settle_failures_total": telemetry.settle_failures.value,
        "millpond_settle_failing_attempts": settling.failures,
        "millpond_merges_total": telemetry.merges.value,
        "millpond_merge_failures_total": telemetry.merge_failures.value,
        "millpond_merge_written_bytes_total": settling.compacted_bytes,
        "millpond_read_batches_total": reading.batches.value,
        "millpond_read_records_total": reading.rows.value,
        "millpond_read_bytes_total": reading.bytes.value,
        "millpond_followers": reading.followers,
    }
