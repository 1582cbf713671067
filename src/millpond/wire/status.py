"""What a pond and its streams say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.log.engine import LogStatus
from millpond.model.definition import Durability
from millpond.model.findings import Finding


@dataclass(frozen=True, slots=True)
class SettleState:
    """How settling goes, for `status()`."""

    settles: int = 0
    rows: int = 0
    bytes_written: int = 0
    compacted_bytes: int = 0
    last_micros: int | None = None
    failures: int = 0
    failure: str = ""
    retry_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DropState:
    """What was let go of since the pond was opened: expired, or, where nothing is archived, processed by every group.
    All of it is in `_pond/audit`."""

    drops: int = 0
    rows: int = 0
    bytes: int = 0
    objects: int = 0
    last_micros: int | None = None
    failure: str = ""

    def dropped(self, rows: int, size: int, objects: int, now_micros: int) -> DropState:
        """One drop more."""
        return DropState(self.drops + 1, self.rows + rows, self.bytes + size, self.objects + objects, now_micros)

    def failed(self, message: str) -> DropState:
        return replace(self, failure=message)


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream: where it begins to be live, where it ends, how much of it is where, and how settling goes. Rows,
    bytes and objects are those that are held: expired ones count until they are dropped, although no read gives them.
    `bytes_pinned` has settled and is still in memory, for consumer groups that have not processed it."""

    name: str
    id: int
    generation: int
    streamlets: int
    durability: Durability
    boundary: Mapping[int, int]
    head: Mapping[int, int]
    rows_live: int
    rows_settled: int
    bytes_live: int
    bytes_settled: int
    objects: int
    version: int
    settling: SettleState
    warnings: tuple[str, ...] = ()
    bytes_pinned: int = 0
    ttl_seconds: float | None = None
    dropping: DropState = DropState()


@dataclass(frozen=True, slots=True)
class PondStatus:
    """The whole pond. `write_amplification` is what was written to disk in all over what was appended, since the pond
    was opened (K1)."""

    path: str
    id: str
    streams: tuple[StreamStatus, ...]
    log: LogStatus
    write_amplification: float | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and what was found. `ok`: no error among the findings."""

    streams: int
    records: int
    objects: int
    journal_bytes: int
    archive_bytes: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)
