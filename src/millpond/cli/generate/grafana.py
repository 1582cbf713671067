"""The Grafana dashboard, as the JSON that Grafana imports: rows of panels, each a question and its PromQL.

Made of data: `ROWS` says what is asked, the rest lays it out. The data source, the node and the streams are chosen by
variables on the dashboard itself, so that one file fits every installation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# Grafana's grid is 24 wide.
_WIDTH, _HEIGHT, _PER_LINE = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# The version of the dashboard's form, of Grafana 10.4; later ones upgrade it themselves.
_SCHEMA_VERSION = 39

_NODE = 'instance=~"$instance"'
_STREAM = f'{_NODE}, stream=~"$stream"'


class Query(NamedTuple):
    """PromQL, and what its lines are called."""

    promql: str
    legend: str


class Panel(NamedTuple):
    """A question. `unit` is one of Grafana's."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    help: str = ""


def _rate(metric: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def _sum(metric: str, labels: str, by: str) -> str:
    return f"sum by ({by}) ({metric}{{{labels}}})"


def _quantiles(metric: str, labels: str, by: str = "", legend: str = "") -> tuple[Query, ...]:
    """The median and the 99th percentile of a histogram."""
    groups = f"le, {by}" if by else "le"
    found = []
    for quantile, name in ((0.5, "p50"), (0.99, "p99")):
        promql = f"histogram_quantile({quantile}, {_rate(metric + '_bucket', labels, groups)})"
        found.append(Query(promql, f"{legend} {name}".strip()))
    return tuple(found)


ROWS: dict[str, tuple[Panel, ...]] = {
    "Ingest": (
        Panel("Records in", "cps", (Query(_rate("millpond_appended_records_total", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Bytes in", "Bps", (Query(_rate("millpond_appended_bytes_total", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Appends", "cps", (Query(_rate("millpond_appends_total", _STREAM, "stream"), "{{stream}}"),)),
        Panel(
            "Appends per group commit",
            "short",
            _quantiles("millpond_group_commit_appends", _NODE),
            "How many appends share one sync: it grows with load, which is what group commit is for.",
        ),
        Panel("Bytes per group commit", "bytes", _quantiles("millpond_group_commit_bytes", _NODE)),
        Panel(
            "Refused, repeated, waiting",
            "short",
            (
                Query(_rate("millpond_refused_appends_total", _NODE, "reason"), "refused: {{reason}}"),
                Query(_rate("millpond_duplicate_appends_total", _NODE, "instance"), "repeated"),
                Query(_sum("millpond_commit_queue_appends", _NODE, "instance"), "waiting now"),
            ),
        ),
    ),
    "Durability": (
        Panel("Sync time", "s", _quantiles("millpond_journal_sync_seconds", _NODE)),
        Panel(
            "Syncs and writes",
            "cps",
            (
                Query(_rate("millpond_journal_sync_seconds_count", _NODE, "instance"), "syncs"),
                Query(_rate("millpond_journal_write_seconds_count", _NODE, "instance"), "writes synced later"),
            ),
        ),
        Panel(
            "Failures",
            "short",
            (
                Query(f"max(millpond_journal_refusing{{{_NODE}}})", "journal refuses writes"),
                Query(_rate("millpond_journal_write_failures_total", _NODE, "instance"), "failed writes/s"),
                Query(_rate("millpond_journal_sync_failures_total", _NODE, "instance"), "failed syncs/s"),
            ),
            "Anything but zero needs somebody to look at the disk.",
        ),
        Panel(
            "Journal",
            "bytes",
            (Query(_sum("millpond_journal_bytes", _NODE, "instance"), "{{instance}}"),),
        ),
        Panel(
            "Disk",
            "bytes",
            (
                Query(_sum("millpond_disk_free_bytes", _NODE, "instance"), "free"),
                Query(_sum("millpond_disk_reserve_bytes", _NODE, "instance"), "kept free"),
            ),
        ),
        Panel(
            "Write amplification",
            "short",
            (Query(_sum("millpond_write_amplification_ratio", _NODE, "instance"), "{{instance}}"),),
            "Bytes written to disk for each byte appended.",
        ),
    ),
    "Live and settled": (
        Panel(
            "Memory",
            "bytes",
            (
                Query(_sum("millpond_memory_bytes", _NODE, "instance"), "live records"),
                Query(_sum("millpond_memory_quota_bytes", _NODE, "instance"), "quota"),
                Query(_sum("millpond_spilled_bytes", _NODE, "instance"), "spilled"),
            ),
        ),
        Panel("Live", "bytes", (Query(_sum("millpond_live_bytes", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Settled", "bytes", (Query(_sum("millpond_settled_bytes", _STREAM, "stream"), "{{stream}}"),)),
        Panel(
            "Age of the oldest record that waits to settle",
            "s",
            (Query(f"max by (stream) (millpond_boundary_lag_seconds{{{_STREAM}}})", "{{stream}}"),),
        ),
        Panel("Settle time", "s", _quantiles("millpond_settle_seconds", _NODE)),
        Panel(
            "Settled records and failures",
            "short",
            (
                Query(_rate("millpond_settle_records_total", _STREAM, "stream"), "{{stream}}"),
                Query(_rate("millpond_settle_failures_total", _STREAM, "stream"), "failed: {{stream}}"),
            ),
        ),
        Panel("Objects", "short", (Query(_sum("millpond_settled_objects", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Merge time", "s", _quantiles("millpond_merge_seconds", _NODE)),
    ),
    "Reading and latency": (
        Panel(
            "From ingestion until a follower has it",
            "s",
            _quantiles("millpond_end_to_end_latency_seconds", f'{_STREAM}, stage="buffered"', "stream", "{{stream}}"),
        ),
        Panel(
            "From ingestion until a follower is done with it",
            "s",
            _quantiles("millpond_end_to_end_latency_seconds", f'{_STREAM}, stage="processed"', "stream", "{{stream}}"),
        ),
        Panel("Followers", "short", (Query(_sum("millpond_followers", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Records out", "cps", (Query(_rate("millpond_read_records_total", _STREAM, "stream"), "{{stream}}"),)),
        Panel("Bytes out", "Bps", (Query(_rate("millpond_read_bytes_total", _STREAM, "stream"), "{{stream}}"),)),
    ),
    "Consumer groups": (
        Panel(
            "Lag",
            "short",
            (Query(_sum("millpond_group_lag_records", _STREAM, "stream, group"), "{{stream}} {{group}}"),),
            "Records that a group has not processed. It falls while consumers keep up.",
        ),
        Panel(
            "Members, and those that were lost",
            "short",
            (
                Query(_sum("millpond_group_members", _STREAM, "stream, group"), "{{stream}} {{group}}"),
                Query(_rate("millpond_group_expelled_total", _STREAM, "group"), "expelled: {{group}}"),
                Query(_rate("millpond_group_fenced_total", _STREAM, "group"), "refused: {{group}}"),
            ),
        ),
        Panel(
            "Records delivered",
            "cps",
            (Query(_rate("millpond_group_delivered_records_total", _STREAM, "stream, group"), "{{stream}} {{group}}"),),
        ),
        Panel(
            "Commits and aborts",
            "cps",
            (
                Query(_rate("millpond_group_commits_total", _STREAM, "stream, group"), "{{stream}} {{group}}"),
                Query(_rate("millpond_group_aborts_total", _STREAM, "group"), "aborted: {{group}}"),
            ),
        ),
        Panel(
            "From ingestion until it is committed",
            "s",
            _quantiles("millpond_group_latency_seconds", f'{_STREAM}, stage="processed"', "group", "{{group}}"),
        ),
        Panel(
            "Dead letters and missed records",
            "cps",
            (
                Query(
                    _rate("millpond_group_dead_records_total", _STREAM, "stream, group"), "dead: {{stream}} {{group}}"
                ),
                Query(_rate("millpond_group_missed_records_total", _STREAM, "group"), "missed: {{group}}"),
            ),
        ),
    ),
    "Doors": (
        Panel(
            "REST requests",
            "reqps",
            (Query(_rate("millpond_rest_requests_total", _NODE, "route, status"), "{{route}} {{status}}"),),
        ),
        Panel("REST time", "s", _quantiles("millpond_rest_request_seconds", _NODE, "route", "{{route}}")),
        Panel(
            "REST bytes",
            "Bps",
            (
                Query(_rate("millpond_rest_request_bytes_total", _NODE, "instance"), "in"),
                Query(_rate("millpond_rest_response_bytes_total", _NODE, "instance"), "out"),
            ),
        ),
        Panel(
            "Flight calls",
            "reqps",
            (Query(_rate("millpond_flight_calls_total", _NODE, "verb, status"), "{{verb}} {{status}}"),),
        ),
        Panel("Flight time", "s", _quantiles("millpond_flight_call_seconds", _NODE, "verb", "{{verb}}")),
        Panel(
            "Flight bytes",
            "Bps",
            (
                Query(_rate("millpond_flight_received_bytes_total", _NODE, "instance"), "in"),
                Query(_rate("millpond_flight_sent_bytes_total", _NODE, "instance"), "out"),
            ),
        ),
        Panel(
            "Turned away", "reqps", (Query(_rate("millpond_rejected_requests_total", _NODE, "reason"), "{{reason}}"),)
        ),
        Panel("Open connections", "short", (Query(_sum("millpond_open_connections", _NODE, "door"), "{{door}}"),)),
    ),
    "Process": (
        Panel("Memory of the process", "bytes", (Query(f"process_resident_memory_bytes{{{_NODE}}}", "{{instance}}"),)),
        Panel(
            "Processor", "percentunit", (Query(_rate("process_cpu_seconds_total", _NODE, "instance"), "{{instance}}"),)
        ),
        Panel(
            "Open files",
            "short",
            (
                Query(f"process_open_fds{{{_NODE}}}", "open"),
                Query(f"process_max_fds{{{_NODE}}}", "limit"),
            ),
        ),
        Panel("Up for", "s", (Query(f"time() - process_start_time_seconds{{{_NODE}}}", "{{instance}}"),)),
        Panel("How long opening took", "s", (Query(_sum("millpond_open_seconds", _NODE, "instance"), "{{instance}}"),)),
        Panel("Streams", "short", (Query(_sum("millpond_streams", _NODE, "instance"), "{{instance}}"),)),
    ),
}


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place, "panels": []})
        top += 1
        for at, panel in enumerate(row):
            across, down = at % _PER_LINE, at // _PER_LINE
            where = {"x": across * _WIDTH, "y": top + down * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, where))
        top += -(-len(row) // _PER_LINE) * _HEIGHT
    return {
        "uid": "millpond",
        "title": "Millpond",
        "tags": ["millpond"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(number: int, panel: Panel, where: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": _targets(panel.queries),
    }


def _targets(queries: Sequence[Query]) -> list[dict[str, Any]]:
    return [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query.promql, "legendFormat": query.legend}
        for at, query in enumerate(queries)
    ]


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
    return [
        source,
        _choice("instance", "node", "label_values(millpond_build_info, instance)"),
        _choice("stream", "stream", f"label_values(millpond_head_records{{{_NODE}}}, stream)"),
    ]


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
