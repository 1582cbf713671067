"""Rebuilding: entries of a stream's indexes for objects that were written before there were such indexes.

Objects are read, described, and given new entries, some at a time, each with a commit that changes no data and no
object: it names one more index file, in which the newer entry of a path counts. What was known before stays in use
until then, and whoever settles or merges meanwhile is not held up; of objects that are gone by then the new entries
mean nothing. After a crash the objects that have no entries yet are taken up again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.archive.checksums import block_checksums
from millpond.archive.commit_log import Refused
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.entries import BLOCKS, DIRECTORY
from millpond.archive.index.minmax import entry_columns
from millpond.archive.index.stream_indexes import StreamIndexes
from millpond.archive.ledger import Change, Ledger
from millpond.archive.reader import read_object
from millpond.archive.snapshot import SettledSnapshot
from millpond.errors import Damaged, SettleConflict, SettleFailed
from millpond.model.stats import ColumnRange, collect_stats
from millpond.storage.protocol import Storage

# What one commit covers: after a crash no more than this is done again.
_COMMIT_OBJECTS = 256
_COMMIT_BYTES = 1 << 30
_COMMIT_TRIES = 5

# How many objects are done, of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RebuildReport:
    """What a rebuild did: how many objects got new entries, and how many bytes were read for it."""

    objects: int
    bytes: int
    stream: str = ""


def lacking(snapshot: SettledSnapshot, everything: bool) -> list[int]:
    """The places of objects of which some index knows nothing. What has gone with a vacuum, while there was no such
    index, is not known either."""
    objects = snapshot.objects
    if everything:
        return list(range(len(objects)))
    known = np.asarray(objects.entries.column(BLOCKS).is_valid())
    known = known & objects.blobs_within(snapshot.storage.list(posixpath.join(snapshot.root, DIRECTORY)))
    for _, entries in objects.indexes:
        known = known & entries.known()
    return np.flatnonzero(~known).tolist()


def groups(snapshot: SettledSnapshot, places: Sequence[int]) -> Iterator[list[int]]:
    """What is done with one commit each."""
    group: list[int] = []
    size = 0
    for at in places:
        if group and (len(group) >= _COMMIT_OBJECTS or size + int(snapshot.objects.sizes[at]) > _COMMIT_BYTES):
            yield group
            group, size = [], 0
        group.append(at)
        size += int(snapshot.objects.sizes[at])
    if group:
        yield group


def still_there(snapshot: SettledSnapshot, places: Sequence[int], newest: SettledSnapshot) -> list[int]:
    """Those of these objects that a newer snapshot has, too."""
    there = set(newest.objects.paths)
    return [at for at in places if snapshot.objects.paths[at] in there]


def describe(snapshot: SettledSnapshot, places: Sequence[int], indexes: StreamIndexes, blobs: BlobWriter) -> pa.Table:
    """New entries of these objects: their ranges and indexes made anew, everything else as it was."""
    ranges: list[dict[str, ColumnRange]] = []
    told, checksums = [], []
    for at in places:
        rows = _read(snapshot, at)
        ranges.append(collect_stats(rows))
        told.append(indexes.entry(rows))
        known = snapshot.objects.blocks_checksums(at)
        if known is None:
            known = block_checksums(snapshot.storage.read(posixpath.join(snapshot.root, snapshot.objects.paths[at])))
        checksums.append(known)
    new = entry_columns(snapshot.schema, ranges) | indexes.columns(told, blobs)
    new[BLOCKS] = pa.array(checksums, pa.binary())
    entries = snapshot.objects.entries.take(pa.array(places, pa.int64()))
    for name, column in new.items():
        at = entries.schema.get_field_index(name)
        field = pa.field(name, column.type)
        entries = entries.append_column(field, column) if at < 0 else entries.set_column(at, field, column)
    return entries


def _read(snapshot: SettledSnapshot, at: int) -> pa.Table:
    wanted, schema = snapshot.object_at(at), snapshot.schema
    rows = pa.Table.from_batches(
        read_object(snapshot.storage, snapshot.root, wanted, schema, schema.names, None), schema
    )
    if rows.num_rows != snapshot.objects.rows[at]:
        raise Damaged(
            f"settled object {wanted.path} has {rows.num_rows} rows, the table says {snapshot.objects.rows[at]}",
            hint="run `millpond verify`",
        )
    return rows


def commit_entries(storage: Storage, ledger: Ledger, entries: pa.Table, blobs: BlobWriter) -> None:
    """Let these entries take the place of the old ones. Under the archive's writer lock."""
    try:
        if len(blobs):
            blobs.put(storage, ledger.root)
        for _ in range(_COMMIT_TRIES):
            state = ledger.refresh()
            if state is None:
                break
            with suppress(Refused):
                ledger.commit(Change("index", state.boundary, entries=entries, data_change=False))
                return
    except OSError as error:
        raise SettleFailed(
            f"indexes of {ledger.definition.name} could not be rebuilt: {error}",
            hint="nothing is lost and nothing has changed; look at the archive's disk",
        ) from error
    raise SettleConflict(
        f"other writers committed to {ledger.definition.name} {_COMMIT_TRIES} times meanwhile", hint="rebuild again"
    )
