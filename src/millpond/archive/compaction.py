"""Compaction: small objects of one time partition become one, with a commit that changes no data.

Background settles leave an object per partition every minute or so; queries pay for each of them. Merged rows are put
in the order of streamlet and offset, so that reading a range of offsets stays cheap. Objects of different generations
or partitions are never merged, nor those of loads with others: their offsets are far apart. The files of merged objects
stay where they are: older snapshots and running queries read them.

Bounded: a call rewrites at most `_RESULTS_MAX` objects of the size aimed at, and holds the rows of one in memory.
If another writer commits meanwhile, the work is thrown away; there will be another call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.ledger import Change, Ledger, Refused
from millpond.archive.objects import parse_name
from millpond.archive.reader import read_object
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.table import Removed
from millpond.archive.writing import OBJECT_BYTES, ObjectWriter
from millpond.errors import Damaged, SettleFailed
from millpond.model.predicate import Compare
from millpond.model.schema import OFFSET, STREAMLET
from millpond.storage.protocol import Storage

# An object below this (in the file) is small: reading it costs more in opening than in bytes.
SMALL_BYTES = 32 << 20
# Fewer are not worth a rewrite; with four, a row is rewritten about log4(objects) times in its life.
LEAST_OBJECTS = 4
# What a merged object may have in the file.
RESULT_BYTES = 128 << 20
# In memory rows take more than in the file: reading stops here, and what was read so far is merged.
_MEMORY_BYTES = 2 * OBJECT_BYTES
_RESULTS_MAX = 4


@dataclass(frozen=True)
class CompactionReport:
    """What one call did: so many objects became so many."""

    version: int
    objects_before: int
    objects_after: int
    rows: int
    bytes_before: int
    bytes_after: int


def compact(
    storage: Storage, ledger: Ledger, snapshot: SettledSnapshot, *, small_bytes: int, least_objects: int
) -> CompactionReport | None:
    """Merge what is worth it on top of the newest version, of which `snapshot` is. None if nothing was merged."""
    loads = ledger.definition.load_streamlet
    groups = list(_groups(snapshot, loads, small_bytes, least_objects))[:_RESULTS_MAX]
    if not groups:
        return None
    removed: list[Removed] = []
    try:
        with ObjectWriter(storage, ledger.root, ledger.definition, snapshot.version + 1) as writer:
            try:
                for group in groups:
                    removed += _merge(snapshot, group, writer)
                written = writer.finish()
                change = Change(
                    "compact", snapshot.boundary, written.added, removed, written.entries, data_change=False
                )
                after = ledger.commit(change)
            except (Refused, OSError, Damaged) as error:
                writer.discard()
                if isinstance(error, Refused):
                    return None
                raise
    except OSError as error:
        raise SettleFailed(
            f"{ledger.definition.name} could not be compacted: {error}",
            hint="nothing is lost and nothing has changed; look at the archive's disk",
        ) from error
    before = sum(one.bytes for one in removed)
    return CompactionReport(
        after.version, len(removed), len(written.added), written.rows, before, written.bytes_written
    )


def _groups(snapshot: SettledSnapshot, loads: int, small_bytes: int, least_objects: int) -> Iterator[list[int]]:
    """Places in the index of objects to merge, oldest first, by directory and by whether they are of loads."""
    objects = snapshot.objects
    loaded = objects.prune(Compare("=", STREAMLET, loads)).keep
    by_kind: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for at, path in enumerate(objects.paths):
        name = parse_name(path)
        if name is not None and objects.sizes[at] < small_bytes and objects.rows[at] >= 0:
            by_kind[name.directory, bool(loaded[at])].append(at)
    for places in by_kind.values():
        group: list[int] = []
        size = 0
        for at in places:
            if size + int(objects.sizes[at]) > RESULT_BYTES:
                if len(group) >= least_objects:
                    yield group
                group, size = [], 0
            group.append(at)
            size += int(objects.sizes[at])
        if len(group) >= least_objects:
            yield group


def _merge(snapshot: SettledSnapshot, group: Sequence[int], writer: ObjectWriter) -> list[Removed]:
    """Hand the rows of a group (or of the first of it, if they are many) to the writer; what they replace."""
    removed: list[Removed] = []
    tables: list[pa.Table] = []
    for at in group:
        if len(removed) > 1 and sum(table.nbytes for table in tables) > _MEMORY_BYTES:
            break
        table = _read_whole(snapshot, at)
        tables.append(table)
        removed.append(Removed(snapshot.objects.paths[at], int(snapshot.objects.sizes[at]), table.num_rows))
    merged = pa.concat_tables(tables).combine_chunks()
    order = pc.sort_indices(merged, sort_keys=[(STREAMLET, "ascending"), (OFFSET, "ascending")])
    name = parse_name(removed[0].path)
    assert name is not None, "only objects with a name of ours are grouped"
    writer.add_object(name.start, name.seconds, merged.take(order))
    return removed


def _read_whole(snapshot: SettledSnapshot, at: int) -> pa.Table:
    wanted, schema = snapshot.object_at(at), snapshot.schema
    batches = read_object(snapshot.storage, snapshot.root, wanted, schema, schema.names, None)
    table = pa.Table.from_batches(batches, schema)
    if table.num_rows != snapshot.objects.rows[at]:
        raise Damaged(
            f"settled object {wanted.path} has {table.num_rows} rows, the table says {snapshot.objects.rows[at]}",
            hint="run `millpond verify`",
        )
    return table
