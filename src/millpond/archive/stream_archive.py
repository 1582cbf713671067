"""The settled half of one stream: a small face over the ledger, the settler, compaction and verification.

Writers (settle, load, compact, alter, checkpoint) take turns; a snapshot is a reference to a frozen value and never
waits for them. Nothing is created on disk before the first settle.
"""

from __future__ import annotations

import logging
import posixpath
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa

from millpond.archive.commit_file import commit_version
from millpond.archive.compaction import LEAST_OBJECTS, SMALL_BYTES, CompactionReport, compact
from millpond.archive.expire import ExpiredObjects, expire, expired_objects
from millpond.archive.ledger import Ledger
from millpond.archive.load import Load, LoadReport, commit_load, find_load, read_report
from millpond.archive.object_index import ObjectIndex
from millpond.archive.repair import TORN_DIRECTORY
from millpond.archive.settle import SettleReport, add_columns, settle
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.table import DeltaLog
from millpond.archive.vacuum import VacuumReport, named_since, vacuum
from millpond.archive.verify import Progress, verify_archive
from millpond.archive.writing import OBJECT_BYTES
from millpond.clock import Clock
from millpond.errors import SettleFailed
from millpond.model.definition import StreamDefinition
from millpond.model.findings import Finding
from millpond.model.offsets import Boundary
from millpond.model.schema import stored_schema
from millpond.storage.protocol import Storage

__all__ = ["CompactionReport", "Finding", "ObjectIndex", "SettleReport", "SettledSnapshot", "StreamArchive"]


# Opening reads this many commit files and index files at most, a millisecond each.
CHECKPOINT_EVERY = 32

_LOG = logging.getLogger(__name__)


class StreamArchive:
    """Thread-safe. Made by `open`."""

    def __init__(self, storage: Storage, ledger: Ledger) -> None:
        self._storage = storage
        self._ledger = ledger
        self._writer = threading.RLock()
        self._snapshot = self._take_snapshot()

    @classmethod
    def open(
        cls,
        storage: Storage,
        root: str,
        definition: StreamDefinition,
        pond_id: str,
        clock: Clock,
        *,
        delta: DeltaLog | None = None,
    ) -> StreamArchive:
        """The archive in `root`, repaired if a power cut left a torn commit; `Damaged` if it is more than that.

        `delta` is for tests: what stands between this and the Delta table."""
        ledger = Ledger(storage, root, definition, pond_id, clock, delta or DeltaLog(root))
        ledger.open()
        return cls(storage, ledger)

    @property
    def root(self) -> str:
        return self._ledger.root

    @property
    def set_aside(self) -> tuple[str, ...]:
        """What opening moved to `_torn/`. If a commit is among them, its records must still be in the log."""
        return self._ledger.set_aside

    def torn_commits(self) -> list[str]:
        """Commits that this or an earlier opening moved to `_torn/`."""
        directory = posixpath.join(self.root, TORN_DIRECTORY)
        names = [name for name in self._storage.list(directory) if commit_version(name.rpartition("-")[0]) is not None]
        return [posixpath.join(directory, name) for name in names]

    def snapshot(self, *, refresh: bool = False) -> SettledSnapshot:
        """The newest version that this process knows; with `refresh`, that there is (waits for a running writer)."""
        if refresh:
            with self._writer:
                self._ledger.refresh()
                self._snapshot = self._take_snapshot()
        return self._snapshot

    def settle(
        self,
        start: Boundary,
        stop: Boundary,
        batches: Iterable[pa.RecordBatch],
        *,
        object_bytes: int = OBJECT_BYTES,
    ) -> SettleReport:
        """Move the records [start, stop) of each streamlet here: `batches`, with system columns, hold exactly them, in
        the order of offsets within a streamlet. All or nothing; durable when it returns."""
        with self._writer:
            try:
                report = settle(self._storage, self._ledger, start, stop, batches, object_bytes=object_bytes)
            finally:
                self._snapshot = self._take_snapshot()
                # The allocator keeps what it was given for encoding, twice the size of what settled.
                pa.default_memory_pool().release_unused()
            self._checkpoint_if_due()
            return report

    def begin_load(self, now_micros: int, marks: Mapping[str, int] = MappingProxyType({})) -> Load | None:
        """A load from here on, for one writer at a time; None if what `marks` number has been loaded before."""
        with self._writer:
            self.snapshot(refresh=True)
            if any(self._ledger.mark(name) >= number for name, number in marks.items()):
                return None
            snapshot, definition = self._snapshot, self._ledger.definition
            base = snapshot.boundary.get(definition.load_streamlet, 0)
            return Load(secrets.token_hex(8), base, snapshot.version, definition.generation, now_micros, dict(marks))

    def find_load(self, load: str, after: int) -> LoadReport | None:
        """What the commit of a load did, by the load's id and the version that it began at; None if it has none."""
        with self._writer:
            self._ledger.refresh()
            return find_load(self._ledger, load, after)

    def commit_load(self, load: Load, report: pa.Table) -> LoadReport:
        """Make visible what the tasks of a load reported: all of it, once, durable when it returns. If the answer was
        lost, asking again gives it."""
        with self._writer:
            try:
                written = read_report(report, self._ledger.definition)
                done = commit_load(self._storage, self._ledger, load, written)
            finally:
                self._snapshot = self._take_snapshot()
            self._checkpoint_if_due()
            return done

    def vacuum(self, older_micros: int, *, preview: bool = False) -> VacuumReport:
        """Remove objects that no snapshot since `older_micros` has seen. Only while no load is under way."""
        with self._writer:
            self.snapshot(refresh=True)
            kept = named_since(self._storage, self._ledger, older_micros)
        return vacuum(self._storage, self.root, kept, older_micros, preview=preview)

    def compact(self, *, small_bytes: int = SMALL_BYTES, least_objects: int = LEAST_OBJECTS) -> CompactionReport | None:
        """Merge small objects of the same time partition; None if there is nothing to merge, or another writer was
        first. Bounded: call again while it returns a report."""
        with self._writer:
            snapshot = self.snapshot(refresh=True)
            try:
                report = compact(
                    self._storage, self._ledger, snapshot, small_bytes=small_bytes, least_objects=least_objects
                )
            finally:
                self._snapshot = self._take_snapshot()
            self._checkpoint_if_due()
            return report

    def expire(
        self, cutoff_micros: int, start: Boundary, stop: Boundary, before: Callable[[ExpiredObjects], None]
    ) -> ExpiredObjects:
        """Drop the objects whose records were all ingested before the cutoff, and move the boundary from `start` to
        `stop` over live records that have expired as well. `before` is called with what goes, before it does; if
        nothing would, it is not called. All or nothing; durable when it returns. Bounded: more may be left."""
        with self._writer:
            snapshot = self.snapshot(refresh=True)
            expired = expired_objects(snapshot.objects, cutoff_micros, self._ledger.definition.load_streamlet)
            if not expired.objects and dict(start) == dict(stop):
                return expired
            before(expired)
            try:
                expire(self._ledger, start, stop, expired)
            finally:
                self._snapshot = self._take_snapshot()
            self._checkpoint_if_due()
            return expired

    def alter(self, definition: StreamDefinition) -> None:
        """The stream's schema has grown: reads show the new columns at once, as null, and the table gets them."""
        with self._writer:
            self._ledger.alter(definition)
            self._snapshot = self._take_snapshot()
            if self._ledger.refresh() is not None:
                add_columns(self._ledger)
            self._snapshot = self._take_snapshot()

    def checkpoint(self) -> None:
        """Fold the Delta log and the index into one file each, so that opening stays quick."""
        with self._writer:
            if self._ledger.state is not None:
                self._ledger.checkpoint()

    def verify(self, progress: Progress | None = None) -> list[Finding]:
        """Check every byte and every count of the newest version; settling goes on meanwhile. Empty: all is well."""
        snapshot, definition = self.snapshot(refresh=True), self._ledger.definition
        return list(
            verify_archive(
                self._storage,
                snapshot,
                DeltaLog(self.root),
                definition.load_streamlet,
                definition.generation,
                progress,
            )
        )

    def delete(self) -> None:
        """Remove everything the archive holds. Afterwards it is as if nothing had ever settled."""
        with self._writer:
            self._storage.remove_tree(self.root)
            parent = posixpath.dirname(self.root)
            if self._storage.exists(parent):
                self._storage.sync_directory(parent)
            self._ledger.forget()
            self._snapshot = self._take_snapshot()

    def _checkpoint_if_due(self) -> None:
        state = self._ledger.state
        if state is None or state.version - self._ledger.checkpoint_version < CHECKPOINT_EVERY:
            return
        try:
            self._ledger.checkpoint()
        except (OSError, SettleFailed) as error:
            # What was settled is safe without it, and the next commit tries again.
            _LOG.warning("no checkpoint of %s: %s", self.root, error)

    def _take_snapshot(self) -> SettledSnapshot:
        ledger, state = self._ledger, self._ledger.state
        schema = stored_schema(ledger.definition.schema)
        if state is None:
            return SettledSnapshot(-1, {}, ObjectIndex.empty(schema), ledger.root, schema, self._storage)
        return SettledSnapshot(
            state.version, state.boundary, state.objects, ledger.root, schema, self._storage, state.warnings
        )
