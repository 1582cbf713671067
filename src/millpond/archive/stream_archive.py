"""The settled half of one stream: a small face over the ledger, the settler, compaction and verification.

Writers (settle, load, compact, alter, checkpoint) take turns; a snapshot is a reference to a frozen value and never
waits for them. Nothing is created on disk before the first settle.
"""

from __future__ import annotations

import logging
import posixpath
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from millpond.archive import reindex
from millpond.archive.commit_file import MARK, commit_version
from millpond.archive.compaction import LEAST_OBJECTS, SMALL_BYTES, CompactionReport, compact
from millpond.archive.expire import ExpiredObjects, expire, expired_objects
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.filters import Filter
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.model_file import StoredModel
from millpond.archive.layout.stream_models import StreamModels
from millpond.archive.ledger import Ledger
from millpond.archive.load import Load, LoadReport, commit_load, find_load, read_report, read_samples
from millpond.archive.object_index import ObjectIndex
from millpond.archive.reindex import RebuildReport
from millpond.archive.relayout import RelayoutReport, Unit
from millpond.archive.relayout import commit as commit_relayout
from millpond.archive.repair import TORN_DIRECTORY
from millpond.archive.settle import SettleReport, add_columns, settle
from millpond.archive.shown import Shown
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.table import DeltaLog
from millpond.archive.truncate import end_older_generations, is_owed
from millpond.archive.vacuum import Step, VacuumReport, named_since, vacuum
from millpond.archive.verify import Progress, verify_archive
from millpond.archive.writing import OBJECT_BYTES
from millpond.clock import Clock
from millpond.errors import SettleConflict, SettleFailed, Truncated
from millpond.model.definition import StreamDefinition
from millpond.model.findings import Finding
from millpond.model.offsets import Boundary
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
        self._models = StreamModels(storage, ledger.root, ledger.clock)
        self._shown = Shown(storage, ledger)

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
        archive = cls(storage, ledger)
        archive.finish_truncation()
        return archive

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

    @property
    def definition(self) -> StreamDefinition:
        """The stream, not older than any snapshot that was taken before."""
        return self._ledger.definition

    def snapshot(self, *, refresh: bool = False) -> SettledSnapshot:
        """The newest version that this process knows; with `refresh`, that there is (waits for a running writer)."""
        if refresh:
            with self._writer:
                self._ledger.refresh()
                self._shown.renew()
        return self._shown.snapshot

    def add_filter(self, filter: Filter) -> Callable[[], None]:
        """Ask this filter, too, when queries are planned in this process. Returns how to stop that."""
        with self._writer:
            self._shown.add_filter(filter)

        def remove() -> None:
            with self._writer:
                self._shown.remove_filter(filter)

        return remove

    def settle(
        self,
        start: Boundary,
        stop: Boundary,
        batches: Iterable[pa.RecordBatch],
        *,
        object_bytes: int = OBJECT_BYTES,
        object_bytes_min: int = 0,
        generation: int | None = None,
    ) -> SettleReport:
        """Move the records [start, stop) of each streamlet here: `batches`, with system columns, hold exactly them, in
        the order of offsets within a streamlet. All or nothing; durable when it returns. `object_bytes_min`: what
        objects should have at least; 0: every bucket of a layout becomes one. `generation`: that of the records;
        `Truncated` if the stream has been since."""
        with self._writer:
            try:
                self._make_ready(generation)
                report = settle(
                    self._storage,
                    self._ledger,
                    start,
                    stop,
                    batches,
                    object_bytes=object_bytes,
                    arranging=self._arranging(object_bytes_min),
                )
            finally:
                self._shown.renew()
                # The allocator keeps what it was given for encoding, twice the size of what settled.
                pa.default_memory_pool().release_unused()
            self._checkpoint_if_due()
            return report

    @property
    def layout(self) -> Layout | None:
        """The stream's; None if it has none, or one that this process does not know."""
        return self._models.layout(self._ledger.definition)

    def model(self) -> StoredModel | None:
        """The model that counts for the stream's layout; None if there is none yet."""
        with self._writer:
            return self._models.newest(self._ledger.definition)

    def put_model(self, model: Model) -> StoredModel:
        """From here on this model counts, for what is written next."""
        with self._writer:
            return self._models.put(self._ledger.definition, model)

    def _arranging(self, object_bytes_min: int) -> Arranging | None:
        return self._models.arranging(self._ledger.definition, object_bytes_min)

    def rebuild_indexes(
        self, *, everything: bool = False, progress: Progress | None = None, step: Step = nullcontext
    ) -> RebuildReport:
        """Make entries for objects of which some index of the stream knows nothing, or of all. May be given up at any
        time: what is done stays, and the next call goes on. Each commit is in a `step`."""
        snapshot, indexes = self.snapshot(refresh=True), self._ledger.indexes
        places = reindex.lacking(snapshot, everything)
        seen = done = size = 0
        for planned in reindex.groups(snapshot, places):
            # Of objects that were merged, say, since the first look, the files may be gone.
            group = reindex.still_there(snapshot, planned, self.snapshot(refresh=True))
            blobs = BlobWriter(snapshot.version + 1)
            entries = reindex.describe(snapshot, group, indexes, blobs)
            with step(), self._writer:
                if self._ledger.definition.generation != snapshot.generation:
                    raise Truncated(
                        f"{self._ledger.definition.name} was truncated meanwhile", hint="nothing is left to index"
                    )
                if group:
                    try:
                        reindex.commit_entries(self._storage, self._ledger, entries, blobs)
                    finally:
                        self._shown.renew()
                    self._checkpoint_if_due()
            done, size = done + len(group), size + int(snapshot.objects.sizes[group].sum())
            seen += len(planned)
            if progress is not None:
                progress(seen, len(places))
        return RebuildReport(done, size, self._ledger.definition.name)

    def begin_load(self, now_micros: int, marks: Mapping[str, int] = MappingProxyType({})) -> Load | None:
        """A load from here on, for one writer at a time; None if what `marks` number has been loaded before."""
        with self._writer:
            self._make_ready()
            self.snapshot(refresh=True)
            own = {f"{MARK}{name}": number for name, number in marks.items()}
            if any(self._ledger.mark(name) >= number for name, number in own.items()):
                return None
            snapshot, definition = self._shown.snapshot, self._ledger.definition
            base = snapshot.boundary.get(definition.load_streamlet, 0)
            return Load(secrets.token_hex(8), base, snapshot.version, definition.generation, now_micros, own)

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
                self._make_ready()
                written = read_report(report, self._ledger.definition)
                sample = self._reported_sample(report)
                done = commit_load(self._storage, self._ledger, load, written)
            finally:
                self._shown.renew()
            self._models.learn(self._ledger.definition, sample)
            self._checkpoint_if_due()
            return done

    def _reported_sample(self, report: pa.Table) -> pa.Table | None:
        layout = self.layout
        return None if layout is None else read_samples(report, layout, self._shown.snapshot.schema)

    def vacuum(self, older_micros: int, *, preview: bool = False, step: Step = nullcontext) -> VacuumReport:
        """Remove objects that no snapshot since `older_micros` has seen, each in a `step`. Only while no load is under
        way."""
        with self._writer:
            self.snapshot(refresh=True)
            kept = named_since(self._storage, self._ledger, older_micros)
        return vacuum(self._storage, self.root, kept, older_micros, preview=preview, step=step)

    def compact(
        self, *, small_bytes: int = SMALL_BYTES, least_objects: int = LEAST_OBJECTS, object_bytes_min: int = 0
    ) -> CompactionReport | None:
        """Merge small objects of the same time partition and bucket; None if there is nothing to merge, or another
        writer was first. `object_bytes_min`: what a finer bucket must have at least to be an object of its own.
        Bounded: call again while it returns a report."""
        with self._writer:
            self._make_ready()
            snapshot = self.snapshot(refresh=True)
            try:
                report = compact(
                    self._storage,
                    self._ledger,
                    snapshot,
                    small_bytes=small_bytes,
                    least_objects=least_objects,
                    arranging=self._arranging(object_bytes_min),
                )
            finally:
                self._shown.renew()
            self._checkpoint_if_due()
            return report

    def relayout(self, unit: Unit, reports: Sequence[pa.Table]) -> RelayoutReport:
        """Put what the parts of a unit reported in the place of its objects: all of it, or `Overtaken`. Durable when it
        returns."""
        with self._writer:
            self._make_ready()
            try:
                report = commit_relayout(self._storage, self._ledger, unit, reports)
            finally:
                self._shown.renew()
            self._checkpoint_if_due()
            return report

    def expire(
        self, cutoff_micros: int, start: Boundary, stop: Boundary, before: Callable[[ExpiredObjects], None]
    ) -> ExpiredObjects:
        """Drop the objects whose records were all ingested before the cutoff, and move the boundary from `start` to
        `stop` over live records that have expired as well. `before` is called with what goes, before it does; if
        nothing would, it is not called. All or nothing; durable when it returns. Bounded: more may be left."""
        with self._writer:
            self._make_ready()
            snapshot = self.snapshot(refresh=True)
            expired = expired_objects(snapshot.objects, cutoff_micros, self._ledger.definition.load_streamlet)
            if not expired.objects and dict(start) == dict(stop):
                return expired
            before(expired)
            try:
                expire(self._ledger, start, stop, expired)
            finally:
                self._shown.renew()
            self._checkpoint_if_due()
            return expired

    def alter(self, definition: StreamDefinition) -> None:
        """The stream's schema has grown: reads show the new columns at once, as null, and the table gets them."""
        with self._writer:
            self._ledger.alter(definition)
            self._shown.renew()
            self._make_ready()
            if self._ledger.refresh() is not None:
                add_columns(self._ledger)
            self._shown.renew()

    def begin_generation(self, generation: int) -> None:
        """The stream was truncated: what has settled before is not shown any more. At once, without waiting for a
        running writer; may be called again. The table is told by `finish_truncation`, or by the next writer."""
        self._shown.begin_generation(generation)

    def finish_truncation(self) -> bool:
        """Tell the table of a truncation that has not reached it, after a crash for example; whether it knows all.
        A failure changes nothing for readers, and the next writer tries again."""
        with self._writer:
            try:
                self._make_ready()
            except (OSError, SettleFailed, SettleConflict) as error:
                _LOG.warning("the table of %s does not know yet that it was truncated: %s", self.root, error)
                return False
            finally:
                self._shown.renew()
            return True

    def _make_ready(self, generation: int | None = None) -> None:
        """Every writer comes here first: a truncation reaches the table before anything else does."""
        ledger = self._ledger
        if generation is not None:
            self.begin_generation(generation)
        if self._shown.generation > ledger.definition.generation:
            ledger.truncate(replace(ledger.definition, generation=self._shown.generation))
        if is_owed(ledger):
            end_older_generations(ledger)
        shown = self._shown.generation
        if generation not in (None, shown):
            raise Truncated(
                f"{ledger.definition.name} was truncated: generation {generation} is gone, this is {shown}",
                hint="nothing was written, and nothing is left of these records: settle again",
            )

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
            self._shown.renew()

    def _checkpoint_if_due(self) -> None:
        state = self._ledger.state
        if state is None or state.version - self._ledger.checkpoint_version < CHECKPOINT_EVERY:
            return
        try:
            self._ledger.checkpoint()
        except (OSError, SettleFailed) as error:
            # What was settled is safe without it, and the next commit tries again.
            _LOG.warning("no checkpoint of %s: %s", self.root, error)
