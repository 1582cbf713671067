"""What a query read and what it was spared: the figures behind `last_query`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from millpond.model.evaluate import Filter
from millpond.model.predicate import Predicate
from millpond.model.query_note import QueryNote

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.archive.object_index import ObjectIndex


class Scanned(Protocol):
    """What a scan had before it: a stream's settled objects, or the files of a data set."""

    @property
    def objects(self) -> ObjectIndex: ...

    @property
    def schema(self) -> pa.Schema: ...

    def share(self, at: int, predicate: Predicate) -> float:
        """Of the rows of one object those that satisfy the predicate, 0 to 1; terms not understood count as true."""
        ...


@dataclass(frozen=True)
class SettledScan:
    """One scan's share of the settled half."""

    stream: str
    snapshot: Scanned
    predicate: Predicate
    keep: npt.NDArray[np.bool_]
    skipped_by: Mapping[str, int]
    deciding_seconds: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes_read(self) -> int:
        return int(self.snapshot.objects.sizes[self.keep].sum())

    def note(self) -> QueryNote:
        """What is put on record of it."""
        sizes, read = self.snapshot.objects.sizes, int(np.count_nonzero(self.keep))
        return QueryNote(self.predicate, read, len(sizes), self.bytes_read, int(sizes.sum()))

    def bytes_relevant(self) -> float:
        """Of the bytes read, those of rows that match, taking all rows of an object as equally large."""
        if Filter(self.predicate, self.snapshot.schema, loose=True).passes_all:
            return float(self.bytes_read)
        sizes = self.snapshot.objects.sizes
        read = np.flatnonzero(self.keep).tolist()
        return sum(float(sizes[at]) * self.snapshot.share(at, self.predicate) for at in read)


@dataclass(frozen=True)
class LiveScan:
    """One scan's share of the live half. Rows are those in its ranges: how many match is decided while fetching."""

    stream: str
    rows: int
    requests: int


@dataclass
class QueryFigures:
    """The figures of one query, over all of its scans. A stream that is scanned twice counts twice.

    Bytes and objects are those of the settled half; `rows_live` says how much more was looked at in the live one.
    """

    query: str
    undecided: int = 0
    """Scans for which deciding what to skip failed, so that every object was read."""
    settled: dict[str, SettledScan] = field(default_factory=dict, repr=False)
    live: dict[str, LiveScan] = field(default_factory=dict, repr=False)

    @property
    def failures(self) -> dict[str, str]:
        """The indexes and filters that failed while deciding, and how; they ruled out nothing."""
        return {name: why for scan in self.settled.values() for name, why in scan.failures.items()}

    @property
    def objects_read(self) -> int:
        return sum(int(scan.keep.sum()) for scan in self.settled.values())

    @property
    def objects_total(self) -> int:
        return sum(len(scan.keep) for scan in self.settled.values())

    @property
    def bytes_read(self) -> int:
        """The sizes of the objects read. Of each, Spark reads the columns it needs."""
        return sum(scan.bytes_read for scan in self.settled.values())

    @property
    def bytes_total(self) -> int:
        return sum(int(scan.snapshot.objects.sizes.sum()) for scan in self.settled.values())

    @property
    def rows_live(self) -> int:
        return sum(scan.rows for scan in self.live.values())

    @property
    def requests(self) -> int:
        """Objects opened and live ranges fetched."""
        return self.objects_read + sum(scan.requests for scan in self.live.values())

    @property
    def deciding_seconds(self) -> float:
        """How long it took to find out what to read."""
        return sum(scan.deciding_seconds for scan in self.settled.values())

    @property
    def skipped_by(self) -> dict[str, int]:
        """How many objects each column ruled out."""
        total: Counter[str] = Counter()
        for scan in self.settled.values():
            total.update(scan.skipped_by)
        return dict(total)

    @cached_property
    def accuracy(self) -> float:
        """Relevant bytes ÷ bytes read, 1.0 if nothing was read. Computed when first asked for, by reading the objects
        again; terms that were not understood count as true."""
        read = self.bytes_read
        return sum(scan.bytes_relevant() for scan in self.settled.values()) / read if read else 1.0

    def __str__(self) -> str:
        return (
            f"{self.objects_read} of {self.objects_total} objects, {self.bytes_read} of {self.bytes_total} bytes, "
            f"{self.rows_live} live rows, skipped by {self.skipped_by or 'nothing'}"
        )
