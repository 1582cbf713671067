"""Writing objects: rows in, synced Parquet objects out, two at a time, in bounded memory.

Rows are gathered per time partition until they make an object of the size aimed at; encoding, checksumming and
writing run on two threads (pyarrow and the system calls let go of the interpreter), while the caller goes on taking
rows in. What is gathered or in work never exceeds three objects, however long the input and however many partitions.
With a layout, what was gathered is a block: it is arranged at once (which takes its memory once more) and becomes an
object per bucket.

An object is synced when it is put; its directory once, by `finish`. Until a commit names them, objects do not exist
for anybody: after a failure that certainly was before the commit, `discard` removes them.
"""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from millpond.archive.delta_stats import stats_json
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.entries import BLOCKS, BUCKET, BUCKETS, BYTES, MODEL, PATH, ROWS
from millpond.archive.index.minmax import entry_columns
from millpond.archive.index.stream_indexes import indexes_of
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.place import Place
from millpond.archive.objects import ObjectFacts, ObjectName, encode_object
from millpond.archive.partition import Partitioner
from millpond.archive.table import Added
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema
from millpond.storage.protocol import Storage

# A block of sixteen segments of 8 MB becomes one object per time partition.
OBJECT_BYTES = 128 << 20
_WORKERS = 2
# Gathered and in work together.
_OBJECTS_IN_MEMORY = 3
# A block that is arranged is one array per column, and offsets inside an array have 32 bits.
_BLOCK_BYTES_MAX = 1_600_000_000
# Many small pieces make slow pages; past this many per object they are copied into one first.
_PIECES_MAX = 64


@dataclass(frozen=True)
class WrittenObjects:
    """Objects that are durable and not yet committed, in the order of their buckets."""

    added: list[Added]
    entries: pa.Table | None
    partitions: int
    rows: int
    bytes_in: int

    @property
    def bytes_written(self) -> int:
        return sum(one.bytes for one in self.added)


@dataclass
class _Gathered:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class ObjectWriter:
    """The objects of one commit. Use as a context manager; for one thread."""

    def __init__(
        self,
        storage: Storage,
        root: str,
        definition: StreamDefinition,
        block: int,
        *,
        object_bytes: int = OBJECT_BYTES,
        arranging: Arranging | None = None,
    ) -> None:
        """`arranging`: how rows are laid out; None: as they come."""
        self._indexes = indexes_of(definition)
        self._blobs = BlobWriter(block)
        self._storage = storage
        self._root = root
        self._definition = definition
        self._schema = stored_schema(definition.schema)
        self._block = block
        self._object_bytes = object_bytes if arranging is None else min(object_bytes, _BLOCK_BYTES_MAX)
        self._arranging = arranging
        self._partitioner = Partitioner(definition.event_time, definition.partition_seconds)
        self._gathered: dict[int, _Gathered] = {}
        self._gathered_bytes = 0
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="millpond-settle")
        self._working: deque[tuple[Future[ObjectFacts], int]] = deque()
        self._names: list[ObjectName] = []
        self._places: list[Place | None] = []
        self._done: list[ObjectFacts] = []
        self._rows = 0
        self._bytes_in = 0

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows, in the stored schema, for whatever partitions they belong to."""
        for start, part in self._partitioner.split(batch):
            self._gather(start, part)

    def add_block(self, start: int, seconds: int, table: pa.Table, within: int = 1, place: Place | None = None) -> None:
        """Rows of one partition that make an object by themselves, or several if a layout says so. `within`: they are
        of one bucket of so many already; `place`: where they stay, if the layout is not asked."""
        if self._arranging is None:
            groups: Iterable[tuple[Place | None, pa.Table]] = [(place, table)]
        elif place is not None:
            groups = [(place, self._arranging.in_order(table))]
        else:
            groups = self._arranging.groups(table, within)
        for where, rows in groups:
            self._submit(start, seconds, rows.to_batches(), rows.nbytes, where)

    def finish(self) -> WrittenObjects:
        """Everything given so far is in objects, and they and their names are durable."""
        for start in sorted(self._gathered):
            self._flush(start)
        while self._working:
            self._take_one()
        for directory in sorted({name.directory for name in self._names}):
            self._storage.sync_directory(posixpath.join(self._root, directory))
        added = [
            Added(str(name), done.size, done.rows, stats_json(done.rows, done.columns))
            for name, done in zip(self._names, self._done, strict=True)
        ]
        partitions = len({name.start for name in self._names})
        entries = self._entries(added)
        if len(self._blobs):
            self._blobs.put(self._storage, self._root)
        return WrittenObjects(added, entries, partitions, self._rows, self._bytes_in)

    def discard(self) -> None:
        """Remove what was written. Only when it is certain that no commit names it."""
        self._pool.shutdown(cancel_futures=True)
        for name in self._names:
            with contextlib.suppress(OSError):  # never written, or cannot be removed: then it stays, invisible
                self._storage.remove(posixpath.join(self._root, str(name)))
        if len(self._blobs):
            with contextlib.suppress(OSError):
                self._blobs.remove(self._storage, self._root)

    def _gather(self, start: int, part: pa.RecordBatch) -> None:
        for piece in _pieces(part, self._object_bytes):
            gathered = self._gathered.setdefault(start, _Gathered())
            size = piece.nbytes
            if gathered.bytes and gathered.bytes + size > self._object_bytes + self._object_bytes // 8:
                self._flush(start)
                gathered = self._gathered.setdefault(start, _Gathered())
            gathered.batches.append(piece)
            gathered.bytes += size
            self._gathered_bytes += size
            if gathered.bytes >= self._object_bytes:
                self._flush(start)
            elif self._gathered_bytes >= 2 * self._object_bytes:
                self._flush(max(self._gathered, key=lambda s: self._gathered[s].bytes))

    def _flush(self, start: int) -> None:
        gathered = self._gathered.pop(start)
        self._gathered_bytes -= gathered.bytes
        table = pa.Table.from_batches(gathered.batches, self._schema)
        self.add_block(start, self._definition.partition_seconds, table)

    def _submit(self, start: int, seconds: int, batches: list[pa.RecordBatch], size: int, place: Place | None) -> None:
        bound = _OBJECTS_IN_MEMORY * self._object_bytes
        while self._working and (
            len(self._working) >= _WORKERS or size + self._gathered_bytes + sum(s for _, s in self._working) > bound
        ):
            self._take_one()
        bucket = len(self._names) if place is None else place.bucket
        name = ObjectName(self._definition.generation, start, seconds, bucket, self._block, secrets.token_hex(4))
        # Here and not in the workers, who would race for the directories that several objects share.
        self._storage.make_directory(posixpath.join(self._root, name.directory))
        self._names.append(name)
        self._places.append(place)
        self._rows += sum(batch.num_rows for batch in batches)
        self._bytes_in += size
        self._working.append((self._pool.submit(self._write, name, batches, place), size))

    def _take_one(self) -> None:
        future, _ = self._working.popleft()
        self._done.append(future.result())

    def _write(self, name: ObjectName, batches: list[pa.RecordBatch], place: Place | None) -> ObjectFacts:
        table = pa.Table.from_batches(batches, self._schema)
        if len(batches) > _PIECES_MAX:
            table = table.combine_chunks()
        data, facts = encode_object(table, self._definition, place)
        self._storage.put(posixpath.join(self._root, str(name)), data)
        return replace(facts, entry=self._indexes.entry(table))

    def _entries(self, added: list[Added]) -> pa.Table | None:
        if not added:
            return None
        columns = {
            PATH: pa.array([one.path for one in added], pa.string()),
            ROWS: pa.array([one.rows for one in added], pa.int64()),
            BYTES: pa.array([one.bytes for one in added], pa.int64()),
            BLOCKS: pa.array([done.checksums for done in self._done], pa.binary()),
            MODEL: pa.array([place and place.model for place in self._places], pa.string()),
            BUCKET: pa.array([place and place.bucket for place in self._places], pa.int32()),
            BUCKETS: pa.array([place and place.buckets for place in self._places], pa.int32()),
        }
        told = self._indexes.columns([done.entry for done in self._done], self._blobs)
        return pa.table(columns | entry_columns(self._schema, [done.columns for done in self._done]) | told)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterable[pa.RecordBatch]:
    """A batch as it is, or cut where it is larger than an object is meant to be."""
    count = -(-batch.nbytes // size)
    if count <= 1:
        return [batch]
    rows = -(-batch.num_rows // count)
    return [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]
