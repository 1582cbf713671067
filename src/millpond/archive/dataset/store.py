"""The directory of one data set: its definition, and the entries of its files.

    datasets/weather-5f0c91d2/
      dataset.json                              the definition; names the files of entries, with their checksums
      _index/000000000003-9f3c2e51.parquet      entries: a row per file
      _index/000000000003-1b22c0de.blobs        what is too large for an entry

A change writes new files first and replaces `dataset.json` last, in one step: after a crash it is the old data set or
the new one. Files that no definition names are removed by the next change.

Invariant (I4): a file of entries that is missing or damaged costs time, never rows: the files it speaks of are read,
and the next refresh describes them again.
"""

from __future__ import annotations

import posixpath
import secrets
import threading

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.dataset.definition import DatasetDefinition, EntriesFile, decode_dataset, encode_dataset
from millpond.archive.index.blobs import BlobFiles, BlobWriter
from millpond.archive.index.entries import BYTES, PATH, ROWS, IndexFiles
from millpond.archive.index.kind import BLOB
from millpond.storage.protocol import Storage

FILE = "dataset.json"
TIME = "modified_millis"
# Of every entry, beside what the indexes know.
BASE = pa.schema([(PATH, pa.string()), (BYTES, pa.int64()), (TIME, pa.int64()), (ROWS, pa.int64())])
# Each refresh adds a file of entries; past this many they are merged.
FILES_MAX = 16


class DatasetStore:
    """A `DatasetKeeper`. Thread-safe for reading; changes are made by one thread at a time."""

    def __init__(self, storage: Storage, directory: str, definition: DatasetDefinition) -> None:
        self._storage, self._directory = storage, directory
        self._index_files = IndexFiles(storage, directory)
        self._lock = threading.Lock()
        self._definition = definition
        self._loaded: tuple[DatasetDefinition, pa.Table, tuple[str, ...]] | None = None
        self.blobs = BlobFiles(storage, directory)

    @classmethod
    def open(cls, storage: Storage, directory: str) -> DatasetStore:
        path = posixpath.join(directory, FILE)
        return cls(storage, directory, decode_dataset(storage.read(path), path))

    @classmethod
    def create(cls, storage: Storage, directory: str, definition: DatasetDefinition) -> DatasetStore:
        storage.make_directory(directory)
        store = cls(storage, directory, definition)
        store._replace(definition)
        return store

    @property
    def directory(self) -> str:
        """Where it is kept."""
        return self._directory

    @property
    def definition(self) -> DatasetDefinition:
        return self._definition

    def renew(self) -> None:
        """Nobody else changes it."""

    def entries(self) -> tuple[DatasetDefinition, pa.Table]:
        """All entries, one per path, and the definition that they belong to."""
        definition, table, _ = self._load()
        return definition, table

    def warnings(self) -> tuple[str, ...]:
        """What could not be read of them."""
        return self._load()[2]

    def _load(self) -> tuple[DatasetDefinition, pa.Table, tuple[str, ...]]:
        with self._lock:
            definition = self._definition
            if self._loaded is None or self._loaded[0] is not definition:
                found = self._index_files.read([(definition.version, each.index_file) for each in definition.entries])
                table = _newest(_joined(*found.tables))
                self._loaded = (definition, table, tuple(found.warnings))
            return self._loaded

    def add(self, entries: pa.Table, blobs: BlobWriter, changed_micros: int) -> None:
        """More entries, for files that have none that count; durable when this returns."""
        current = self._definition
        if len(current.entries) >= FILES_MAX:
            self.rewrite(_joined(self.entries()[1], entries), blobs, changed_micros)
            return
        added = self._put(entries, blobs)
        self._replace(
            msgspec.structs.replace(
                current,
                version=current.version + 1,
                entries=(*current.entries, *added),
                indexed_micros=changed_micros,
            )
        )

    def rewrite(
        self,
        entries: pa.Table,
        blobs: BlobWriter,
        changed_micros: int,
        definition: DatasetDefinition | None = None,
    ) -> None:
        """These entries in the place of all that were there, and this definition."""
        current = definition or self._definition
        entries = _newest(entries)
        written = self._put(entries, blobs)
        self._replace(
            msgspec.structs.replace(
                current,
                version=self._definition.version + 1,
                entries=written,
                indexed_micros=changed_micros,
            )
        )
        self._sweep(entries)

    def drop(self) -> None:
        """Without its definition it is no data set any more; what a crash leaves of it is swept by the pond."""
        self._storage.remove(posixpath.join(self._directory, FILE))
        self._storage.sync_directory(self._directory)
        self._storage.remove_tree(self._directory)

    def _put(self, entries: pa.Table, blobs: BlobWriter) -> tuple[EntriesFile, ...]:
        if not entries.num_rows:
            return ()
        self._storage.make_directory(self._index_files.directory)
        if len(blobs):
            blobs.put(self._storage, self._directory)
        put = self._index_files.put(self._definition.version + 1, secrets.token_hex(4), entries)
        self._storage.sync_directory(self._index_files.directory)
        assert put.crc32 is not None
        return (EntriesFile(put.name, put.crc32),)

    def _replace(self, definition: DatasetDefinition) -> None:
        self._storage.replace(posixpath.join(self._directory, FILE), encode_dataset(definition))
        self._definition = definition

    def _sweep(self, entries: pa.Table) -> None:
        """Remove what neither the definition nor an entry names."""
        named = {each.name for each in self._definition.entries} | _blob_files(entries)
        self._index_files.remove(set(self._storage.list(self._index_files.directory)) - named)


def _newest(entries: pa.Table) -> pa.Table:
    """Of several entries for one path the last."""
    entries = entries.combine_chunks()
    paths = entries.column(PATH)
    if len(pc.unique(paths)) == len(paths):
        return entries
    places = pa.table({PATH: paths, "at": pa.array(range(len(paths)), pa.int64())})
    last = places.group_by(PATH).aggregate([("at", "max")]).column("at_max")
    return entries.take(last.combine_chunks().sort())


def _joined(*tables: pa.Table) -> pa.Table:
    """A column that one of them lacks is not known there."""
    return pa.concat_tables([BASE.empty_table(), *tables], promote_options="permissive")


def _blob_files(entries: pa.Table) -> set[str]:
    found: set[str] = set()
    for field in entries.schema:
        if field.type.equals(BLOB):
            names = pc.unique(pc.struct_field(entries.column(field.name), "file")).to_pylist()
            found.update(name for name in names if name is not None)
    return found
