"""Consumer groups in numbers. At most `GROUPS_MAX` of them have a label; the others are not shown, because a lag of
several groups together would mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millpond.consume.coordinator import Coordinator
from millpond.errors import StreamNotFound
from millpond.telemetry import Reading

GROUPS_MAX = 1_000

BUFFERED, PROCESSED = "buffered", "processed"


class GroupNumbers(NamedTuple):
    """Of one group: values by metric, and latencies by stage."""

    stream: str
    group: str
    values: dict[str, float]
    latencies: dict[str, Reading]


class GroupLabels:
    """Not thread-safe. Remembers who has a label from one scrape to the next."""

    def __init__(self, groups_max: int = GROUPS_MAX) -> None:
        self._groups_max = groups_max
        self._own: set[tuple[int, str]] = set()

    def numbers(self, coordinator: Coordinator) -> Iterator[GroupNumbers]:
        """Each group that has a label."""
        groups = {group.key: group for group in coordinator.each()}
        self._own &= groups.keys()
        self._own |= set(sorted(groups.keys() - self._own)[: self._groups_max - len(self._own)])
        for key in sorted(self._own):
            group = groups[key]
            try:
                status = group.status()
            except StreamNotFound:
                continue  # dropped meanwhile
            reading = group.telemetry
            values = {
                "millpond_group_lag_records": status.lag_total,
                "millpond_group_members": len(status.members),
                "millpond_group_held_records": sum(member.records for member in status.members),
                "millpond_group_deliveries_total": reading.batches.value,
                "millpond_group_delivered_records_total": reading.rows.value,
                "millpond_group_commits_total": reading.commits.value,
                "millpond_group_aborts_total": reading.aborts.value,
                "millpond_group_expelled_total": reading.expelled.value,
                "millpond_group_fenced_total": reading.fenced.value,
                "millpond_group_missed_records_total": status.missed,
                "millpond_group_dead_records_total": status.dead,
            }
            stages = {BUFFERED: reading.buffered.read(), PROCESSED: reading.processed.read()}
            latencies = {stage: found for stage, found in stages.items() if found.total}
            yield GroupNumbers(status.stream, status.group, values, latencies)
