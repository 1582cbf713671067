"""Loads: objects that others wrote become part of the table, all of them with one commit.

Whoever loads (a Spark job, say) writes final objects under names nobody else has, by as many tasks as it likes, and
reports them; nothing that is not reported exists for anybody. The records of loads are a streamlet of their own, which
the log does not have. A load begins at the boundary of that streamlet; its task number p gives its rows the offsets

    base + (p << row_bits) + row

so that tasks need not know of each other. The commit moves the boundary behind the last offset that was reported.
Between the rows of one task and those of the next nothing is missing: those offsets were never given out.

Invariant: a commit adds objects of the load's own generation, streamlet and offsets only, each of which is there with
the size that was reported; either all of them or none.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.commit_log import Refused
from millpond.archive.index.entries import BYTES, PATH, ROWS
from millpond.archive.index.minmax import MAX, MIN
from millpond.archive.index.stream_indexes import indexes_of
from millpond.archive.layout.arranging import Arranging
from millpond.archive.layout.layout import Layout
from millpond.archive.layout.thinning import Thinning
from millpond.archive.ledger import Change, Ledger
from millpond.archive.object_index import with_columns
from millpond.archive.objects import parse_name
from millpond.archive.settle import add_columns
from millpond.archive.shape import conform
from millpond.archive.table import Added
from millpond.archive.writing import ObjectWriter, WrittenObjects
from millpond.errors import InvalidInput, OffsetGone, SettleConflict, SettleFailed, TooLarge
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OFFSET_END
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, TIMESTAMP, stored_schema
from millpond.storage.protocol import Storage

# What a task's report says of an object besides its index entry: what other engines find in the Delta log.
STATS = "delta_stats"
# And of the whole task, with its first object: a sample for the stream's first model, as an Arrow stream.
SAMPLE = "layout_sample"
# Of a hundred tasks that makes a good sample, and a report stays small.
_SAMPLE_ROWS = 2_048
# Room for the rows of one task. Offsets are finite: micro-batches, of which there are many, take less room each.
ROW_BITS = 32
ROW_BITS_SMALL = 24
_COMMIT_TRIES = 5


@dataclass(frozen=True)
class Load:
    """A load that has begun. `version` is the table's when it did: its commit comes after that. `marks`: see
    `Change`."""

    id: str
    base: int
    version: int
    generation: int
    ingest_micros: int
    marks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadReport:
    """What a load added. `boundary`: the end of the streamlet of loads after it."""

    version: int
    objects: int
    rows: int
    bytes_written: int
    boundary: int


class LoadWriter:
    """The objects of one task of a load: rows in, a report out. For one thread; a context manager."""

    def __init__(
        self,
        storage: Storage,
        root: str,
        definition: StreamDefinition,
        load: Load,
        task: int,
        row_bits: int,
        *,
        object_bytes: int,
        arranging: Arranging | None = None,
    ) -> None:
        self._schema = stored_schema(definition.schema)
        self._streamlet = definition.load_streamlet
        self._next, self._stop = load.base + (task << row_bits), load.base + ((task + 1) << row_bits)
        if self._stop > OFFSET_END:
            raise TooLarge(
                f"{definition.name} has no offsets left for task {task} of a load", hint="load in fewer partitions"
            )
        self._ingest_micros = load.ingest_micros
        self._sample: Thinning | None = None
        if arranging is not None and arranging.model is None:
            columns = arranging.columns
            self._sample = Thinning(pa.schema([self._schema.field(name) for name in columns]), _SAMPLE_ROWS)
        self._writer = ObjectWriter(
            storage, root, definition, load.version + 1, object_bytes=object_bytes, arranging=arranging
        )

    def __enter__(self) -> LoadWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__()

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows with the stream's own columns."""
        rows = batch.num_rows
        if not rows:
            return
        if rows > self._stop - self._next:
            raise TooLarge("a task of a load has too many rows", hint="repartition the DataFrame into more tasks")
        system = {
            STREAMLET: pa.repeat(pa.scalar(self._streamlet, pa.int32()), rows),
            OFFSET: pa.array(np.arange(self._next, self._next + rows)),
            INGEST_TIME: pa.repeat(pa.scalar(self._ingest_micros, TIMESTAMP), rows),
        }
        self._next += rows
        whole = pa.RecordBatch.from_arrays([*batch.columns, *system.values()], names=[*batch.schema.names, *system])
        ready = conform(whole, self._schema)
        if self._sample is not None:
            self._sample.add(ready)
        self._writer.add(ready)

    def finish(self) -> pa.Table | None:
        """Everything is in objects, which are durable. What to report of them, a row each; None if there are none."""
        written = self._writer.finish()
        if written.entries is None:
            return None
        report = written.entries.append_column(STATS, pa.array([one.stats for one in written.added], pa.string()))
        if self._sample is not None:
            samples = [_as_stream(self._sample.sample()), *[None] * (report.num_rows - 1)]
            report = report.append_column(SAMPLE, pa.array(samples, pa.binary()))
        return report

    def discard(self) -> None:
        """Remove what was written, as far as that can be done."""
        self._writer.discard()


def read_report(report: pa.Table, definition: StreamDefinition) -> WrittenObjects:
    """What tasks reported, joined, as the commit wants it; `InvalidInput` if it is not such a report."""
    entries = with_columns(report, stored_schema(definition.schema), indexes_of(definition))
    stats = report.schema.get_field_index(STATS)
    if stats < 0 or (report.num_rows and any(entries.column(name).null_count for name in (PATH, BYTES, ROWS))):
        raise InvalidInput("not a report of loaded objects", hint=f"it has {PATH}, {ROWS}, {BYTES} and {STATS}")
    columns = [entries.column(name).to_pylist() for name in (PATH, BYTES, ROWS)]
    added = [Added(*one) for one in zip(*columns, report.column(stats).to_pylist(), strict=True)]
    return WrittenObjects(added, entries if added else None, 0, sum(columns[2]), 0)


def read_samples(report: pa.Table, layout: Layout, schema: pa.Schema) -> pa.Table | None:
    """The sample that tasks reported, all of them together; None if they did not. `InvalidInput` if it is no sample."""
    at = report.schema.get_field_index(SAMPLE)
    if at < 0:
        return None
    wanted = pa.schema([schema.field(name) for name in layout.columns])
    found = []
    for body in report.column(at).drop_null().to_pylist():
        try:
            table = pa.ipc.open_stream(body).read_all()
            table.validate(full=True)
            found.append(table.select(wanted.names).cast(wanted))
        except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as error:
            raise InvalidInput(f"a load reports a sample that is none: {error}", hint="load again") from error
    return pa.concat_tables(found) if found else None


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def commit_load(storage: Storage, ledger: Ledger, load: Load, written: WrittenObjects) -> LoadReport:
    """Make the objects of a load visible. Raises `SettleFailed` if that did not happen; asked again, it may."""
    definition = ledger.definition
    try:
        state = ledger.refresh() or ledger.create_table()
        done = find_load(ledger, load.id, load.version)
        if done is not None:
            return done
        _check(storage, ledger, load, written)
        add_columns(ledger)
        for _ in range(_COMMIT_TRIES):
            state = ledger.refresh() or state
            boundary = _boundary(state.boundary, load, written, definition)
            change = Change("load", boundary, written.added, entries=written.entries, load=load.id, marks=load.marks)
            try:
                version = ledger.commit(change).version
            except Refused:
                continue
            reached = boundary.get(definition.load_streamlet, 0)
            return LoadReport(version, len(written.added), written.rows, written.bytes_written, reached)
    except OSError as error:
        raise SettleFailed(
            f"the load into {definition.name} could not be committed: {error}",
            hint="nothing of it is visible; look at the archive's disk, then load again",
        ) from error
    raise SettleConflict(
        f"other writers committed to {definition.name} {_COMMIT_TRIES} times meanwhile", hint="commit it again"
    )


def find_load(ledger: Ledger, load: str, after: int) -> LoadReport | None:
    """What a load's commit did, as the log tells; None if it has none."""
    found = ledger.find_load(load, after)
    if found is None:
        return None
    version, commit = found
    rows, size = sum(one[2] or 0 for one in commit.added), sum(one[1] for one in commit.added)
    reached = commit.transactions.get(ledger.load_app_id, 0)
    return LoadReport(version, len(commit.added), rows, size, reached)


def _boundary(
    boundary: Mapping[int, int], load: Load, written: WrittenObjects, definition: StreamDefinition
) -> dict[int, int]:
    streamlet = definition.load_streamlet
    reached = boundary.get(streamlet, 0)
    if reached != load.base:
        raise SettleConflict(
            f"another load into {definition.name} was first: it reached {reached}, this one began at {load.base}",
            hint="nothing of this one is visible: load again",
        )
    if written.entries is None:
        return dict(boundary)
    last: int = pc.max(written.entries.column(MAX + OFFSET)).as_py()
    return {**boundary, streamlet: last + 1}


def _check(storage: Storage, ledger: Ledger, load: Load, written: WrittenObjects) -> None:
    """The objects are those of this load, and they are where readers will look for them."""
    definition = ledger.definition
    if load.generation != definition.generation:
        raise OffsetGone(
            f"{definition.name} was truncated while it was loaded: generation {load.generation} is gone",
            hint="nothing of the load is visible: load again",
        )
    if written.entries is None:
        return
    paths = [one.path for one in written.added]
    if len(set(paths)) != len(paths):
        raise InvalidInput("a load reports an object twice", hint="report each object once")
    _check_bounds(written.entries, definition.load_streamlet, load)
    for one in written.added:
        name = parse_name(one.path)
        if name is None or name.generation != load.generation:
            raise InvalidInput(f"a load reports an object {one.path[:100]!r}", hint="objects have names of ours")
        path = posixpath.join(ledger.root, one.path)
        if not storage.exists(path) or storage.size(path) != one.bytes:
            raise InvalidInput(
                f"{one.path} is not in the archive with {one.bytes} bytes",
                hint="tasks must write to the very directory that the pond reads: share it under one path",
            )


def _check_bounds(entries: pa.Table, streamlet: int, load: Load) -> None:
    wanted = {MIN + STREAMLET: streamlet, MAX + STREAMLET: streamlet}
    for name, value in wanted.items():
        if not pc.all(pc.fill_null(pc.equal(entries.column(name), value), False)).as_py():
            raise InvalidInput("a load reports records of another streamlet", hint=f"loads are streamlet {streamlet}")
    low, high = pc.min(entries.column(MIN + OFFSET)).as_py(), pc.max(entries.column(MAX + OFFSET)).as_py()
    unknown = entries.column(MIN + OFFSET).null_count or entries.column(MAX + OFFSET).null_count
    if unknown or low < load.base or high >= OFFSET_END:
        raise InvalidInput(f"a load reports offsets {low} to {high}", hint=f"they begin at {load.base}")
