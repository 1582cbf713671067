"""Index files: one Parquet file of entries per commit, merged into a checkpoint every so often.

    _index/000000000017-9f3c2e51.parquet       entries of the objects that one commit added (version meant, attempt)
    _index/000000000032.checkpoint.parquet     entries of all objects live at a version; older files may then go
    _index/_last_checkpoint                    names the newest of them, and vouches for the Delta checkpoint beside it

An entry is a row: path, rows, bytes, `blocks_crc32` (see `checksums.py`), where a layout put it (`model`, `bucket`,
`buckets`), and the columns of `minmax.py`. Which files
count is said by the commits (`millpond.index`) and by `_last_checkpoint`, with a checksum of each; a listing decides
nothing but what may be cleaned away.

Invariant (I4): an index file that is missing, damaged or stale costs time, never rows: its objects are read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.archive.checksums import checksum
from millpond.storage.protocol import Storage

DIRECTORY = "_index"
PATH, ROWS, BYTES, BLOCKS = "path", "rows", "bytes", "blocks_crc32"
# Which model laid the object out, and that it is bucket so-and-so of so many; null: none did, or it is not known.
MODEL, BUCKET, BUCKETS = "model", "bucket", "buckets"
BASE_FIELDS = (
    pa.field(PATH, pa.string()),
    pa.field(ROWS, pa.int64()),
    pa.field(BYTES, pa.int64()),
    pa.field(BLOCKS, pa.binary()),
    pa.field(MODEL, pa.string()),
    pa.field(BUCKET, pa.int32()),
    pa.field(BUCKETS, pa.int32()),
)
_LAST = "_last_checkpoint"
_CHECKPOINT = ".checkpoint.parquet"
_FILE_VERSION = re.compile(r"(\d{12})(?:-[0-9a-f]+|\.checkpoint)\.parquet\Z")


class LastCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hint file. `delta_*` describe the checkpoint of the Delta log at the same version, which carries no
    checksums of its own: one that nothing vouches for is not trusted when commit files can take its place."""

    version: int
    file: str
    crc32: int
    delta_file: str
    delta_crc32: int


@dataclass(frozen=True)
class IndexFile:
    """An index file as a commit names it. A checksum of None is not known: the file has those of its pages."""

    name: str
    crc32: int | None


@dataclass
class LoadedEntries:
    """Entries found, newest last, and what was not readable."""

    tables: list[pa.Table] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def merge(tables: Iterable[pa.Table]) -> pa.Table:
    """Entries of any number of files, in one table; a column that a file lacks is null for its entries. Where files
    have a column in different types (an index kind may have changed), the newest file's counts."""
    files = [pa.schema(BASE_FIELDS).empty_table(), *tables]
    types = {field.name: field.type for file in files for field in file.schema}
    fitting = []
    for file in files:
        other = [field.name for field in file.schema if not field.type.equals(types[field.name])]
        fitting.append(file.drop_columns(other) if other else file)
    return pa.concat_tables(fitting, promote_options="default")


class IndexFiles:
    """The `_index` directory of one stream. Not thread-safe: used under the archive's writer lock."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._directory = posixpath.join(root, DIRECTORY)

    @property
    def directory(self) -> str:
        return self._directory

    def put(self, version: int, attempt: str, entries: pa.Table) -> IndexFile:
        """Entries of one commit. Synced; the directory is not."""
        name = f"{version:012d}-{attempt}.parquet"
        return IndexFile(name, self._put(name, entries))

    def path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def load(self, files: Sequence[tuple[int, IndexFile]]) -> LoadedEntries:
        """The last checkpoint, then of (version, file) those that came after it."""
        loaded = LoadedEntries()
        merged = -1
        last = self.last_checkpoint(loaded.warnings)
        if last is not None and self._read(IndexFile(last.file, last.crc32), loaded):
            merged = last.version
        elif last is None:
            merged = self._load_unnamed(loaded)
        for version, file in files:
            if version > merged:
                self._read(file, loaded)
        return loaded

    def _load_unnamed(self, loaded: LoadedEntries) -> int:
        """Without a hint (it was damaged), the newest checkpoint there is; its version, or -1."""
        names = [name for name in self._storage.list(self._directory) if name.endswith(_CHECKPOINT)]
        if names and self._read(IndexFile(names[-1], None), loaded):
            return int(names[-1].removesuffix(_CHECKPOINT))
        return -1

    def read(self, files: Sequence[tuple[int, IndexFile]]) -> LoadedEntries:
        """Only these files."""
        loaded = LoadedEntries()
        for _, file in files:
            self._read(file, loaded)
        return loaded

    def checkpoint(self, version: int, entries: pa.Table, delta_file: str, delta_crc32: int) -> None:
        """Merge: all entries of `version` in one file, durable before the hint names it."""
        name = f"{version:012d}{_CHECKPOINT}"
        if self._storage.exists(self.path(name)):  # a crash came between the file and the hint, or before its sync
            self._storage.remove(self.path(name))
        crc32 = self._put(name, entries)
        self._storage.sync_directory(self._directory)
        hint = LastCheckpoint(version, name, crc32, delta_file, delta_crc32)
        self._storage.replace(self.path(_LAST), msgspec.json.encode(hint))

    def superseded(self, version: int) -> list[str]:
        """Files that a checkpoint of `version` has made useless, for removal."""
        keep = f"{version:012d}{_CHECKPOINT}"
        found = []
        for name in self._storage.list(self._directory):
            match = _FILE_VERSION.match(name)
            if match and int(match[1]) <= version and name != keep:
                found.append(name)
        return found

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._storage.remove(self.path(name))

    def _put(self, name: str, entries: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(entries, sink, compression="zstd", write_page_checksum=True)
        data = memoryview(sink.getvalue())
        self._storage.put(self.path(name), data)
        return checksum(data)

    def _read(self, file: IndexFile, into: LoadedEntries) -> bool:
        why = ""
        try:
            data = self._storage.read(self.path(file.name))
            if file.crc32 is None or checksum(data) == file.crc32:
                into.tables.append(pq.read_table(pa.BufferReader(data), page_checksum_verification=True))
            else:
                why = "checksum mismatch"
        except (OSError, pa.ArrowException) as error:
            why = str(error)
        if why:
            into.warnings.append(f"{DIRECTORY}/{file.name}: {why}; its objects are read without skipping")
        return not why

    def last_checkpoint(self, warnings: list[str]) -> LastCheckpoint | None:
        """What the hint says; None if there is none or it is not readable."""
        path = self.path(_LAST)
        if not self._storage.exists(path):
            return None
        try:
            return msgspec.json.decode(self._storage.read(path), type=LastCheckpoint)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            warnings.append(f"{DIRECTORY}/{_LAST} is not readable: {error}")
            return None
