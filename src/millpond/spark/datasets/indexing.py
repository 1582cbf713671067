"""Making and keeping the index of a data set: which files have to be described, and the entries that come of it.

An entry is recorded with the size and the time that its file had *before* it was read. So a file that changes while it
is read has an entry that does not count, and is described by the next refresh. Files are described in rounds, each of
them durable when it is over: an interrupted job is carried on by the next refresh.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.dataset.files import Listing, Matched, match
from millpond.archive.dataset.keeper import DatasetKeeper
from millpond.archive.dataset.kinds import checked_specs, kinds_of, used_columns
from millpond.archive.dataset.report import RefreshReport
from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.entries import ROWS
from millpond.archive.index.minmax import entry_columns
from millpond.archive.index.stream_indexes import StreamIndexes
from millpond.clock import Clock
from millpond.errors import InvalidInput, InvalidValue
from millpond.model.spec import GivenSpec, Spec
from millpond.spark.datasets.describing import NUMBER, Described, Pass, describe_files, passes
from millpond.spark.datasets.listing import listing_of
from millpond.spark.datasets.progress import following
from millpond.spark.datasets.reading import (
    Reader,
    corrupt_column,
    find,
    kept_options,
    place,
    reason_of,
    session_reading,
)
from millpond.spark.jvm import FAILURES, Jvm
from millpond.spark.planner import remake_views

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Progress = Callable[[int, int], None]

# What one round brings to the driver stays far below the gigabyte that Spark allows, blooms included.
ROUND_FILES = 1_000
# A store that tells time by the second cannot tell a file from one that replaced it within the second.
_SECOND_MILLIS = 1_000
_FRESH_MILLIS = 2_000


def create(
    make: Callable[[DatasetDefinition], DatasetKeeper],
    name: str,
    path: Any,
    files: str,
    indexes: Sequence[GivenSpec],
    options: Mapping[str, object] | None,
    schema: StructType | str | pa.Schema | None,
    spark: SparkSession,
    clock: Clock,
    progress: Progress | None,
) -> tuple[DatasetKeeper, RefreshReport]:
    """A new data set: `make` keeps its definition."""
    jvm = Jvm(spark)
    where, kept = place(path), kept_options(spark, options)
    found = find(spark, jvm, where, files, schema, kept)
    definition = DatasetDefinition(
        id=secrets.token_hex(4),
        name=name,
        path=where,
        files=files,
        options=kept,
        schema=found.data.json(),
        partitions=found.partitions.json(),
        typed=found.typed,
        reading=session_reading(spark, jvm, files),
        indexes=(),
        created_micros=clock.now_micros(),
    )
    reader = Reader(jvm, definition)
    if NUMBER in found.data.names:
        raise InvalidValue(f"a column is called {NUMBER!r}", hint="give a schema without it")
    specs = _checked(spark, reader, indexes)
    listing = listing_of(jvm.workshop.files(found.relation), reader.partitions)
    if not len(listing):
        raise InvalidInput(
            f"there are no files in {where}",
            hint="files that are empty, or whose names begin with _ or ., do not count",
        )
    store = make(msgspec.structs.replace(definition, indexes=tuple(spec.plain() for spec in specs)))
    try:
        return store, refresh(store, spark, clock, progress)
    except BaseException:
        store.drop()
        raise


def refresh(store: DatasetKeeper, spark: SparkSession, clock: Clock, progress: Progress | None = None) -> RefreshReport:
    """Bring the entries in step with the files that are there."""
    jvm = Jvm(spark)
    definition, entries = store.entries()
    _check_reading(definition, spark, jvm)
    return _Round(store, Reader(jvm, definition), clock, progress).run(entries, everything=False)


def rebuild(store: DatasetKeeper, spark: SparkSession, clock: Clock, progress: Progress | None = None) -> RefreshReport:
    """Describe every file anew, as this session reads it."""
    jvm = Jvm(spark)
    definition = store.definition
    reading = session_reading(spark, jvm, definition.files)
    definition = msgspec.structs.replace(definition, reading=reading)
    return _Round(store, Reader(jvm, definition), clock, progress).run(store.entries()[1], everything=True)


def add_index(
    store: DatasetKeeper,
    given: Sequence[GivenSpec],
    spark: SparkSession,
    clock: Clock,
    progress: Progress | None = None,
) -> RefreshReport:
    """More indexes; one of the same kind and columns takes the place of the one that is there."""
    reader = Reader(Jvm(spark), store.definition)
    added = _checked(spark, reader, given)
    kept = [spec for spec in store.definition.specs if spec.key not in {one.key for one in added}]
    return _with(store, (*kept, *added), spark, clock, progress)


def drop_index(store: DatasetKeeper, keys: Sequence[str], clock: Clock) -> None:
    """Without indexes of these keys ("values(city)") or kinds ("values"). Nothing is read again."""
    specs = store.definition.specs
    gone = {spec.key for spec in specs if spec.key in keys or spec.kind in keys or str(spec) in keys}
    if not gone:
        raise InvalidValue(
            f"no index {', '.join(keys)!r}", hint=f"indexes: {', '.join(spec.key for spec in specs) or 'none'}"
        )
    left = tuple(spec for spec in specs if spec.key not in gone)
    columns = {name for spec in left for name in spec.columns}
    entries = store.entries()[1]
    keep = [name for name in entries.schema.names if not _belongs(name, gone, columns)]
    definition = msgspec.structs.replace(store.definition, indexes=tuple(spec.plain() for spec in left))
    store.rewrite(entries.select(keep), BlobWriter(0), clock.now_micros(), definition)


def _belongs(column: str, gone: set[str], columns: set[str]) -> bool:
    """Whether a column of entries is of an index that is gone, or a range that no index left is about."""
    if any(column.startswith(f"{key}.") for key in gone):
        return True
    prefix, _, name = column.partition(".")
    return prefix in ("min", "max", "nulls") and bool(name) and name not in columns


def _with(
    store: DatasetKeeper, specs: Sequence[Spec], spark: SparkSession, clock: Clock, progress: Progress | None
) -> RefreshReport:
    jvm = Jvm(spark)
    definition = msgspec.structs.replace(
        store.definition,
        indexes=tuple(spec.plain() for spec in specs),
        reading=session_reading(spark, jvm, store.definition.files),
    )
    return _Round(store, Reader(jvm, definition), clock, progress).run(store.entries()[1], everything=True)


def _checked(spark: SparkSession, reader: Reader, given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    hidden = corrupt_column(spark, reader.definition.options)
    columns = pa.schema([field for field in reader.columns if field.name != hidden])
    others = [name for name in reader.data.names if name not in columns.names]
    specs = checked_specs(given, columns, reader.partitions.names, others)
    for spec in specs:
        if reader.definition.drops_rows and len(spec.columns) > 1:
            raise InvalidValue(
                f"{spec.key}: which rows are dropped (mode DROPMALFORMED) depends on the columns that a query reads",
                hint="indexes over one column each, or mode PERMISSIVE",
            )
    return specs


def _check_reading(definition: DatasetDefinition, spark: SparkSession, jvm: Jvm) -> None:
    now = session_reading(spark, jvm, definition.files)
    if now != definition.reading:
        names = {name for name, _ in set(now.items()) ^ set(definition.reading.items())}
        raise InvalidValue(
            f"{definition.name!r} was indexed by a session with other settings: {', '.join(sorted(names))}",
            hint="use the same settings, or rebuild the index under these",
        )


class _Round:
    """One run over the files of a data set."""

    def __init__(self, store: DatasetKeeper, reader: Reader, clock: Clock, progress: Progress | None) -> None:
        self._store, self._reader, self._clock = store, reader, clock
        self._progress = progress or (lambda done, total: None)
        specs = reader.definition.specs
        self._columns = used_columns(specs, reader.columns)
        self._indexes = kinds_of(specs, reader.columns)

    def run(self, entries: pa.Table, *, everything: bool) -> RefreshReport:
        """`everything`: no entry counts, as if all files were new."""
        reader, resolved = self._reader.now()
        retyped, self._reader = reader is not self._reader, reader
        files = reader.jvm.workshop.files(resolved)
        listing = listing_of(files, reader.partitions)
        matched = match(listing, entries)
        wanted = np.ones(len(listing), dtype=np.bool_) if everything else ~matched.known
        unsure = _just_written(listing, self._clock.now_micros() // 1_000)
        chosen = np.flatnonzero(wanted & ~unsure)
        if everything:
            self._store.rewrite(entries.slice(0, 0), BlobWriter(0), self._clock.now_micros(), reader.definition)
        elif matched.removed or matched.changed.any() or self._store.warnings() or retyped:
            kept = entries.take(pa.array(np.sort(matched.entry_of[matched.known])))
            self._store.rewrite(kept, BlobWriter(0), self._clock.now_micros(), reader.definition if retyped else None)
        if retyped:
            remake_views(reader.jvm.spark)
        steps = passes(self._columns, self._indexes, drops_rows=reader.definition.drops_rows)
        for start in range(0, len(chosen), ROUND_FILES):
            part = chosen[start : start + ROUND_FILES]
            with following(reader.jvm.spark, len(part), self._from(start, len(chosen))):
                told = self._described(resolved, files, part, len(listing), steps)
            self._add(listing, part, told)
            self._progress(start + len(part), len(chosen))
        return _report(listing, matched, chosen, unsure & wanted, everything=everything)

    def _from(self, start: int, total: int) -> Callable[[int], None]:
        return lambda done: self._progress(start + done, total)

    def _described(
        self, resolved: Any, files: Any, part: npt.NDArray[np.int64], total: int, steps: Sequence[Pass]
    ) -> dict[int, Described]:
        try:
            return describe_files(self._reader, resolved, files, part, total, steps)
        except FAILURES as error:
            raise InvalidInput(
                f"files of {self._reader.definition.path} could not be read: {reason_of(error)}",
                hint="a file that changed meanwhile is found by refresh; look at the options and the schema otherwise",
            ) from error

    def _add(self, listing: Listing, part: npt.NDArray[np.int64], told: Mapping[int, Described]) -> None:
        chosen = np.zeros(len(listing), dtype=np.bool_)
        chosen[part] = True
        described = [told[number] for number in part.tolist()]
        blobs = BlobWriter(self._store.definition.version + 1)
        table = listing.table(chosen).append_column(ROWS, pa.array([each.rows for each in described], pa.int64()))
        for name, column in _known(self._columns, self._indexes, described, blobs).items():
            table = table.append_column(name, column)
        self._store.add(table, blobs, self._clock.now_micros())


def _known(
    columns: pa.Schema, indexes: StreamIndexes, described: Sequence[Described], blobs: BlobWriter
) -> dict[str, pa.Array]:
    ranges = entry_columns(columns, [each.ranges for each in described])
    return ranges | indexes.columns([each.entry for each in described], blobs)


def _just_written(listing: Listing, now_millis: int) -> npt.NDArray[np.bool_]:
    """The files whose time would be the same if they were replaced now."""
    times = listing.modified_millis
    if not len(times) or (times % _SECOND_MILLIS).any():
        return np.zeros(len(listing), dtype=np.bool_)
    fresh: npt.NDArray[np.bool_] = times > now_millis - _FRESH_MILLIS
    return fresh


def _report(
    listing: Listing, matched: Matched, chosen: npt.NDArray[np.int64], left: npt.NDArray[np.bool_], *, everything: bool
) -> RefreshReport:
    changed = int(matched.changed.sum())
    return dataclasses.replace(
        RefreshReport(files=len(listing), bytes=int(listing.sizes.sum())),
        described=len(chosen),
        added=int((~matched.known).sum()) - changed,
        changed=changed,
        removed=matched.removed,
        postponed=int(left.sum()),
        everything=everything,
    )
