"""What is told of a data set: what a refresh found, and how the data set is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RefreshReport:
    """What a refresh found and did. `described`: files that were read; `postponed`: files written so recently, on a
    store that tells time by the second, that a later change could not be told; they are read by every query until the
    next refresh."""

    files: int
    bytes: int
    described: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    postponed: int = 0
    everything: bool = False

    def __str__(self) -> str:
        return (
            f"{self.files} files: {self.added} new, {self.changed} changed, {self.removed} removed; "
            f"{self.described} were read"
        )


@dataclass(frozen=True)
class DatasetStatus:
    """As of the last refresh: nothing is looked at but the index itself. `rows`: None where it is not known of all
    files."""

    name: str
    id: str
    path: str
    format: str
    indexes: tuple[str, ...]
    partitions: tuple[str, ...]
    files: int
    bytes: int
    rows: int | None
    indexed_micros: int
    warnings: tuple[str, ...] = ()
