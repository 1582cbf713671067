"""What a query sees: the settled half of one Delta version and the live half up to heads that are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.archive.snapshot import SettledSnapshot
from millpond.model.offsets import OffsetRange, ranges_between


@dataclass(frozen=True)
class Snapshot:
    """Each kept record of a stream exactly once: settled under the boundary, live from there to the heads (I3).

    It stays readable while settling goes on: what leaves the live half is found in objects newer than `settled`."""

    settled: SettledSnapshot
    heads: Mapping[int, int]
    generation: int

    @property
    def version(self) -> int:
        """The Delta version of the settled half; -1 if nothing has settled yet."""
        return self.settled.version

    @property
    def boundary(self) -> Mapping[int, int]:
        return self.settled.boundary

    @property
    def live(self) -> dict[int, OffsetRange]:
        """Per streamlet the offsets of the live half, without empty ones."""
        return ranges_between(self.boundary, self.heads)
