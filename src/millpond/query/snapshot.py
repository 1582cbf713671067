"""What a query sees: the settled half of one Delta version and the live half up to heads that are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from millpond.archive.snapshot import SettledSnapshot
from millpond.model.ingested import ingested_since
from millpond.model.offsets import OffsetRange, ranges_between
from millpond.model.predicate import Predicate
from millpond.query.objects import Mask, ingest_spans


@dataclass(frozen=True)
class Snapshot:
    """Each kept record of a stream exactly once: settled under the boundary, live from there to the heads (I3).

    It stays readable while settling goes on: what leaves the live half is found in objects newer than `settled`.

    `cutoff_micros`: what was ingested before has expired, and is not given out. `floor`: where the live half begins in
    a stream that is never archived, and lets go of its oldest records for good."""

    settled: SettledSnapshot
    heads: Mapping[int, int]
    generation: int
    cutoff_micros: int | None = None
    floor: Mapping[int, int] = field(default_factory=dict)

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
        begin = {s: max(self.boundary.get(s, 0), self.floor.get(s, 0)) for s in self.heads}
        return ranges_between(begin, self.heads)

    @cached_property
    def unexpired(self) -> Predicate | None:
        """What a settled record must fulfil beside a query's own predicate; None if no object holds expired ones."""
        if self.cutoff_micros is None or not bool((ingest_spans(self.settled.objects)[0] < self.cutoff_micros).any()):
            return None
        return ingested_since(self.cutoff_micros)

    @property
    def expired_objects(self) -> Mask:
        """A mask over the objects of those that hold nothing but expired records."""
        newest = ingest_spans(self.settled.objects)[1]
        return newest < (np.iinfo(np.int64).min if self.cutoff_micros is None else self.cutoff_micros)

    @property
    def mixed_objects(self) -> Mask:
        """Of those that may hold expired records beside others."""
        if self.cutoff_micros is None:
            return np.zeros(len(self.settled.objects), np.bool_)
        return (ingest_spans(self.settled.objects)[0] < self.cutoff_micros) & ~self.expired_objects
