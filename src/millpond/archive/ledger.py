"""The ledger of a stream: what has been committed, and how one more commit is made.

A commit is one step from a known state to the next version. Its order is what makes it safe (I5):

    objects are written and synced        by the caller, under names nobody else has
    index entries are written and synced
    one Delta commit                      adds, removes, the whole boundary, the state it leads to
    the commit file is synced             only then does the caller hear of it, and the log may let go

Every commit of ours states the boundary of all streamlets, so the newest one is enough to know it. How it becomes the
next version, or does not, is in `commit_log`. Nothing is deleted here.

Not thread-safe: the archive serialises its use.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.archive.checksums import checksum
from millpond.archive.commit_file import (
    ACTIONS,
    EXPIRED,
    INDEX,
    INDEX_CHECKSUM,
    KIND,
    LAST_CHECKPOINT,
    LOAD,
    LOG_DIRECTORY,
    STATE,
    CommitFile,
    checkpoint_name,
)
from millpond.archive.commit_log import CommitLog, Refused
from millpond.archive.index.blobs import BlobFiles
from millpond.archive.index.entries import IndexFile, IndexFiles, merge
from millpond.archive.index.stream_indexes import indexes_of
from millpond.archive.object_index import ObjectIndex
from millpond.archive.objects import parse_name
from millpond.archive.repair import repair_log
from millpond.archive.state import TableState, app_id, changed_digest, load_state, objects_digest, state_text
from millpond.archive.table import UNREADABLE, Added, DeltaLog, Removed
from millpond.clock import Clock
from millpond.errors import Damaged, MillpondError, SettleConflict, SettleFailed, Unavailable
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import Boundary
from millpond.model.schema import stored_schema
from millpond.storage.protocol import Storage

# The boundary of a generation that has ended: no record of it is ever beyond.
ENDED = 2**63 - 1

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """What a commit does. `boundary` is the whole one; `entries` are the index entries of `added`, a row each; if
    nothing is added, newer ones of objects that are there. `load`: the load that it is of; `marks`: app transactions
    besides the boundary's, for writers who number what they write; `expired`: how many records it drops."""

    kind: str
    boundary: Boundary
    added: Sequence[Added] = ()
    removed: Sequence[Removed] = ()
    entries: pa.Table | None = None
    data_change: bool = True
    load: str = ""
    marks: Mapping[str, int] = field(default_factory=dict)
    expired: int = 0


class Ledger:
    """`state` is None while there is no table."""

    def __init__(
        self, storage: Storage, root: str, definition: StreamDefinition, pond_id: str, clock: Clock, delta: DeltaLog
    ) -> None:
        self._blobs = BlobFiles(storage, root)
        self._define(definition)
        self.state: TableState | None = None
        self.set_aside: tuple[str, ...] = ()
        self.checkpoint_version = -1
        self.root = root
        self.index = IndexFiles(storage, root)
        self.delta = delta
        self._storage = storage
        self._pond_id = pond_id
        self.clock = clock
        self._log = CommitLog(storage, root, delta)

    def _define(self, definition: StreamDefinition) -> None:
        self.definition = definition
        self.indexes = indexes_of(definition)
        self.nothing = ObjectIndex.empty(stored_schema(definition.schema), self.indexes, self._blobs)

    def open(self) -> None:
        """Repair what a power cut left, then load."""
        warnings: list[str] = []
        last = self.index.last_checkpoint(warnings)
        self.checkpoint_version = -1 if last is None else last.version
        log = repair_log(self._storage, self.root, last)
        self.set_aside = tuple(log.set_aside)
        self._log.durable.reset(log.version)
        if log.version < 0:
            return
        self._load()
        if self.delta.version != log.version:
            raise Unavailable(
                f"{self.root} loads at version {self.delta.version}, its log ended at {log.version} just before",
                hint="another process is writing to this table; open it again",
            )
        loaded = self.index.load(_index_files(log.commits))
        try:
            self.state = load_state(
                self.delta,
                log.commits,
                merge(loaded.tables),
                self.definition,
                self._app_ids,
                None,
                [*warnings, *loaded.warnings],
                self._count_rows,
                self.nothing,
            )
        except SettleConflict as error:
            hint = "the journal is older than the archive: restore both from one copy; nothing was changed here"
            raise Damaged(error.message, hint=hint) from error

    def refresh(self) -> TableState | None:
        """The newest state, which may be another writer's doing; durable before it is believed."""
        before = self.state
        try:
            newest = self.delta.refresh()
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        if newest == (-1 if before is None else before.version):
            return before
        self._log.durable.ensure(newest)
        start = 0 if before is None else before.version + 1
        commits = {version: self._log.read(version) for version in range(start, newest + 1)}
        files = _index_files(commits)
        loaded = self.index.load(files) if before is None else self.index.read(files)
        tables = loaded.tables if before is None else [before.objects.entries, *loaded.tables]
        self.state = load_state(
            self.delta,
            commits,
            merge(tables),
            self.definition,
            self._app_ids,
            before,
            [*(() if before is None else before.warnings), *loaded.warnings],
            self._count_rows,
            self.nothing,
        )
        return self.state

    def forget(self) -> None:
        """The files are gone: as before the first settle."""
        self.state, self.checkpoint_version = None, -1
        self.delta.load()
        self._log = CommitLog(self._storage, self.root, self.delta)

    def create_table(self) -> TableState:
        """Version 0, durable."""
        self._storage.make_directory(posixpath.join(self.root, LOG_DIRECTORY))
        definition = self.definition

        def write(metadata: Mapping[str, Any]) -> None:
            schema, description = stored_schema(definition.schema), f"Millpond stream {definition.name}"
            self.delta.create(schema, name=definition.name, description=description, metadata=metadata)

        with contextlib.suppress(Refused):  # another writer created it: as good as ours
            self._log.step(0, {KIND: "create", STATE: state_text(0, {}), ACTIONS: 2}, write)
        state = self.refresh()
        assert state is not None, "a table that was just created has a version"
        return state

    def alter(self, definition: StreamDefinition) -> None:
        """The stream has more columns or other indexes from here on; the table gets the columns with
        `add_missing_columns`."""
        self._define(definition)
        if self.state is not None:
            objects = self.state.objects.altered(stored_schema(definition.schema), self.indexes)
            self.state = replace(self.state, objects=objects)

    def add_missing_columns(self) -> TableState:
        """The table gets the columns that the stream has and it lacks. `Refused` if another writer was first."""
        known = self._known
        schema = stored_schema(self.definition.schema)
        missing = self.delta.missing_columns(schema)
        if not missing:
            return known
        transactions = self._transactions(known.boundary)
        text = state_text(known.objects_digest, transactions)
        metadata = {KIND: "alter", STATE: text, ACTIONS: len(transactions) + 1}
        version = known.version + 1
        self._log.step(version, metadata, lambda full: self.delta.add_columns(schema, missing, transactions, full))
        return self._adopt(replace(known, version=version))

    def commit(self, change: Change) -> TableState:
        """Make the change, durable, on top of `state`. `Refused` if another writer was first, or the stream has been
        truncated since the objects were written."""
        known = self._known
        names = [parse_name(one.path) for one in change.added]
        if any(name is not None and name.generation != self.definition.generation for name in names):
            raise Refused(f"this is generation {self.definition.generation}, the change was meant for another")
        self._check_forward(known, change)
        version = known.version + 1
        transactions = self._transactions(change.boundary)
        added = objects_digest((one.path, one.bytes, one.rows) for one in change.added)
        removed = objects_digest((one.path, one.bytes, one.rows) for one in change.removed)
        digest = changed_digest(known.objects_digest, added, removed)
        metadata: dict[str, Any] = {
            KIND: change.kind,
            STATE: state_text(digest, transactions),
            ACTIONS: len(change.added) + len(change.removed) + len(transactions) + len(change.marks),
        }
        if change.load:
            metadata[LOAD] = change.load
        if change.expired:
            metadata[EXPIRED] = change.expired
        if change.entries is not None:
            file = self.index.put(version, secrets.token_hex(4), change.entries)
            self._storage.sync_directory(self.index.directory)
            metadata |= {INDEX: file.name, INDEX_CHECKSUM: file.crc32}

        def write(full: Mapping[str, Any]) -> None:
            now_millis = self.clock.now_micros() // 1_000
            self.delta.commit(
                change.added,
                change.removed,
                {**transactions, **change.marks},
                full,
                data_change=change.data_change,
                now_millis=now_millis,
            )

        self._log.step(version, metadata, write)
        if change.entries is not None and not change.added:
            objects = known.objects.reindexed(change.entries)
        else:
            objects = known.objects.changed(change.entries, [one.path for one in change.removed])
        generation = self.definition.generation
        return self._adopt(TableState(version, dict(change.boundary), objects, digest, known.warnings, generation))

    def _check_forward(self, known: TableState, change: Change) -> None:
        """Within a generation a boundary only moves forward, and a commit states all of it: an offset that was given
        out is nobody else's. Verification looks at the same in the log."""
        for streamlet, reached in known.boundary.items():
            stated = change.boundary.get(streamlet, 0)
            if stated < reached:
                raise SettleFailed(
                    f"the {change.kind} of {self.definition.name} would set streamlet {streamlet} back from {reached} "
                    f"to {stated}",
                    hint="nothing was changed; this is a fault of the program: report it",
                )

    def truncate(self, definition: StreamDefinition) -> None:
        """The stream has a higher generation from here on, and nothing in the table is of it. The table is told with
        `begin_generation`."""
        self._define(definition)
        if self.state is not None:
            self.state = replace(self.state, boundary={}, objects=self.nothing)

    def begin_generation(self) -> TableState:
        """Take every object out of the table, whoever put it there, end the boundary of the generation it states, and
        state that of the stream's, durably. `Refused` if another writer was first."""
        known, definition = self._known, self.definition
        ended = [
            app_id(self._pond_id, replace(definition, generation=known.generation), streamlet)
            for streamlet in range(definition.load_streamlet + 1)
            if known.generation
        ]
        boundary = dict.fromkeys(range(definition.streamlets), 0)
        transactions = {**dict.fromkeys(ended, ENDED), **self._transactions(boundary)}
        columns = (self.delta.objects().column(name).to_pylist() for name in ("path", "bytes", "rows"))
        removed = [Removed(*each) for each in zip(*columns, strict=True)]
        metadata = {KIND: "truncate", STATE: state_text(0, transactions), ACTIONS: len(removed) + len(transactions)}

        def write(full: Mapping[str, Any]) -> None:
            now_millis = self.clock.now_micros() // 1_000
            self.delta.commit([], removed, transactions, full, data_change=True, now_millis=now_millis)

        version = known.version + 1
        self._log.step(version, metadata, write)
        return self._adopt(TableState(version, boundary, self.nothing, 0, known.warnings, definition.generation))

    def checkpoint(self) -> None:
        """Fold the log and the index up to now into one file each; what they replace in the index is removed.

        The Delta checkpoint is durable, and its checksum known, before the hint of the index vouches for it.
        """
        known = self._known
        if known.version == self.checkpoint_version:
            return
        log, name = posixpath.join(self.root, LOG_DIRECTORY), checkpoint_name(known.version)
        try:
            self.delta.checkpoint()
        except UNREADABLE as error:
            raise SettleFailed(
                f"the checkpoint of {self.root} failed: {error}", hint="nothing is lost; it is tried again later"
            ) from error
        for written in (name, LAST_CHECKPOINT):
            self._storage.sync_file(posixpath.join(log, written))
        self._storage.sync_directory(log)
        crc32 = checksum(self._storage.read(posixpath.join(log, name)))
        self.index.checkpoint(known.version, known.objects.entries, name, crc32)
        self.checkpoint_version = known.version
        self.index.remove(self.index.superseded(known.version))
        # A handle goes on from where it was loaded, and each commit costs more with every one since then.
        self._load()

    def commit_at(self, version: int) -> CommitFile:
        """What a commit said."""
        return self._log.read(version)

    def mark(self, name: str) -> int:
        """The newest number that a commit gave a mark; -1 if none did. Reads the log, if that was long ago."""
        found = None if self.state is None else self.delta.transaction_version(name)
        return -1 if found is None else found

    def find_load(self, load: str, after: int) -> tuple[int, CommitFile] | None:
        """The version that made a load visible, among those after `after`, and its commit; None if none did."""
        newest = -1 if self.state is None else self.state.version
        for version in range(newest, after, -1):
            commit = self._log.read(version)
            if commit.load == load:
                return version, commit
        return None

    def _adopt(self, state: TableState) -> TableState:
        """Our own commit happened: no need to read what we know, unless another writer added to it. Nothing is raised
        from here on: to the caller a failure would mean that the commit does not stand, and its objects may go."""
        self.state = state
        try:
            if self.delta.refresh() != state.version:
                self.refresh()
        except (*UNREADABLE, MillpondError) as error:
            _LOG.warning(
                "version %d of %s stands, what came after it is not known: %s", state.version, self.root, error
            )
        return state if self.state is None else self.state

    def _load(self) -> None:
        try:
            self.delta.load()
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def _count_rows(self, path: str) -> int:
        data = self._storage.read(posixpath.join(self.root, path))
        try:
            return int(pq.read_metadata(pa.BufferReader(data)).num_rows)
        except pa.ArrowException as error:
            raise Damaged(f"{path} is not a readable Parquet object: {error}", hint="run `millpond verify`") from error

    def _transactions(self, boundary: Boundary) -> dict[str, int]:
        return {app_id(self._pond_id, self.definition, s): boundary[s] for s in sorted(boundary)}

    @property
    def _app_ids(self) -> list[str]:
        return [app_id(self._pond_id, self.definition, s) for s in range(self.definition.load_streamlet + 1)]

    @property
    def load_app_id(self) -> str:
        """What the boundary of loads is called among a commit's transactions."""
        return app_id(self._pond_id, self.definition, self.definition.load_streamlet)

    @property
    def _known(self) -> TableState:
        if self.state is None:
            raise SettleFailed(f"{self.root} has no table yet", hint="settle first")
        return self.state

    def _unreadable(self, error: Exception) -> MillpondError:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, OSError):
            return Unavailable(f"{self.root} cannot be reached: {first}", hint="look at the disk, then try again")
        return Damaged(
            f"the Delta log of {self.root} cannot be read: {first}",
            hint="restore `_delta_log` from a backup; nothing was changed here",
        )


def _index_files(commits: Mapping[int, CommitFile]) -> list[tuple[int, IndexFile]]:
    return [(version, IndexFile(*found)) for version in sorted(commits) if (found := commits[version].index)]
