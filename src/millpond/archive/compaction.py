"""Compaction: small objects of one time partition become one, with a commit that changes no data.

Background settles leave an object per partition every minute or so; queries pay for each of them. Merged rows are put
in the order of streamlet and offset, so that reading a range of offsets stays cheap. Objects of different generations
or partitions are never merged, nor those of loads with others: their offsets are far apart. The files of merged objects
stay where they are: older snapshots and running queries read them.

With a layout, objects of one bucket of the newest model are merged, and what has grown large enough is cut into finer
buckets: rows come down the tree as more of them gather. What no model has cut yet is laid out by the newest. Objects of
one bucket of an older model become one object of that bucket: a new model does not make a stream be rewritten.

Bounded: a call rewrites at most `_RESULTS_MAX` objects of the size aimed at, and holds the rows of one in memory.
If another writer commits meanwhile, the work is thrown away; there will be another call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.commit_log import Refused
from millpond.archive.index.entries import BUCKET, BUCKETS, MODEL
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.place import Place
from millpond.archive.ledger import Change, Ledger
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


@dataclass
class _Group:
    """Objects to merge, by their places in the index. `within`: they are of one bucket of so many of the newest model;
    `place`: of an older one."""

    within: int
    place: Place | None
    places: list[int] = field(default_factory=list)
    bytes: int = 0


def compact(
    storage: Storage,
    ledger: Ledger,
    snapshot: SettledSnapshot,
    *,
    small_bytes: int,
    least_objects: int,
    arranging: Arranging | None = None,
) -> CompactionReport | None:
    """Merge what is worth it on top of the newest version, of which `snapshot` is. None if nothing was merged."""
    loads = ledger.definition.load_streamlet
    model = None if arranging is None or arranging.model is None else arranging.model.id
    found = _groups(snapshot, loads, small_bytes, model)
    groups = [group for group in found if len(group.places) >= least_objects][:_RESULTS_MAX]
    if not groups:
        return None
    removed: list[Removed] = []
    try:
        block = snapshot.version + 1
        with ObjectWriter(storage, ledger.root, ledger.definition, block, arranging=arranging) as writer:
            try:
                for group in groups:
                    removed += _merge(snapshot, group, writer, in_order=arranging is None)
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


def _groups(snapshot: SettledSnapshot, loads: int, small_bytes: int, model: str | None) -> Iterator[_Group]:
    """What may be merged, oldest first: by directory, by whether it is of loads, and by bucket of the model."""
    objects = snapshot.objects
    loaded = objects.prune(Compare("=", STREAMLET, loads)).keep
    placed = zip(*(objects.entries.column(name).to_pylist() for name in (MODEL, BUCKET, BUCKETS)), strict=True)
    by_kind: dict[tuple[object, ...], _Group] = {}
    for at, (path, (by, bucket, buckets)) in enumerate(zip(objects.paths, placed, strict=True)):
        name, size = parse_name(path), int(objects.sizes[at])
        if name is None or size >= small_bytes or objects.rows[at] < 0:
            continue
        place = Place(by, bucket, buckets) if by is not None and bucket is not None and (buckets or 1) > 1 else None
        older = place is not None and by != model
        kind = (name.directory, bool(loaded[at]), place)
        group = by_kind.setdefault(
            kind, _Group(1 if place is None or older else place.buckets, place if older else None)
        )
        if group.bytes + size > RESULT_BYTES:
            yield group
            group = by_kind[kind] = _Group(group.within, group.place)
        group.places.append(at)
        group.bytes += size
    yield from by_kind.values()


def _merge(snapshot: SettledSnapshot, group: _Group, writer: ObjectWriter, *, in_order: bool) -> list[Removed]:
    """Hand the rows of a group (or of the first of it, if they are many) to the writer; what they replace."""
    removed: list[Removed] = []
    tables: list[pa.Table] = []
    for at in group.places:
        if len(removed) > 1 and sum(table.nbytes for table in tables) > _MEMORY_BYTES:
            break
        table = _read_whole(snapshot, at)
        tables.append(table)
        removed.append(Removed(snapshot.objects.paths[at], int(snapshot.objects.sizes[at]), table.num_rows))
    merged = pa.concat_tables(tables)
    tables.clear()
    if in_order:
        merged = merged.combine_chunks()
        merged = merged.take(pc.sort_indices(merged, sort_keys=[(STREAMLET, "ascending"), (OFFSET, "ascending")]))
    name = parse_name(removed[0].path)
    assert name is not None, "only objects with a name of ours are grouped"
    writer.add_block(name.start, name.seconds, merged, group.within, group.place)
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
