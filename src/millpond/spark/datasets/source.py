"""A data set as Spark reads it: its files listed anew for every query, and those left out that cannot matter.

The frame is a relation of Spark's own format; only which files it has is ours (`java/DatasetIndex.java`). When a query
is planned, its files are listed once, matched with the entries of the index, and each scan is answered with the files
that may hold a row for it. The condition is seen whole: terms about rows and about partitions may be mixed by OR.

Invariants (I4): a file without an entry, with one of another size or time, or in a session that reads otherwise than
the one that indexed it, is read. An error while deciding is counted, and everything is read. An error while listing
fails the query.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.archive.dataset.files import Listing, Matched, file_index, match
from millpond.archive.dataset.keeper import DatasetKeeper
from millpond.archive.dataset.kinds import kinds_of, used_columns
from millpond.archive.index.entries import BYTES
from millpond.archive.index.filters import Filter as ObjectFilter
from millpond.archive.object_index import ObjectIndex
from millpond.errors import InvalidInput
from millpond.model.evaluate import Filter
from millpond.model.predicate import TRUE, Predicate
from millpond.model.prune import Pruning
from millpond.spark.catalyst import translate
from millpond.spark.datasets.describing import matching_share
from millpond.spark.datasets.listing import parse_listing
from millpond.spark.datasets.reading import Reader, session_reading
from millpond.spark.filters import configured_filters
from millpond.spark.jvm import Callback
from millpond.spark.planner import SessionPlanner, planner_of
from millpond.spark.report import QueryFigures, SettledScan
from millpond.spark.workshop import Java

logger = logging.getLogger(__name__)

# Under this name those files are counted that hold no row at all.
EMPTY = "(empty)"


def dataset_frame(store: DatasetKeeper, pond_id: str, spark: SparkSession) -> DataFrame:
    """A DataFrame of the data set; each query of it sees the files that are there when it is planned."""
    planner = planner_of(spark)
    definition, entries = store.entries()
    reader = Reader(planner.jvm, definition)
    if reader.partitions.fields:
        with contextlib.suppress(InvalidInput):  # the files are out of reach: whoever queries them is told
            reader = reader.now()[0]
    types = reader.definition.partitions
    key = f"{pond_id} dataset {definition.id} {zlib.crc32(types.encode())}"
    planner.add_source(key, DatasetSource(planner, store, types).pin)
    size = int(pa.compute.sum(entries.column(BYTES)).as_py() or 0)
    return planner.jvm.dataset(
        key, definition.name, size, definition.files, reader.data, reader.partitions, dict(definition.options)
    )


@dataclass(frozen=True, eq=False)
class FilesSnapshot:
    """The files of one query, and what is known of each."""

    objects: ObjectIndex
    schema: pa.Schema
    known: npt.NDArray[np.bool_]
    listing: Listing
    reader: Reader

    def share(self, at: int, predicate: Predicate) -> float:
        """Of the rows of one file those that satisfy the predicate; by a job, since only Spark reads the files."""
        places, names = self.listing, [field.name for field in self.reader.columns]
        passing = Filter(predicate, self.schema, loose=True)
        partition = int(places.partition_of[at])
        fixed = {name: column.values[partition] for name, column in places.partitions.items()}
        wanted = [name for name in names if name in passing.columns]
        resolved = self.reader.resolve()
        files = self.reader.jvm.workshop.files(resolved)
        now = parse_listing(str(files.text()), "", self.reader.partitions)
        if places.paths[at] not in now.paths:  # gone meanwhile
            return 0.0
        number = now.paths.index(places.paths[at])
        return matching_share(self.reader, resolved, files, number, len(now), wanted, fixed, predicate)


class DatasetSource:
    """One data set in one session, for frames with these types of partitions. Thread-safe."""

    def __init__(self, planner: SessionPlanner, store: DatasetKeeper, partitions: str) -> None:
        self._planner, self._store, self._partitions = planner, store, partitions
        self._last: tuple[Any, FilesSnapshot] | None = None

    def pin(self, figures: QueryFigures) -> Java:
        """The files for one query, as the JVM takes them."""
        jvm = self._planner.jvm
        definition, entries = self._store.entries()
        reader = Reader(jvm, msgspec.structs.replace(definition, partitions=self._partitions))
        files = jvm.workshop.files(reader.resolve())
        text, values = str(files.text()), str(files.partitions())
        believed = session_reading(self._planner.spark, jvm, definition.files) == definition.reading
        if not believed:
            logger.warning("%s is read without its index: the session's settings differ", definition.name)
            figures.undecided += 1
            entries = entries.slice(0, 0)
        snapshot = self._snapshot((definition, believed, text, values), reader, entries)
        scan = DatasetScan(definition.name, snapshot, figures, configured_filters(self._planner.spark))
        return jvm.workshop.pinnedFiles(files, Callback(scan.answer))

    def _snapshot(self, state: Any, reader: Reader, entries: pa.Table) -> FilesSnapshot:
        """What is derived from a listing and entries is kept for as long as both stay the same."""
        last = self._last
        if last is not None and last[0][0] is state[0] and last[0][1:] == state[1:]:
            return last[1]
        listing = parse_listing(state[2], state[3], reader.partitions)
        snapshot = _snapshot(listing, match(listing, entries), reader, entries, self._store)
        self._last = (state, snapshot)
        return snapshot


def _snapshot(
    listing: Listing, matched: Matched, reader: Reader, entries: pa.Table, store: DatasetKeeper
) -> FilesSnapshot:
    specs = reader.definition.specs
    used = used_columns(specs, reader.columns)
    schema = pa.schema([*used, *(field for field in reader.known if field.name in listing.partitions)])
    indexes = kinds_of(specs, reader.columns)
    for warning in indexes.warnings:
        logger.warning("%s: %s", reader.definition.name, warning)
    objects = file_index(listing, entries, matched, schema, indexes, store.blobs)
    return FilesSnapshot(objects, reader.known, matched.known, listing, reader)


class DatasetScan:
    """One data set in one query. Lives as long as the query's plan does in the JVM."""

    def __init__(
        self, name: str, snapshot: FilesSnapshot, figures: QueryFigures, filters: Sequence[ObjectFilter]
    ) -> None:
        self._name, self._snapshot, self._figures, self._filters = name, snapshot, figures, filters

    def answer(self, left: str, asked: str) -> Any:
        """`left`: the files that Spark's own pruning leaves, a bit each; `asked`: lists of predicates, parted by NUL.
        Which files must be read, in the same form."""
        count = len(self._snapshot.objects)
        bits = np.frombuffer(base64.b64decode(left), dtype=np.uint8)
        offered = np.unpackbits(bits, count=count, bitorder="little").astype(np.bool_)
        began = time.perf_counter()
        try:
            predicate = _predicate(asked, self._snapshot.schema)
            pruning = self._prune(predicate)
        except Exception:  # whatever it is: skipping only proves irrelevance (I4)
            logger.exception("could not decide what to skip; every file is read")
            self._figures.undecided += 1
            predicate, pruning = TRUE, Pruning(np.ones(count, dtype=np.bool_), {})
        keep = pruning.keep & offered
        skipped_by = dict(pruning.skipped_by)
        by_spark = int(np.count_nonzero(pruning.keep & ~offered))
        if by_spark:
            skipped_by["(partitions)"] = by_spark
        self._figures.settled[f"{self._name} {left} {asked}"] = SettledScan(
            self._name,
            self._snapshot,
            predicate,
            keep,
            skipped_by,
            deciding_seconds=time.perf_counter() - began,
            failures=pruning.failures,
        )
        return bytearray(np.packbits(keep, bitorder="little").tobytes())

    def _prune(self, predicate: Predicate) -> Pruning:
        objects = self._snapshot.objects
        found = objects.prune(predicate, self._filters)
        empty = found.keep & self._snapshot.known & (objects.rows == 0)
        count = int(np.count_nonzero(empty))
        if not count:
            return found
        return found._replace(keep=found.keep & ~empty, skipped_by={**found.skipped_by, EMPTY: count})


def _predicate(asked: str, schema: pa.Schema) -> Predicate:
    """The conjunction of all that was asked. Spark asks for the same term in several places: once is enough."""
    terms: dict[str, None] = {}
    for text in asked.split("\0"):
        for node in json.loads(text):
            for term in node["of"] if node["is"] == "And" else [node]:
                terms[json.dumps(term)] = None
    return translate(f"[{','.join(terms)}]", schema.names)
