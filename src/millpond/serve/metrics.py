"""`/metrics`: the pond and its doors, as Prometheus reads them.

Nothing is kept here between two scrapes but who has which label: numbers are taken from their owners when somebody
asks. The page names streams, so whoever gets it must have the right to read everything.
"""

from __future__ import annotations

import platform
import threading
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from millpond.clock import Clock, SystemClock
from millpond.log.engine import LogStatus
from millpond.pond.pond import Pond
from millpond.serve.metric_groups import GroupLabels
from millpond.serve.metric_streams import StreamLabels
from millpond.serve.metric_table import BY_NAME
from millpond.telemetry import DoorCounters, Reading

# The process is described by prometheus_client itself, under the names that every process has.
_PROCESS = "process_"


class MetricsPage(Collector):
    """Thread-safe; scrapes take turns. Blocks for milliseconds, with many streams for longer: not for an event loop."""

    def __init__(self, pond: Pond, doors: DoorCounters, clock: Clock | None = None) -> None:
        self._pond, self._doors, self._clock = pond, doors, clock or SystemClock()
        self._labels = StreamLabels()
        self._groups = GroupLabels()
        self._process = ProcessCollector(registry=None)
        self._turn = threading.Lock()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where the `Accept` header asks for it, else Prometheus' text."""
        encode, content_type = choose_encoder(accept)
        with self._turn:
            return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        page = _Page()
        status = self._pond.status()
        for label, (values, latencies) in self._labels.numbers(self._pond, status, self._clock.now_micros()):
            for name, value in values.items():
                page.value(name, value, label)
            for stage, reading in latencies.items():
                page.histogram("millpond_end_to_end_latency_seconds", reading, label, stage)
        for stream, group, values, latencies in self._groups.numbers(self._pond.coordinator):
            for name, value in values.items():
                page.value(name, value, stream, group)
            for stage, reading in latencies.items():
                page.histogram("millpond_group_latency_seconds", reading, stream, group, stage)
        self._add_log(page, status.log)
        self._add_pond(page, status.write_amplification, len(status.streams))
        _add_doors(page, self._doors)
        yield from page.families()
        yield from self._process.collect()

    def _add_log(self, page: _Page, status: LogStatus) -> None:
        log, measured = self._pond.log, self._pond.log.telemetry
        page.value("millpond_duplicate_appends_total", measured.duplicates.value)
        for reason, count in measured.refused.read().items():
            page.value("millpond_refused_appends_total", count, reason)
        page.value("millpond_commit_queue_appends", log.waiting)
        page.histogram("millpond_group_commit_appends", measured.group_appends.read())
        page.histogram("millpond_group_commit_records", measured.group_rows.read())
        page.histogram("millpond_group_commit_bytes", measured.group_bytes.read())
        page.histogram("millpond_journal_sync_seconds", measured.sync_seconds.read())
        page.histogram("millpond_journal_write_seconds", measured.write_seconds.read())
        page.value("millpond_journal_write_failures_total", measured.write_failures.value)
        page.value("millpond_journal_sync_failures_total", measured.sync_failures.value)
        page.value("millpond_journal_refusing", bool(status.refused))
        page.value("millpond_journal_bytes", status.journal_bytes)
        page.value("millpond_journal_files", status.journal_files)
        page.value("millpond_journal_written_bytes_total", status.journal_written_bytes)
        page.value("millpond_disk_free_bytes", log.free_bytes())
        page.value("millpond_disk_reserve_bytes", log.settings.disk_reserve_bytes)
        page.value("millpond_recovery_seconds", measured.recovery_seconds)
        page.value("millpond_recovered_bytes", measured.recovered_bytes)
        page.value("millpond_memory_bytes", status.memory_bytes)
        page.value("millpond_memory_quota_bytes", status.memory_quota_bytes)
        page.value("millpond_spilled_bytes", status.spilled_bytes)
        page.value("millpond_spills_total", measured.spills.value)
        page.value("millpond_spill_written_bytes_total", status.spill_written_bytes)

    def _add_pond(self, page: _Page, write_amplification: float | None, streams: int) -> None:
        measured = self._pond.telemetry
        if write_amplification is not None:
            page.value("millpond_write_amplification_ratio", write_amplification)
        page.value("millpond_streams", streams)
        page.value("millpond_unrecorded_queries_total", self._pond.history.dropped)
        page.value("millpond_open_seconds", measured.open_seconds)
        page.histogram("millpond_settle_seconds", measured.settle_seconds.read())
        page.histogram("millpond_merge_seconds", measured.merge_seconds.read())
        page.info("millpond_build_info", metadata.version("millpond"), platform.python_version(), self._pond.id)


def _add_doors(page: _Page, doors: DoorCounters) -> None:
    brought: dict[tuple[str, str], int] = defaultdict(int)
    took: dict[tuple[str, str], int] = defaultdict(int)
    for kind, answered, bytes_in, bytes_out in doors.requests():
        if kind.door == "flight":
            page.value("millpond_flight_calls_total", answered, kind.route, str(kind.status))
        else:
            page.value("millpond_rest_requests_total", answered, kind.route, kind.method, str(kind.status))
        brought[kind.door, kind.route] += bytes_in
        took[kind.door, kind.route] += bytes_out
    for (door, route), reading in doors.seconds().items():
        flight = door == "flight"
        received = "millpond_flight_received_bytes_total" if flight else "millpond_rest_request_bytes_total"
        sent = "millpond_flight_sent_bytes_total" if flight else "millpond_rest_response_bytes_total"
        page.histogram("millpond_flight_call_seconds" if flight else "millpond_rest_request_seconds", reading, route)
        page.value(received, brought[door, route], route)
        page.value(sent, took[door, route], route)
    for reason, count in doors.rejections().items():
        page.value("millpond_rejected_requests_total", count, reason)
    for door, count in doors.connections().items():
        page.value("millpond_open_connections", count, door)


class _Page:
    """What one scrape gets: a family for every metric of the table, with samples or without."""

    def __init__(self) -> None:
        self._simple: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}
        self._infos: dict[str, InfoMetricFamily] = {}
        for name, metric in BY_NAME.items():
            if name.startswith(_PROCESS):
                continue
            if metric.kind == "counter":
                self._simple[name] = CounterMetricFamily(name, metric.help, labels=metric.labels)
            elif metric.kind == "gauge":
                self._simple[name] = GaugeMetricFamily(name, metric.help, labels=metric.labels)
            elif metric.kind == "histogram":
                self._histograms[name] = HistogramMetricFamily(name, metric.help, labels=metric.labels)
            else:
                self._infos[name] = InfoMetricFamily(name.removesuffix("_info"), metric.help)

    def value(self, name: str, value: float, *labels: str) -> None:
        self._simple[name].add_metric(labels, value)

    def histogram(self, name: str, reading: Reading, *labels: str) -> None:
        edges = [*map(floatToGoString, reading.bounds), "+Inf"]
        self._histograms[name].add_metric(
            labels, list(zip(edges, map(float, reading.cumulative), strict=True)), reading.sum
        )

    def info(self, name: str, *labels: str) -> None:
        self._infos[name].add_metric([], dict(zip(BY_NAME[name].labels, labels, strict=True)))

    def families(self) -> Iterator[Metric]:
        for name in BY_NAME:
            found = self._simple.get(name) or self._histograms.get(name) or self._infos.get(name)
            if found is not None:
                yield found
