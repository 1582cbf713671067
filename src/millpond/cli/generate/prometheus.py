"""What Prometheus needs to scrape a node and to call somebody: a configuration, and alert rules beside it.

YAML is written here by hand, every value as a JSON string, which YAML understands: nothing in a path or a name can be
taken for anything else.
"""

from __future__ import annotations

import json
from typing import NamedTuple

RULES_FILE = "millpond-rules.yml"
JOB = "millpond"


class Rule(NamedTuple):
    """An alert: when, for how long, and what to do then."""

    name: str
    promql: str
    lasting: str
    severity: str
    summary: str
    remedy: str


RULES = (
    Rule(
        "MillpondDown",
        f'up{{job="{JOB}"}} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} does not answer",
        "Look whether the process runs, whether the token may read everything, and whether the certificate is known.",
    ),
    Rule(
        "MillpondJournalRefusesWrites",
        "millpond_journal_refusing == 1",
        "0m",
        "critical",
        "{{ $labels.instance }} takes no more records: a write or a sync of its journal failed",
        "What was acknowledged is safe and readable. Look at the disk, then restart the node.",
    ),
    Rule(
        "MillpondSettleFailing",
        "millpond_settle_failing_attempts >= 3",
        "2m",
        "warning",
        "{{ $labels.stream }} on {{ $labels.instance }} has not settled in {{ $value }} attempts",
        "The records stay live and readable. millpond status says why; look at the archive's disk.",
    ),
    Rule(
        # Streams settle every minute unless told; ten times that and more is not a busy moment.
        "MillpondBoundaryLag",
        "millpond_boundary_lag_seconds > 900",
        "10m",
        "warning",
        "{{ $labels.stream }} on {{ $labels.instance }} has not settled for {{ $value | humanizeDuration }}",
        "Settling fails or does not keep up. A stream that is meant to settle seldom needs a rule of its own.",
    ),
    Rule(
        "MillpondMemoryFull",
        "millpond_memory_bytes > 1.2 * millpond_memory_quota_bytes"
        ' or increase(millpond_refused_appends_total{reason="memory-full"}[5m]) > 0',
        "1m",
        "warning",
        "{{ $labels.instance }} holds more in memory than it may, or refuses appends for it",
        "Spilling does not keep up: look at the disk's speed, or raise memory_bytes.",
    ),
    Rule(
        "MillpondDiskNearlyFull",
        "millpond_disk_free_bytes < 5 * millpond_disk_reserve_bytes"
        " or predict_linear(millpond_disk_free_bytes[6h], 24 * 3600) < millpond_disk_reserve_bytes",
        "10m",
        "warning",
        "the disk under {{ $labels.instance }} is nearly full, or will be within a day",
        "Make room, or let streams settle to another disk; appends are refused before it is quite full.",
    ),
    Rule(
        "MillpondDiskFull",
        'increase(millpond_refused_appends_total{reason="disk-full"}[5m]) > 0',
        "0m",
        "critical",
        "{{ $labels.instance }} refuses appends: its disk is full",
        "Make room on the disk under the pond; producers try again by themselves.",
    ),
)


def config(target: str, token_file: str | None, tls: bool, tls_ca: str | None) -> str:
    """A `prometheus.yml` that scrapes one node."""
    lines = [
        "global:",
        "  scrape_interval: 15s",
        "  evaluation_interval: 15s",
        "",
        "rule_files:",
        f"  - {_text(RULES_FILE)}",
        "",
        "scrape_configs:",
        f"  - job_name: {_text(JOB)}",
        "    metrics_path: /metrics",
        f"    scheme: {'https' if tls or tls_ca else 'http'}",
    ]
    if token_file:
        lines += ["    authorization:", "      type: Bearer", f"      credentials_file: {_text(token_file)}"]
    if tls_ca:
        lines += ["    tls_config:", f"      ca_file: {_text(tls_ca)}"]
    lines += ["    static_configs:", f"      - targets: [{_text(target)}]"]
    return "\n".join(lines)


def rules() -> str:
    """The alert rules."""
    lines = ["groups:", f"  - name: {_text(JOB)}", "    rules:"]
    for rule in RULES:
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {_text(rule.promql)}",
            f"        for: {rule.lasting}",
            "        labels:",
            f"          severity: {rule.severity}",
            "        annotations:",
            f"          summary: {_text(rule.summary)}",
            f"          description: {_text(rule.remedy)}",
        ]
    return "\n".join(lines)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
