"""The files of a data set as a query finds them, each with what is known of it.

A listing says what is there now: path, size, time of the last change, and the values of the partition that a file is
in. An entry counts only if its size and time are those of the listing; a file that is new, or has changed since it was
indexed, is not known, and so is read. The values of partitions are known of every file, as a range of one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.dataset.store import TIME
from millpond.archive.index.entries import BASE_FIELDS, BYTES, PATH, ROWS
from millpond.archive.index.minmax import MAX, MIN, NULLS
from millpond.archive.index.stream_indexes import StreamIndexes
from millpond.archive.index.view import Blobs
from millpond.archive.object_index import ObjectIndex

_BASE = frozenset((PATH, BYTES, TIME, ROWS))


@dataclass(frozen=True, eq=False)
class PartitionColumn:
    """A column of partitions: the value of each (null: not known as a bound), and which of them are NULL."""

    values: pa.Array
    nulls: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Listing:
    """Immutable. `partition_of`: for each file the place of its partition; `partitions`: their values, per column."""

    paths: Sequence[str]
    sizes: npt.NDArray[np.int64]
    modified_millis: npt.NDArray[np.int64]
    partition_of: npt.NDArray[np.int64]
    partitions: Mapping[str, PartitionColumn]

    def __len__(self) -> int:
        return len(self.paths)

    def table(self, chosen: npt.NDArray[np.bool_]) -> pa.Table:
        """Path, size and time of some of them."""
        return pa.table(
            {
                PATH: pa.array(
                    [path for path, wanted in zip(self.paths, chosen.tolist(), strict=True) if wanted], pa.string()
                ),
                BYTES: pa.array(self.sizes[chosen]),
                TIME: pa.array(self.modified_millis[chosen]),
            }
        )


@dataclass(frozen=True, eq=False)
class Matched:
    """Which entry belongs to which listed file: `entry_of` is -1 for a file without one; `changed` has one that does
    not count any more; `removed` is how many entries are about files that are not there."""

    entry_of: npt.NDArray[np.int64]
    changed: npt.NDArray[np.bool_]
    removed: int

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        known: npt.NDArray[np.bool_] = self.entry_of >= 0
        return known


def match(listing: Listing, entries: pa.Table) -> Matched:
    """Entries by path, and of these the ones whose size and time are right."""
    at = pc.index_in(pa.array(listing.paths, pa.string()), value_set=entries.column(PATH))
    found = at.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    named = found >= 0
    same = named.copy()
    if entries.num_rows:
        sizes = entries.column(BYTES).to_numpy()[found]
        times = entries.column(TIME).to_numpy()[found]
        same &= (sizes == listing.sizes) & (times == listing.modified_millis)
    removed = entries.num_rows - len(np.unique(found[named]))
    return Matched(np.where(same, found, -1), named & ~same, int(removed))


def file_index(
    listing: Listing,
    entries: pa.Table,
    matched: Matched,
    schema: pa.Schema,
    indexes: StreamIndexes,
    blobs: Blobs,
) -> ObjectIndex:
    """What is known of each listed file. `schema`: the columns of files and of partitions that have a known type."""
    rows = pa.array(matched.entry_of, mask=~matched.known)
    taken = entries.take(rows)
    columns: dict[str, Any] = {
        PATH: pa.array(listing.paths, pa.string()),
        BYTES: pa.array(listing.sizes),
        ROWS: taken.column(ROWS),
    }
    columns |= {name: taken.column(name) for name in taken.schema.names if name not in _BASE}
    for name, partition in listing.partitions.items():
        columns[MIN + name] = columns[MAX + name] = partition.values.take(pa.array(listing.partition_of))
        # All rows, or none, are null; of a file that was never read it is not known how many rows these are.
        null = pa.array(partition.nulls[listing.partition_of])
        columns[NULLS + name] = pc.if_else(null, taken.column(ROWS), pa.scalar(0, pa.int64()))
    missing = {field.name: pa.nulls(len(listing), field.type) for field in BASE_FIELDS if field.name not in columns}
    return ObjectIndex(pa.table(columns | missing), schema, indexes, blobs)
