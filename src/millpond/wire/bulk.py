"""What writers of many records agree on with a node: staged appends, and loads straight into the archive.

Both are for jobs of many tasks, of which any may run twice or die: a task writes under a name of its own and reports
it; one commit names what counts, and makes all of it visible at once. What no commit names was never there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from millpond.archive.load import Load, LoadReport
from millpond.log.engine import Ack
from millpond.model.definition import StreamDefinition
from millpond.wire.served import Door


@dataclass(frozen=True, slots=True)
class LoadTicket:
    """A load that has begun, and what its tasks need: the stream (as JSON, see `stored_definition`), the directory of
    its objects, and how large they should be; for a layout its model as JSON (empty: there is none yet) and how small
    objects may be. `lease_seconds`: renew it more often than that."""

    load: Load
    definition: str
    root: str
    object_bytes: int
    lease_seconds: float
    model: str = ""
    object_bytes_min: int = 0


class Bulk(Protocol):
    """Writing to one stream in bulk. Thread-safe. The same embedded and connected."""

    @property
    def definition(self) -> StreamDefinition: ...

    def door(self) -> Door:
        """Where tasks stage records: they put batches there, with a `stage` of their own making."""
        ...

    def commit_staged(self, stages: Sequence[str], *, producer: str = "", sequence: int | None = None) -> Ack:
        """Append what was put under these names, all at once. With a producer and a sequence a retry is recognised."""
        ...

    def forget_staged(self, prefix: str) -> None:
        """Let go of everything that is staged under names that begin like this."""
        ...

    def begin_load(self, owner: str, *, mark: str = "", number: int = 0) -> LoadTicket | None:
        """Begin a load; one of a stream at a time. `owner`: who loads; what the same one began before is given up. With
        a mark and a number that goes upwards, None is the answer if that number was loaded before."""
        ...

    def renew_load(self, load: Load) -> None:
        """It is still wanted. `Fenced` if it was given up meanwhile."""
        ...

    def commit_load(self, load: Load, report: pa.Table) -> LoadReport:
        """Make visible what the tasks reported. Asked again after a lost answer, it gives the same answer. `Fenced` if
        the load was given up; nothing of it is visible then."""
        ...

    def abort_load(self, load: Load) -> None:
        """Nothing more will come of it. Objects that were written stay, invisible, until a vacuum."""
        ...
