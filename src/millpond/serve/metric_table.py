"""Every metric that a node shows, in one table: the page, its documentation and the dashboard are made from it.

Names follow the conventions of Prometheus: the unit last, `_total` where a number only goes up. Counters begin at zero
when the pond is opened, but for those that say "ever". A `stream` label is `_other` for what is beyond the bound on
labels (see `metric_streams`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "info"]


class Metric(NamedTuple):
    """One metric, as the page shows it."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help, labels)


def _histogram(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "histogram", help, labels)


TOPICS: dict[str, tuple[Metric, ...]] = {
    "ingest": (
        _counter("millpond_appends_total", "Appends that were acknowledged, of whatever size.", "stream"),
        _counter("millpond_appended_records_total", "Records that were appended.", "stream"),
        _counter("millpond_filtered_records_total", "Records that their stream's own filter left out.", "stream"),
        _counter("millpond_appended_bytes_total", "Bytes of appended records, as the journal has them.", "stream"),
        _counter("millpond_duplicate_appends_total", "Retries that were recognised and got the first answer."),
        _counter("millpond_refused_appends_total", "Appends that were refused, by the code of the error.", "reason"),
        _gauge("millpond_commit_queue_appends", "Appends that wait for the next group commit now."),
        _histogram("millpond_group_commit_appends", "Appends that one write to the journal committed together."),
        _histogram("millpond_group_commit_records", "Records that one write to the journal committed together."),
        _histogram("millpond_group_commit_bytes", "Bytes of records that one write to the journal committed."),
    ),
    "durability": (
        _histogram(
            "millpond_journal_sync_seconds", "Time of a sync of the journal, with the write where both are one call."
        ),
        _histogram("millpond_journal_write_seconds", "Time of a write to the journal that is synced later."),
        _counter("millpond_journal_write_failures_total", "Writes to the journal that failed, a full disk included."),
        _counter("millpond_journal_sync_failures_total", "Syncs of the journal that failed; one closes it to writes."),
        _gauge("millpond_journal_refusing", "1 if the journal refuses writes until the pond is reopened, else 0."),
        _gauge("millpond_journal_bytes", "Size of the journal's files."),
        _gauge("millpond_journal_files", "Number of the journal's files."),
        _counter("millpond_journal_written_bytes_total", "Bytes written to the journal, frames and copies included."),
        _gauge(
            "millpond_write_amplification_ratio",
            "Bytes written to disk in all over bytes appended, since the pond was opened.",
        ),
        _gauge("millpond_disk_free_bytes", "Free space on the disk under the pond."),
        _gauge("millpond_disk_reserve_bytes", "Appends are refused when less than this is free."),
        _gauge("millpond_open_seconds", "How long it took to open the pond, recovery included."),
        _gauge("millpond_recovery_seconds", "How long it took to read the journal back when the pond was opened."),
        _gauge("millpond_recovered_bytes", "Size of the journal that was read back when the pond was opened."),
    ),
    "live and settled": (
        _gauge("millpond_streams", "Streams in the pond."),
        _gauge("millpond_memory_bytes", "Live records held in memory."),
        _gauge("millpond_memory_quota_bytes", "Live records that may be held in memory; appends wait above 5/4 of it."),
        _gauge("millpond_spilled_bytes", "Live records that left memory and are read from disk."),
        _counter("millpond_spills_total", "Segments that left memory to keep it within its quota."),
        _counter("millpond_spill_written_bytes_total", "Bytes written to spill files."),
        _gauge("millpond_stream_memory_bytes", "Live records of a stream held in memory.", "stream"),
        _gauge("millpond_live_records", "Records that have not settled yet.", "stream"),
        _gauge("millpond_live_bytes", "Bytes of live segments, in memory or spilled.", "stream"),
        _gauge("millpond_pinned_bytes", "Settled segments kept in memory for consumer groups.", "stream"),
        _gauge("millpond_settled_records", "Records in the archive.", "stream"),
        _gauge("millpond_settled_bytes", "Size of the archive's objects.", "stream"),
        _gauge("millpond_settled_objects", "Objects (Parquet files) of the newest version.", "stream"),
        _gauge(
            "millpond_head_records", "Offsets given out ever, over all streamlets: where the stream ends.", "stream"
        ),
        _gauge(
            "millpond_boundary_records", "Offsets settled, over all streamlets: where the live half begins.", "stream"
        ),
        _gauge("millpond_boundary_lag_records", "Records of archived streams that wait to settle.", "stream"),
        _gauge(
            "millpond_boundary_lag_seconds", "Age of the oldest record that waits to settle; 0 if none does.", "stream"
        ),
        _counter("millpond_archive_commits_total", "Commits to the archive's table, ever.", "stream"),
        _counter("millpond_settles_total", "Settles that moved records.", "stream"),
        _counter("millpond_settle_records_total", "Records that settled.", "stream"),
        _counter("millpond_settle_written_bytes_total", "Bytes of objects that settling wrote.", "stream"),
        _counter(
            "millpond_settle_failures_total", "Attempts to settle that failed; the records stayed live.", "stream"
        ),
        _gauge(
            "millpond_settle_failing_attempts", "Failed attempts to settle since the last that succeeded.", "stream"
        ),
        _histogram("millpond_settle_seconds", "Time of a settle, of any stream."),
        _counter("millpond_dropped_records_total", "Records let go of: expired, or processed by all groups.", "stream"),
        _counter("millpond_merges_total", "Times that small objects were merged.", "stream"),
        _counter("millpond_merge_failures_total", "Merges of small objects that failed.", "stream"),
        _counter("millpond_merge_written_bytes_total", "Bytes of objects that merging wrote.", "stream"),
        _histogram("millpond_merge_seconds", "Time of a merge of small objects, of any stream."),
    ),
    "reading and latency": (
        _counter("millpond_read_batches_total", "Batches handed to those who read in order.", "stream"),
        _counter("millpond_read_records_total", "Records handed to those who read in order.", "stream"),
        _counter("millpond_read_bytes_total", "Bytes of batches handed to those who read in order.", "stream"),
        _counter("millpond_unrecorded_queries_total", "Queries that found no room in the history of queries."),
        _gauge("millpond_followers", "Reads that follow a stream now.", "stream"),
        _histogram(
            "millpond_end_to_end_latency_seconds",
            "From a record's ingestion until its follower has it (stage buffered) and asks for more (processed).",
            "stream",
            "stage",
        ),
    ),
    "consumer groups": (
        _gauge("millpond_group_lag_records", "Records that a consumer group has not processed.", "stream", "group"),
        _gauge("millpond_group_members", "Consumers that are members of a group now.", "stream", "group"),
        _gauge(
            "millpond_group_held_records", "Records handed out to members and not committed yet.", "stream", "group"
        ),
        _counter("millpond_group_deliveries_total", "Batches handed out to members.", "stream", "group"),
        _counter("millpond_group_commits_total", "Commits of members, transactions among them.", "stream", "group"),
        _counter("millpond_group_aborts_total", "Commits that members gave up.", "stream", "group"),
        _counter(
            "millpond_group_expelled_total",
            "Members that were not heard of for longer than their lease.",
            "stream",
            "group",
        ),
        _counter("millpond_group_fenced_total", "Requests of those that were no members any more.", "stream", "group"),
        _counter(
            "millpond_group_delivered_records_total", "Records handed out, again and again included.", "stream", "group"
        ),
        _counter(
            "millpond_group_missed_records_total",
            "Records that expired before the group came to them, ever.",
            "stream",
            "group",
        ),
        _counter(
            "millpond_group_dead_records_total",
            "Records that the group gave up on and that went to the dead letters, ever.",
            "stream",
            "group",
        ),
        _histogram(
            "millpond_group_latency_seconds",
            "From a record's ingestion until a consumer of the group has it (stage buffered) and has committed it "
            "(processed).",
            "stream",
            "group",
            "stage",
        ),
    ),
    "doors": (
        _counter("millpond_rest_requests_total", "REST requests that were answered.", "route", "method", "status"),
        _histogram("millpond_rest_request_seconds", "Time from a REST request to the end of its answer.", "route"),
        _counter("millpond_rest_request_bytes_total", "Bytes of bodies that REST requests brought.", "route"),
        _counter("millpond_rest_response_bytes_total", "Bytes of bodies that answered REST requests.", "route"),
        _counter("millpond_flight_calls_total", "Arrow Flight calls that ended.", "verb", "status"),
        _histogram("millpond_flight_call_seconds", "Time of an Arrow Flight call from start to end.", "verb"),
        _counter("millpond_flight_received_bytes_total", "Bytes of batches that Arrow Flight calls brought.", "verb"),
        _counter("millpond_flight_sent_bytes_total", "Bytes of batches that Arrow Flight calls took.", "verb"),
        _counter("millpond_rejected_requests_total", "Requests turned away at the doors, by reason.", "reason"),
        _gauge("millpond_open_connections", "Connections that are open now.", "door"),
    ),
    "process": (
        Metric("millpond_build_info", "info", "What runs: always 1, the labels say it.", ("version", "python", "pond")),
        _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."),
        _gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
        _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
        _counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
        _gauge("process_open_fds", "Number of open file descriptors."),
        _gauge("process_max_fds", "Maximum number of open file descriptors."),
    ),
}
METRICS = tuple(metric for metrics in TOPICS.values() for metric in metrics)
BY_NAME = {metric.name: metric for metric in METRICS}


def series_names(metric: Metric) -> tuple[str, ...]:
    """What a query may name."""
    if metric.kind == "histogram":
        return tuple(metric.name + suffix for suffix in ("_bucket", "_sum", "_count"))
    return (metric.name,)


def table_text() -> str:
    """The table, for the docs page."""
    lines: list[str] = []
    for topic, metrics in TOPICS.items():
        lines += ["", f"## {topic.capitalize()}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines[1:]) + "\n"
