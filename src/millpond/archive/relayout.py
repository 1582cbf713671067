"""Relayout: settled objects are rewritten under the newest model, a time partition at a time, and no row changes.

A unit is the objects of one partition (those of loads apart from the others, as in compaction). It is cut into parts,
each of which takes the rows of some upper buckets of the model and can be done by itself, in another process if need
be: it reads the unit's objects, keeps its own rows, and writes final objects under names nobody else has. One commit
then takes the unit's objects out of the table and puts the parts' in, with the boundary as it is.

    plan      which partitions do not lie as the model says
    rewrite   one part: objects in, objects out, and a report
    commit    all parts of a unit: proven, then visible at once

What makes it safe: nothing exists before the commit. A unit that was committed lies as the model says, so whoever comes
after a crash plans only the rest. What a part wrote is read back from disk before it is reported, and the commit takes
place only if the parts together hold the very rows of the unit's objects (see `proof`). The commit is on top of
whatever others have committed meanwhile, as long as all of the unit's objects are still there; otherwise the unit is
`Overtaken`, nothing of it is visible, and it is planned again. So it is if whoever rewrites it knows the stream as it
was before a column was added that the unit's objects may have. Files of replaced objects stay for older snapshots.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa

from millpond.archive.analysis import sample_object, to_read
from millpond.archive.commit_log import Refused
from millpond.archive.index.entries import BLOCKS, BUCKET, BUCKETS, BYTES, MODEL, PATH, ROWS
from millpond.archive.layout.arranging import Arranging, assigned, suited
from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.place import adapted, stands_for
from millpond.archive.layout.sample import SAMPLE_ROWS
from millpond.archive.ledger import Change, Ledger
from millpond.archive.load import STATS, read_report
from millpond.archive.objects import parse_name
from millpond.archive.proof import Proof, prove, prove_places
from millpond.archive.reader import ObjectToRead, read_object
from millpond.archive.snapshot import SettledSnapshot
from millpond.archive.table import Removed
from millpond.archive.writing import ObjectWriter
from millpond.errors import Damaged, InvalidInput, SettleConflict, SettleFailed
from millpond.model.definition import StreamDefinition
from millpond.model.predicate import Compare
from millpond.model.schema import STREAMLET, stored_schema
from millpond.storage.protocol import Storage

# What a part reads into memory: so much in files is a few times as much in memory.
PART_BYTES = 64 << 20
# Rows in memory at which a part writes what it has: then it needs several objects per bucket, all of them large.
_MEMORY_BYTES = 512 << 20
_COMMIT_TRIES = 5
_PROOF = b"millpond.proof"


class Overtaken(Exception):
    """The stream has gone on: objects of the unit were merged, dropped or truncated meanwhile, or they have columns
    that whoever was to rewrite it does not know."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Objects of one time partition that are to be rewritten together; `entries` are theirs. `schema_version`: they
    have no column that the stream did not have at that version."""

    start: int
    seconds: int
    loaded: bool
    generation: int
    version: int
    schema_version: int
    parts: int
    entries: pa.Table = field(repr=False)

    @property
    def paths(self) -> list[str]:
        found: list[str] = self.entries.column(PATH).to_pylist()
        return found

    @property
    def bytes(self) -> int:
        return sum(self.entries.column(BYTES).to_pylist())

    @property
    def rows(self) -> int:
        return sum(self.entries.column(ROWS).to_pylist())

    def is_known_to(self, definition: StreamDefinition) -> bool:
        """Whether one who knows the stream as this can rewrite it without leaving anything out."""
        return self.generation == definition.generation and self.schema_version <= definition.schema_version


@dataclass(frozen=True)
class RelayoutReport:
    """What was rewritten: so many objects became so many."""

    stream: str
    version: int
    units: int = 0
    objects_before: int = 0
    objects_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: RelayoutReport) -> RelayoutReport:
        return RelayoutReport(
            self.stream,
            max(self.version, other.version),
            self.units + other.units,
            self.objects_before + other.objects_before,
            self.objects_after + other.objects_after,
            self.rows + other.rows,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


class _Proven(msgspec.Struct, frozen=True):
    """What a part's report says beside its entries. `whole`: the places of all rows of the unit, from its first part.
    Sums as text: they are larger than what JSON's readers agree on."""

    part: int
    rows: int
    places: str
    schema_version: int
    whole_rows: int = 0
    whole_places: str = ""


# Planning.


def plan(snapshot: SettledSnapshot, definition: StreamDefinition, model: Model, *, object_bytes_min: int) -> list[Unit]:
    """The partitions of a snapshot that do not lie as the model says, oldest first. `definition`: not older than the
    snapshot."""
    objects = snapshot.objects
    loaded = objects.prune(Compare("=", STREAMLET, definition.load_streamlet)).keep
    found: dict[tuple[str, bool], list[int]] = {}
    for at, path in enumerate(objects.paths):
        name = parse_name(path)
        if name is not None and objects.rows[at] >= 0:
            found.setdefault((name.directory, bool(loaded[at])), []).append(at)
    units = []
    for (_, of_loads), places in found.items():
        entries = objects.entries.take(pa.array(places))
        name = parse_name(objects.paths[places[0]])
        assert name is not None, "only objects with a name of ours are looked at"
        known = snapshot.generation, snapshot.version, definition.schema_version
        unit = Unit(name.start, name.seconds, of_loads, *known, 1, entries)
        if not _lies_right(entries, unit.bytes, model, object_bytes_min):
            units.append(replace(unit, parts=model.levels.at_most(-(-unit.bytes // PART_BYTES))))
    return sorted(units, key=lambda unit: (unit.start, unit.loaded))


def _lies_right(entries: pa.Table, size: int, model: Model, object_bytes_min: int) -> bool:
    """Whether a rewrite would change nothing much: all is of this model, as fine as it can be, and nothing lies in two
    objects that would fit in one."""
    by, bucket, buckets = (entries.column(name).to_pylist() for name in (MODEL, BUCKET, BUCKETS))
    if len(set(by)) != 1 or not stands_for(by[0], model.id) or None in bucket or None in buckets:
        return False
    finest = max(buckets)
    # In memory rows have more bytes than in files: a rewrite gives at least so many buckets.
    wanted = model.buckets if not object_bytes_min else model.levels.at_most(max(1, size // object_bytes_min))
    covered = np.zeros(model.buckets, np.int64)
    for at, count in zip(bucket, buckets, strict=True):
        covered += model.levels.coarser(count) == at
    doubled = int((covered - 1).clip(0).sum())
    return finest >= wanted and doubled <= model.buckets * (size // PART_BYTES)


# One part, in whatever process that is.


def rewrite(
    storage: Storage,
    root: str,
    definition: StreamDefinition,
    layout: Layout,
    model: Model,
    unit: Unit,
    part: int,
    *,
    object_bytes_min: int,
) -> pa.Table:
    """Write the part's objects; its report. What was written is removed again if anything fails. `Overtaken` if the
    definition is older than the unit, `InvalidInput` if the layout fails."""
    if not unit.is_known_to(definition):
        raise Overtaken(unit.start)
    schema = stored_schema(definition.schema)
    newest, model = model, _suited(storage, root, schema, model, unit)
    named = adapted(newest.id, model.id)
    arranging = Arranging(layout, model, object_bytes_min=object_bytes_min, named=named)
    given, whole = Proof(), Proof()
    with ObjectWriter(storage, root, definition, unit.version + 1, arranging=arranging) as writer:
        try:
            held: list[pa.Table] = []
            held_bytes = 0
            for rows in _tables(storage, root, schema, unit.entries):
                if part == 0:
                    whole += prove_places(rows)
                own = _of_part(rows, model, unit.parts, part)
                given += prove(own)
                held.append(own)
                held_bytes += own.nbytes
                if held_bytes > _MEMORY_BYTES:
                    _write(writer, unit, held)
                    held_bytes = 0
            _write(writer, unit, held)
            written = writer.finish()
            report = schema.empty_table().select([]) if written.entries is None else written.entries
            kept = Proof()
            if written.entries is not None:
                kept = sum(map(prove, _tables(storage, root, schema, written.entries)), Proof())
                report = report.append_column(STATS, pa.array([one.stats for one in written.added], pa.string()))
            if kept != given:
                raise Damaged(
                    f"{given.rows} rows of {definition.name} were to be rewritten, and {kept.rows} rows came back "
                    f"from disk with {'other' if kept.rows == given.rows else 'another number of'} contents",
                    hint="nothing was changed; look at the disk, then run `millpond verify`",
                )
        except BaseException:
            writer.discard()
            raise
    of_all = (whole.rows, str(whole.places)) if part == 0 else (0, "")
    said = _Proven(part, kept.rows, str(kept.places), definition.schema_version, *of_all)
    return report.replace_schema_metadata({_PROOF: msgspec.json.encode(said)})


def _suited(storage: Storage, root: str, schema: pa.Schema, model: Model, unit: Unit) -> Model:
    """The model, or one that stands in for it if it does not know such rows: the same for all parts."""
    if model.buckets < 2:
        return model
    share = min(1.0, SAMPLE_ROWS / max(1, unit.rows))
    counts = [math.ceil(rows * share) for rows in unit.entries.column(ROWS).to_pylist()]
    sample = pa.concat_tables(
        sample_object(storage, root, schema, wanted, model.columns, rows)
        for wanted, rows in zip(to_read(unit.entries), counts, strict=True)
    )
    return suited(model, assigned(model, sample), sample, model.buckets)[0] if sample.num_rows else model


def _tables(storage: Storage, root: str, schema: pa.Schema, entries: pa.Table) -> Iterator[pa.Table]:
    """The rows of each object, whole, as the table says they are."""
    columns = (entries.column(name).to_pylist() for name in (PATH, BYTES, BLOCKS, ROWS))
    for path, size, checksums, count in zip(*columns, strict=True):
        wanted = ObjectToRead(path, size, checksums)
        rows = pa.Table.from_batches(read_object(storage, root, wanted, schema, schema.names, None), schema)
        if rows.num_rows != count:
            raise Damaged(
                f"settled object {path} has {rows.num_rows} rows, the table says {count}", hint="run `millpond verify`"
            )
        yield rows


def _of_part(rows: pa.Table, model: Model, parts: int, part: int) -> pa.Table:
    if parts == 1:
        return rows
    return rows.filter(pa.array(model.levels.coarser(parts)[assigned(model, rows)] == part))


def _write(writer: ObjectWriter, unit: Unit, held: list[pa.Table]) -> None:
    rows = pa.concat_tables(held) if held else None
    held.clear()
    if rows is not None and rows.num_rows:
        writer.add_block(unit.start, unit.seconds, rows, unit.parts)


# All parts of a unit.


def commit(storage: Storage, ledger: Ledger, unit: Unit, reports: Sequence[pa.Table]) -> RelayoutReport:
    """Put the parts' objects in the place of the unit's. `Overtaken` if those are not all there any more, or were
    rewritten by one who did not know all columns; `SettleFailed` if the commit did not happen."""
    definition = ledger.definition
    _check_proof(definition, unit, reports)
    joined = pa.concat_tables([one for one in reports if one.num_rows], promote_options="default")
    written = read_report(joined.replace_schema_metadata(None), definition)
    _check_files(storage, ledger.root, unit, [(one.path, one.bytes) for one in written.added])
    columns = (unit.entries.column(name).to_pylist() for name in (PATH, BYTES, ROWS))
    removed = [Removed(*one) for one in zip(*columns, strict=True)]
    try:
        for _ in range(_COMMIT_TRIES):
            state = ledger.refresh()
            there = () if state is None else state.objects.paths
            if state is None or unit.generation != definition.generation or not set(unit.paths) <= set(there):
                raise Overtaken(unit.start)
            change = Change("relayout", state.boundary, written.added, removed, written.entries, data_change=False)
            try:
                version = ledger.commit(change).version
            except Refused:
                continue
            after, size = len(written.added), written.bytes_written
            return RelayoutReport(definition.name, version, 1, len(removed), after, unit.rows, unit.bytes, size)
    except OSError as error:
        raise SettleFailed(
            f"the relayout of {definition.name} could not be committed: {error}",
            hint="what was committed before stays; look at the archive's disk, then run it again",
        ) from error
    raise SettleConflict(
        f"other writers committed to {definition.name} {_COMMIT_TRIES} times meanwhile", hint="run it again"
    )


def _check_proof(definition: StreamDefinition, unit: Unit, reports: Sequence[pa.Table]) -> None:
    """The parts together hold the rows of the unit's objects: as many as the table says, at the very same places, each
    with what it held (which every part has proven of its own)."""
    try:
        said = [msgspec.json.decode((one.schema.metadata or {})[_PROOF], type=_Proven) for one in reports]
        parts = sum((Proof(one.rows, int(one.places)) for one in said), Proof())
        whole = sum((Proof(one.whole_rows, int(one.whole_places)) for one in said if one.part == 0), Proof())
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"not a report of a relayout: {error}", hint="send what `rewrite` gave") from None
    if any(one.schema_version < unit.schema_version for one in said):
        raise Overtaken(unit.start)
    if sorted(one.part for one in said) != list(range(unit.parts)) or parts != whole or parts.rows != unit.rows:
        raise Damaged(
            f"the relayout of {definition.name} would turn {unit.rows} rows into {parts.rows} that are not the same",
            hint="nothing was changed; a layout must give the same row the same bucket every time: see its contract",
        )


def _check_files(storage: Storage, root: str, unit: Unit, written: Sequence[tuple[str, int]]) -> None:
    for path, size in written:
        name, whole = parse_name(path), posixpath.join(root, path)
        right = name is not None and (name.generation, name.start, name.seconds) == (
            unit.generation,
            unit.start,
            unit.seconds,
        )
        if not right or not storage.exists(whole) or storage.size(whole) != size:
            raise InvalidInput(
                f"{path[:200]} is not in the archive with {size} bytes",
                hint="tasks must write to the very directory that the pond reads: share it under one path",
            )
