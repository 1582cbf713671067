"""The objects of a snapshot, in columns: what they are, and what is known of each.

One Arrow table, a row per live object, in the order of their blocks: path, bytes and rows as the Delta table says, and
the index entry beside it. An entry counts only if its bytes and rows agree with the table's; otherwise, and where
there is none, its columns are null: not known, so the object is read.

Immutable. A commit makes a new one from the last; what pruning derives is computed once per column and kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.index.entries import BASE_FIELDS, BLOCKS, BYTES, PATH, ROWS, merge
from millpond.archive.index.filters import Filter, apply_filters
from millpond.archive.index.kind import BLOB
from millpond.archive.index.minmax import entry_fields, stats_of
from millpond.archive.index.pruning import Index, prune
from millpond.archive.index.stream_indexes import NO_INDEXES, StreamIndexes
from millpond.archive.index.view import Blobs, Entries
from millpond.archive.objects import NAME_NUMBERS
from millpond.model.predicate import Predicate
from millpond.model.prune import Pruning
from millpond.model.stats import Stats

# Appending keeps chunks; past this many they are merged, so that no operation walks thousands of them.
_CHUNKS_MAX = 64


class ObjectIndex:
    """Thread-safe: nothing changes but caches."""

    def __init__(
        self, entries: pa.Table, schema: pa.Schema, indexes: StreamIndexes = NO_INDEXES, blobs: Blobs | None = None
    ) -> None:
        """`entries`: aligned, with all columns of `BASE_FIELDS`; `schema`: the stored schema; `indexes`: the stream's;
        `blobs`: where entries have what is too large for them."""
        self._entries = with_columns(entries, schema, indexes)
        self._schema, self._indexes, self._blobs = schema, indexes, blobs

    @classmethod
    def empty(cls, schema: pa.Schema, indexes: StreamIndexes = NO_INDEXES, blobs: Blobs | None = None) -> ObjectIndex:
        return cls(pa.schema(BASE_FIELDS).empty_table(), schema, indexes, blobs)

    def aligned(self, objects: pa.Table, entries: pa.Table) -> ObjectIndex:
        """Live objects (path, bytes, rows) with the entries that belong to them; of two for one path the later."""
        objects = _in_block_order(objects)
        at = {path: row for row, path in enumerate(entries.column(PATH).to_pylist())}
        rows = pa.array([at.get(path) for path in objects.column(PATH).to_pylist()], pa.int64())
        found = entries.combine_chunks().take(rows)
        agree = pc.and_(
            pc.equal(found.column(BYTES), objects.column(BYTES)), pc.equal(found.column(ROWS), objects.column(ROWS))
        )
        known = pc.fill_null(agree, False)
        if not pc.all(known).as_py():
            found = entries.combine_chunks().take(pc.if_else(known, pa.chunked_array([rows]), None))
        for name in (PATH, BYTES, ROWS):
            found = found.set_column(found.schema.get_field_index(name), name, objects.column(name))
        return ObjectIndex(found, self._schema, self._indexes, self._blobs)

    def __len__(self) -> int:
        return int(self._entries.num_rows)

    @property
    def entries(self) -> pa.Table:
        """Everything known, a row per object; for checkpoints of the index and for reports."""
        return self._entries

    @cached_property
    def paths(self) -> list[str]:
        """Relative to the stream's directory."""
        paths: list[str] = self._entries.column(PATH).to_pylist()
        return paths

    @cached_property
    def digest(self) -> bytes:
        """Tells apart which objects there are and in which order: answers about them are by place."""
        found = hashlib.blake2b("\0".join(self.paths).encode(), digest_size=16)
        found.update(self.sizes.tobytes())
        return found.digest()

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        return _int64(self._entries.column(BYTES), 0)

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """-1 where the table does not say."""
        return _int64(self._entries.column(ROWS), -1)

    @cached_property
    def stats(self) -> Stats:
        return stats_of(self._entries, self._schema)

    @cached_property
    def indexes(self) -> list[Index]:
        """The kinds of the stream, each with its entries of these objects."""
        columns = self._entries.column
        return [
            (one.kind, Entries({n: columns(f.name) for n, f in one.fields.items()}, len(self), blobs=self._blobs))
            for one in self._indexes.used
        ]

    @property
    def bytes_total(self) -> int:
        return int(self.sizes.sum())

    @property
    def unknown(self) -> int:
        """How many objects have no usable entry."""
        return int(self._entries.column(BLOCKS).null_count)

    def blocks_checksums(self, at: int) -> bytes | None:
        value: bytes | None = self._entries.column(BLOCKS)[at].as_py()
        return value

    def prune(self, predicate: Predicate | None, filters: Sequence[Filter] = ()) -> Pruning:
        """Which objects a query with this predicate must read; `filters` are asked last."""
        if predicate is None:
            return Pruning(np.ones(len(self), dtype=np.bool_), {})
        found = prune(predicate, self.stats, self._schema, self.indexes)
        if not filters:
            return found
        return apply_filters(found, predicate, self._schema, self._entries.drop_columns([BLOCKS]), filters)

    def changed(self, added: pa.Table | None, removed: Sequence[str] = ()) -> ObjectIndex:
        """After a commit that added these entries and removed these paths."""
        if added is None and not removed:
            return self
        entries = self._entries
        if removed:
            gone = pc.is_in(entries.column(PATH), value_set=pa.array(removed, pa.string()))
            entries = entries.filter(pc.invert(gone))
        if added is not None:
            entries = pa.concat_tables([entries, added], promote_options="default")
        if entries.column(PATH).num_chunks > _CHUNKS_MAX:
            entries = entries.combine_chunks()
        return ObjectIndex(entries, self._schema, self._indexes, self._blobs)

    def reindexed(self, entries: pa.Table) -> ObjectIndex:
        """After a commit with newer entries of some of these objects."""
        return self.aligned(self._entries.select([PATH, BYTES, ROWS]), merge([self._entries, entries]))

    @property
    def blob_files(self) -> set[str]:
        """The files that some entry has a blob in."""
        columns = [self._entries.column(field.name) for field in self._entries.schema if field.type.equals(BLOB)]
        return {name for column in columns for name in pc.struct_field(column, "file").unique().to_pylist() if name}

    def blobs_within(self, files: Collection[str]) -> npt.NDArray[np.bool_]:
        """The objects of which no entry has a blob in any other file than these."""
        there = np.ones(len(self), dtype=np.bool_)
        names = pa.array([*files, None], pa.string())
        for column in (self._entries.column(f.name) for f in self._entries.schema if f.type.equals(BLOB)):
            there &= np.asarray(pc.is_in(pc.struct_field(column, "file"), value_set=names))
        return there

    def altered(self, schema: pa.Schema, indexes: StreamIndexes = NO_INDEXES) -> ObjectIndex:
        """The same objects under a schema with more columns, or with other indexes."""
        return ObjectIndex(self._entries, schema, indexes, self._blobs)


def with_columns(entries: pa.Table, schema: pa.Schema, indexes: StreamIndexes = NO_INDEXES) -> pa.Table:
    """Exactly the columns for `schema` and `indexes`: what is missing is unknown; what is left over or of another type
    is dropped."""
    columns = []
    fields = [*BASE_FIELDS, *entry_fields(schema), *indexes.fields]
    fields += [field for field in entries.schema if field.name.startswith(indexes.unknown)]
    for field in fields:
        at = entries.schema.get_field_index(field.name)
        if at >= 0 and entries.schema.field(at).type == field.type:
            columns.append(entries.column(at))
        else:
            columns.append(pa.chunked_array([pa.nulls(entries.num_rows, field.type)]))
    return pa.table(columns, schema=pa.schema(fields))


def _in_block_order(objects: pa.Table) -> pa.Table:
    """Oldest block first. Objects that another engine wrote come first of all."""
    numbers = pc.extract_regex(objects.column(PATH), pattern=NAME_NUMBERS)
    keyed = objects
    for key in ("block", "bucket"):
        keyed = keyed.append_column(key, pc.fill_null(pc.struct_field(numbers, key).cast(pa.int64()), -1))
    order = [("block", "ascending"), ("bucket", "ascending"), (PATH, "ascending")]
    return keyed.sort_by(order).select(objects.schema.names)


def _int64(column: pa.ChunkedArray, missing: int) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = pc.fill_null(column, missing).to_numpy()
    return values
