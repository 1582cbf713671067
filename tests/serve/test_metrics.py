"""The page for Prometheus: it can be read by Prometheus' own parser, and its numbers are those of the pond."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import millpond
from millpond.consume.protocol import Commit, Done, Failed, GroupSpec, Join, Wanted
from millpond.errors import DiskFull, Fenced, InvalidRecord, JournalClosed, MillpondError
from millpond.log.engine import Ack
from millpond.serve.metric_streams import STREAMS_MAX, StreamLabels
from millpond.serve.metric_table import BY_NAME, METRICS, series_names
from millpond.serve.metrics import MetricsPage
from millpond.telemetry import OTHER, DoorCounters
from millpond.testing import ManualClock
from tests.log.conftest import Failing

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


class Shown:
    """A page as a scraper has it."""

    def __init__(self, page: MetricsPage, accept: str = "") -> None:
        body, self.content_type = page.render(accept)
        parse = parse_openmetrics if "openmetrics" in self.content_type else parse_text
        self.families = {family.name: family for family in parse(body.decode())}
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]

    def get(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Bounds and cumulative counts of one histogram."""
        found = []
        for (sample, pairs), value in self.samples.items():
            rest = dict(pairs)
            bound = rest.pop("le", None)
            if sample == f"{name}_bucket" and rest == labels and bound is not None:
                found.append((float(bound), value))
        return sorted(found)


class Node:
    """A pond with a page, and the time in hand."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.clock, self.storage = ManualClock(), Failing()
        given = {"background": False, "clock": self.clock, "storage": self.storage, "flush_seconds": 3_600.0}
        self.pond = millpond.open(path, **given | options)
        self.doors = DoorCounters()
        self.page = MetricsPage(self.pond, self.doors, self.clock)

    def create(self, name: str = "grid/meters", **options: Any) -> millpond.Stream:
        return self.pond.create_stream(name, SCHEMA, **options)

    def shown(self, accept: str = "") -> Shown:
        return Shown(self.page, accept)


@pytest.fixture
def node(pond_dir: Path) -> Iterator[Node]:
    made = Node(pond_dir)
    yield made
    made.storage.sync_error = made.storage.write_error = 0
    with contextlib.suppress(JournalClosed):  # a test closed it to writes
        made.pond.close()


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": "x"} for n in range(count)]


def test_the_page_has_every_metric_of_the_table_and_no_other(node: Node) -> None:
    node.create().append({"n": 1, "text": "x"})
    shown = node.shown()
    in_table = {metric.name.removesuffix("_total") for metric in METRICS}
    assert {name.removesuffix("_total") for name in shown.families} == in_table
    for metric in METRICS:
        family = shown.families[metric.name.removesuffix("_total")]
        assert family.documentation == metric.help
        assert family.type == ("gauge" if metric.kind == "info" else metric.kind)
        for sample in family.samples:
            assert sample.name in series_names(metric)
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_names_follow_the_conventions() -> None:
    assert len(METRICS) >= 30
    assert len(BY_NAME) == len(METRICS)
    units = ("_seconds", "_bytes", "_records", "_ratio", "_appends", "_objects", "_files", "_fds", "_attempts")
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.endswith("_info") == (metric.kind == "info"), metric.name
        assert metric.help.endswith(".")
        if metric.kind == "histogram":
            assert metric.name.endswith(units), metric.name


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", "application/openmetrics-text; version=1.0.0"])
def test_prometheus_reads_both_forms(node: Node, accept: str) -> None:
    stream = node.create()
    stream.append(rows(3))
    stream.settle()
    shown = node.shown(accept)
    assert ("openmetrics" in shown.content_type) == ("openmetrics" in accept)
    assert shown("millpond_appended_records_total", stream="grid/meters") == 3
    assert shown("millpond_settled_records", stream="grid/meters") == 3


def test_counters_move_by_exactly_what_was_appended(node: Node) -> None:
    stream, other = node.create(streamlets=3, keys=["n"]), node.create("other")
    before = node.shown()
    stream.append({"n": 1, "text": "x"})
    stream.append(rows(10))
    stream.append(pa.Table.from_pylist(rows(500), SCHEMA))
    stream.append(rows(4), producer="p", sequence=0)
    assert stream.append(rows(4), producer="p", sequence=0).duplicate
    other.append(rows(2))
    after = node.shown()

    def moved(name: str, **labels: str) -> float:
        return after(name, **labels) - (before.get(name, **labels) or 0)

    assert moved("millpond_appends_total", stream="grid/meters") == 4
    assert moved("millpond_appended_records_total", stream="grid/meters") == 1 + 10 + 500 + 4
    assert moved("millpond_appends_total", stream="other") == 1
    assert moved("millpond_appended_records_total", stream="other") == 2
    assert moved("millpond_duplicate_appends_total") == 1
    assert moved("millpond_group_commit_appends_sum") == 5
    assert moved("millpond_group_commit_records_sum") == 1 + 10 + 500 + 4 + 2
    assert moved("millpond_group_commit_appends_count") == moved("millpond_journal_sync_seconds_count") == 5
    bytes_in = sum(moved("millpond_appended_bytes_total", stream=name) for name in ("grid/meters", "other"))
    assert moved("millpond_group_commit_bytes_sum") == bytes_in > 0
    assert after("millpond_head_records", stream="grid/meters") == 515
    assert after("millpond_live_records", stream="grid/meters") == 515
    assert after("millpond_journal_written_bytes_total") == node.pond.status().log.journal_written_bytes
    assert after("millpond_write_amplification_ratio") == node.pond.status().write_amplification
    assert after("millpond_disk_free_bytes") == node.storage.free


def test_appends_of_many_threads_are_one_group(node: Node) -> None:
    stream = node.create()
    before = node.shown()
    held, go = threading.Event(), threading.Event()
    holder = threading.Thread(target=node.pond.log._committer.run_inside, args=(lambda: (held.set(), go.wait()),))
    holder.start()
    held.wait()
    told = threading.Semaphore(0)
    for n in range(20):
        stream.submit({"n": n, "text": "x"}, lambda ack, error: told.release())
    assert node.shown()("millpond_commit_queue_appends") == 20
    go.set()
    holder.join()
    for _ in range(20):
        assert told.acquire(timeout=30)
    after = node.shown()
    assert after("millpond_commit_queue_appends") == 0
    assert after("millpond_group_commit_appends_count") - before("millpond_group_commit_appends_count") == 1
    assert after("millpond_group_commit_appends_sum") - before("millpond_group_commit_appends_sum") == 20
    assert after("millpond_appends_total", stream="grid/meters") == 20
    grown = [
        now[1] - then[1]
        for now, then in zip(
            after.buckets("millpond_group_commit_appends"), before.buckets("millpond_group_commit_appends"), strict=True
        )
    ]
    bounds = [bound for bound, _ in after.buckets("millpond_group_commit_appends")]
    assert grown == [float(bound >= 20) for bound in bounds]


def test_counters_begin_anew_with_the_pond_but_where_it_ends_does_not(pond_dir: Path) -> None:
    first = Node(pond_dir)
    first.create().append(rows(7))
    first.pond.close()
    second = Node(pond_dir)
    shown = second.shown()
    assert shown("millpond_appended_records_total", stream="grid/meters") == 0
    assert shown("millpond_appended_bytes_total", stream="grid/meters") == 0
    assert shown("millpond_head_records", stream="grid/meters") == 7
    assert shown("millpond_recovered_bytes") > 0
    second.pond.stream("grid/meters").append(rows(2))
    assert second.shown()("millpond_appended_records_total", stream="grid/meters") == 2
    second.pond.close()


def test_refused_appends_are_counted_by_reason_whoever_waits(node: Node) -> None:
    stream = node.create()
    for reason in ("invalid-record", "disk-full", "memory-full", "journal-closed"):
        assert node.shown()("millpond_refused_appends_total", reason=reason) == 0, (
            "an alert sees it grow only from zero"
        )
    for wrong in ({"n": "warm", "text": "x"}, [{"n": 1.5, "text": "x"}], {"unknown": 1}):
        with pytest.raises(InvalidRecord):
            stream.append(wrong)
    with pytest.raises(MillpondError):
        stream.submit_json(b'{"n": "warm"}', lambda ack, error: None)
    node.storage.free = 0
    node.clock.advance("1s")
    with pytest.raises(DiskFull):
        stream.append(rows(1))
    refused: list[BaseException | None] = []
    done = threading.Event()

    def told(ack: Ack | None, error: BaseException | None) -> None:
        refused.append(error)
        done.set()

    stream.submit({"n": 1, "text": "x"}, told)
    assert done.wait(30)
    assert isinstance(refused[0], DiskFull)
    shown = node.shown()
    assert shown("millpond_refused_appends_total", reason="invalid-record") == 4
    assert shown("millpond_refused_appends_total", reason="disk-full") == 2
    assert shown("millpond_appends_total", stream="grid/meters") == 0


def test_a_failed_sync_shows(node: Node) -> None:
    stream = node.create()
    assert node.shown()("millpond_journal_refusing") == 0
    stream.append(rows(1), durability="os")
    node.storage.sync_error = errno.EIO
    for _ in range(2):
        with pytest.raises(JournalClosed):
            stream.append(rows(1))
    shown = node.shown()
    assert shown("millpond_journal_refusing") == 1
    assert shown("millpond_journal_sync_failures_total") == 1
    assert shown("millpond_refused_appends_total", reason="journal-closed") == 2
    assert shown("millpond_appended_records_total", stream="grid/meters") == 1


def test_settling_moves_what_it_says(node: Node) -> None:
    stream = node.create()
    stream.append(rows(30))
    node.clock.advance("10s")
    stream.append(rows(12))
    node.clock.advance("5s")
    shown = node.shown()
    assert shown("millpond_boundary_lag_records", stream="grid/meters") == 42
    assert shown("millpond_boundary_lag_seconds", stream="grid/meters") == 15
    assert shown("millpond_archive_commits_total", stream="grid/meters") == 0
    report = stream.settle()
    assert report is not None
    shown = node.shown()
    assert shown("millpond_settles_total", stream="grid/meters") == 1
    assert shown("millpond_settle_records_total", stream="grid/meters") == 42
    assert shown("millpond_settle_written_bytes_total", stream="grid/meters") == report.bytes_written
    assert shown("millpond_settled_bytes", stream="grid/meters") == report.bytes_written
    assert shown("millpond_settled_objects", stream="grid/meters") == report.objects
    assert shown("millpond_archive_commits_total", stream="grid/meters") == report.version + 1
    assert shown("millpond_boundary_records", stream="grid/meters") == 42
    assert shown("millpond_boundary_lag_records", stream="grid/meters") == 0
    assert shown("millpond_boundary_lag_seconds", stream="grid/meters") == 0
    assert shown("millpond_settle_seconds_count") == 1
    assert stream.settle() is None
    assert node.shown()("millpond_settle_seconds_count") == 1


def test_a_settle_that_fails_is_counted_and_one_that_succeeds_ends_the_alarm(node: Node) -> None:
    stream = node.create()
    stream.append(rows(3))
    node.storage.put_error = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(MillpondError):
            stream.settle()
    shown = node.shown()
    assert shown("millpond_settle_failures_total", stream="grid/meters") == 2
    assert shown("millpond_settle_failing_attempts", stream="grid/meters") == 2
    node.storage.put_error = 0
    stream.settle()
    shown = node.shown()
    assert shown("millpond_settle_failures_total", stream="grid/meters") == 2
    assert shown("millpond_settle_failing_attempts", stream="grid/meters") == 0
    assert shown("millpond_settle_seconds_count") == 1


def test_the_oldest_record_that_waits_is_found_also_in_a_segment_that_has_settled_in_part(node: Node) -> None:
    """Appends that come while a settle runs keep their segment alive; what settled of it has no age any more."""
    stream = node.create()
    stream.append({"n": 1, "text": "x"})
    node.clock.advance("1h")
    stream.append({"n": 2, "text": "x"})
    node.clock.advance("7s")
    assert node.shown()("millpond_boundary_lag_seconds", stream="grid/meters") == 3_607
    node.pond.log.release(stream.definition.id, {0: 1})
    assert node.pond.log.figures(stream.definition.id).oldest_micros == node.clock.now_micros() - 7_000_000
    node.pond.log.seal(stream.definition.id)
    node.pond.log.tend()
    assert [segment.state for segment in node.pond.log.segments(stream.definition.id)] == ["sealed"]
    assert node.pond.log.figures(stream.definition.id).oldest_micros == node.clock.now_micros() - 7_000_000


def test_streams_that_are_not_archived_do_not_lag(node: Node) -> None:
    node.create(settle=None).append(rows(3))
    shown = node.shown()
    assert shown("millpond_live_records", stream="grid/meters") == 3
    assert shown.get("millpond_boundary_lag_records", stream="grid/meters") is None
    assert shown.get("millpond_boundary_lag_seconds", stream="grid/meters") is None


def test_histograms_are_cumulative_and_end_with_their_count(node: Node) -> None:
    stream = node.create()
    for count in (1, 5, 1_000):
        stream.append(rows(count))
    node.doors.request("rest", "/v1", "GET", 200, 0.0007)
    node.doors.request("rest", "/v1", "GET", 200, 100.0)
    shown = node.shown()
    for name, labels in {
        "millpond_group_commit_records": {},
        "millpond_journal_sync_seconds": {},
        "millpond_rest_request_seconds": {"route": "/v1"},
    }.items():
        buckets = shown.buckets(name, **labels)
        counts = [count for _, count in buckets]
        assert buckets[-1] == (float("inf"), shown(f"{name}_count", **labels))
        assert counts == sorted(counts)
    assert dict(shown.buckets("millpond_rest_request_seconds", route="/v1"))[0.001] == 1
    assert shown("millpond_rest_request_seconds_sum", route="/v1") == pytest.approx(100.0007)


def test_the_doors_are_told_apart(node: Node) -> None:
    for status in (200, 200, 403):
        node.doors.request("rest", "/v1/streams/{name}/records", "POST", status, 0.001, 100, 40)
    node.doors.request("flight", "DoPut", "", "ok", 0.25, 5_000, 16)
    node.doors.rejected("forbidden")
    node.doors.watch("rest", lambda: 1)
    shown = node.shown()
    route = "/v1/streams/{name}/records"
    assert shown("millpond_rest_requests_total", route=route, method="POST", status="200") == 2
    assert shown("millpond_rest_requests_total", route=route, method="POST", status="403") == 1
    assert shown("millpond_rest_request_bytes_total", route=route) == 300
    assert shown("millpond_rest_response_bytes_total", route=route) == 120
    assert shown("millpond_flight_calls_total", verb="DoPut", status="ok") == 1
    assert shown("millpond_flight_received_bytes_total", verb="DoPut") == 5_000
    assert shown("millpond_flight_call_seconds_sum", verb="DoPut") == 0.25
    assert shown("millpond_rejected_requests_total", reason="forbidden") == 1
    assert shown("millpond_open_connections", door="rest") == 1


def test_a_thousand_streams_have_labels_and_the_rest_are_summed(node: Node) -> None:
    extra = 200
    for number in range(STREAMS_MAX + extra):
        node.create(f"s/{number}").append({"n": number, "text": "x"}, durability="memory")
    shown = node.shown()
    labels = {dict(pairs)["stream"] for name, pairs in shown.samples if name == "millpond_appended_records_total"}
    assert len(labels) == STREAMS_MAX + 1
    assert shown("millpond_appended_records_total", stream=OTHER) == extra
    assert shown("millpond_live_records", stream=OTHER) == extra
    assert shown("millpond_streams") == STREAMS_MAX + extra
    assert shown("millpond_boundary_lag_seconds", stream=OTHER) == 0


def test_no_counter_goes_back_when_streams_are_dropped(node: Node) -> None:
    streams = [node.create(f"s{number}") for number in range(4)]
    for stream in streams:
        stream.append(rows(10))
    labels = StreamLabels(streams_max=2)

    def records() -> dict[str, float]:
        found = labels.numbers(node.pond, node.pond.status(), node.clock.now_micros())
        return {label: numbers.values["millpond_appended_records_total"] for label, numbers in found}

    assert records() == {"s0": 10, "s1": 10, OTHER: 20}
    node.pond.drop_stream("s3")
    assert records() == {"s0": 10, "s1": 10, OTHER: 20}
    node.pond.drop_stream("s0")
    assert records() == {"s1": 10, OTHER: 20}
    node.create("s4").append(rows(3))
    streams[2].append(rows(1))
    assert records() == {"s1": 10, "s4": 3, OTHER: 21}


# Consumer groups.


def test_who_is_expelled_and_who_is_refused_is_counted(node: Node) -> None:
    node.create().append(rows(10))
    who = {"stream": "grid/meters", "group": "billing"}
    join = Join(GroupSpec("grid/meters", "billing"), "a", lease_seconds=1.0)
    desk = node.pond.group_desk()
    member = desk.join(join)
    desk.poll(member, Wanted(max_records=1))
    node.clock.advance("2s")
    with pytest.raises(Fenced):
        desk.commit(member, Commit(1, (Done(1),)))
    again = desk.join(join)
    assert desk.poll(again, Wanted(max_records=3))
    desk.abort(again, 1)
    (delivery,) = desk.poll(again, Wanted(max_records=1))
    failed = Failed(delivery.receipt.number, delivery.receipt.start, 3, "no such meter")
    desk.commit(again, Commit(2, (Done(delivery.receipt.number),), (failed,)))
    shown = node.shown()
    assert shown("millpond_group_expelled_total", **who) == 1
    assert shown("millpond_group_fenced_total", **who) == 1
    assert shown("millpond_group_aborts_total", **who) == 1
    assert shown("millpond_group_commits_total", **who) == 1
    assert shown("millpond_group_dead_records_total", **who) == 1
    assert shown("millpond_group_deliveries_total", **who) >= 3
