"""The job that describes files: each is read whole by one task, which tells what all indexes want to know of it.

Files are chosen by number. Spark packs them into tasks and splits none (`java/WholeFiles.java`), so a task sees the
rows of a file one after the other, those of the next file behind them. What is read are the columns of the indexes, by
the data set's own schema and options, without any filter: exactly the rows that a query would find in the file.

Where rows that cannot be parsed are dropped (mode DROPMALFORMED), which rows there are depends on which columns are
read: a query over two columns finds no row that a query over one of them does not. So there every column is read on its
own, an index is over one column, and nothing is said of how many rows a file has.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from millpond.archive.index.stream_indexes import StreamIndexes
from millpond.model.evaluate import Filter
from millpond.model.predicate import Predicate, decode, encode
from millpond.model.stats import ColumnRange, collect_stats
from millpond.spark.live import use_our_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millpond.spark.datasets.reading import Reader
    from millpond.spark.workshop import Java

# No column of a file is called so, or the file cannot be indexed.
NUMBER = "_millpond_file"
# A file that is gone or damaged fails the job: an entry made from half of a file would lose rows later.
STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
_RESULT = pa.schema([("number", pa.int32()), ("told", pa.binary())])
_RESULT_DDL = "number int, told binary"


@dataclass(frozen=True)
class Described:
    """What is known of a file. `rows`: None if it is not known how many a query would find."""

    rows: int | None
    ranges: Mapping[str, ColumnRange]
    entry: Mapping[str, Any]


@dataclass(frozen=True)
class Pass:
    """Once through the files: which columns are read, and what is described from them. Goes to executors.

    `whole`: the rows are those that every query finds, so that their number counts."""

    columns: pa.Schema
    indexes: StreamIndexes
    whole: bool

    def describe(self, rows: pa.Table) -> Described:
        """`rows`: at least one column, and one row."""
        unsure = _not_utf8(rows)
        ranges = {name: found for name, found in collect_stats(rows).items() if name not in unsure}
        used = tuple(one for one in self.indexes.used if unsure.isdisjoint(one.kind.columns))
        return Described(rows.num_rows if self.whole else None, ranges, StreamIndexes(used).entry(rows))


def _not_utf8(rows: pa.Table) -> set[str]:
    """The columns of text that is none. Spark takes it as it comes; some of its functions look at the bytes, others at
    what these are decoded to. So nothing is known of such a column."""
    found = set()
    for field in rows.schema:
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            try:
                rows.column(field.name).validate(full=True)
            except pa.ArrowInvalid:
                found.add(field.name)
    return found


def passes(columns: pa.Schema, indexes: StreamIndexes, *, drops_rows: bool) -> list[Pass]:
    """How the files are gone through, for indexes over these columns."""
    if not drops_rows:
        return [Pass(columns, indexes, whole=True)]
    return [
        Pass(
            pa.schema([field]),
            StreamIndexes(tuple(one for one in indexes.used if one.kind.columns == (field.name,))),
            whole=False,
        )
        for field in columns
    ]


def describe_files(
    reader: Reader, resolved: Java, files: Java, chosen: npt.NDArray[np.int64], total: int, steps: Sequence[Pass]
) -> dict[int, Described]:
    """What is known of each chosen file, by number. Without a column to read none is read, and nothing known."""
    told: dict[int, Described] = {}
    if not any(len(step.columns) for step in steps):
        return {number: Described(None, {}, {}) for number in chosen.tolist()}
    for step in steps:
        frame = _frame(reader, resolved, files, chosen, total, step)
        found = {row.number: pickle.loads(row.told) for row in frame.collect()}
        for number in chosen.tolist():
            # A file of which no task saw a row has none.
            mine = found.get(number) or Described(0 if step.whole else None, {}, {})
            before = told.get(number)
            told[number] = mine if before is None else _together(before, mine)
    return told


def _together(one: Described, other: Described) -> Described:
    return Described(None, {**other.ranges, **one.ranges}, {**one.entry, **other.entry})


def matching_share(
    reader: Reader,
    resolved: Java,
    files: Java,
    number: int,
    total: int,
    columns: Sequence[str],
    fixed: Mapping[str, pa.Scalar],
    predicate: Predicate,
) -> float:
    """Of the rows of one file those that satisfy a predicate over `columns` and the `fixed` values of its partition."""
    schema = pa.schema([reader.columns.field(name) for name in columns])
    frame = _rows(reader, resolved, files, np.array([number]), total, schema)
    counted = frame.mapInArrow(_Match(schema, fixed, predicate), "rows long, matching long").groupBy()
    found = counted.sum("rows", "matching").collect()[0]
    return (found[1] or 0) / max(1, found[0] or 0)


class _Match:
    """What a task does that counts the rows which satisfy a predicate."""

    def __init__(self, columns: pa.Schema, fixed: Mapping[str, pa.Scalar], predicate: Predicate) -> None:
        self._columns, self._fixed, self._predicate = columns, dict(fixed), encode(predicate)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # With the number of the file: a table without a column would have no rows.
            rows = pa.Table.from_batches([batch]).rename_columns([*self._columns.names, NUMBER])
            rows = rows.cast(self._columns.append(rows.schema.field(NUMBER)))
            for name, value in self._fixed.items():
                rows = rows.append_column(name, pa.repeat(value, batch.num_rows))
            passing = Filter(decode(self._predicate), rows.schema, loose=True)
            matching = sum(passing.apply(each).num_rows for each in rows.to_batches())
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "matching": [matching]})


def _frame(
    reader: Reader, resolved: Java, files: Java, chosen: npt.NDArray[np.int64], total: int, step: Pass
) -> DataFrame:
    rows = _rows(reader, resolved, files, chosen, total, step.columns)
    return rows.mapInArrow(_Describe(step), _RESULT_DDL)


def _rows(
    reader: Reader, resolved: Java, files: Java, chosen: npt.NDArray[np.int64], total: int, columns: pa.Schema
) -> DataFrame:
    """These columns of the chosen files, and behind them the number of the file that a row is from. For Python in
    executors."""
    use_our_python(reader.jvm.spark)
    keep = np.zeros(total, dtype=np.bool_)
    keep[chosen] = True
    bits = np.packbits(keep, bitorder="little").tobytes()
    number = StructType([StructField(NUMBER, IntegerType(), False)])
    options = {**reader.definition.options, **STRICT}
    rows = reader.jvm.numbered(resolved, files, bits, reader.data, number, options)
    return rows.select(*(f"`{name.replace('`', '``')}`" for name in columns.names), NUMBER)


class _Describe:
    """What a task does. Pickled with its indexes, also those whose classes only the driver knows by name."""

    def __init__(self, step: Pass) -> None:
        self._step = step

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in whole_files(batches, self._step.columns):
            told = pickle.dumps(self._step.describe(rows))
            yield pa.record_batch([pa.array([number], pa.int32()), pa.array([told], pa.binary())], schema=_RESULT)


def whole_files(batches: Iterable[pa.RecordBatch], columns: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each file in turn. The last column of a batch has the number of the file that a row is from."""
    held: list[pa.RecordBatch] = []
    at = -1
    seen: set[int] = set()
    for batch in batches:
        numbers = batch.column(batch.num_columns - 1).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            if int(numbers[start]) != at:
                if held:
                    yield at, _table(held, columns)
                held, at = [], int(numbers[start])
                if at in seen:
                    raise ValueError(f"file {at} was split: its rows did not come one after the other")
                seen.add(at)
            held.append(batch.slice(start, stop - start))
    if held:
        yield at, _table(held, columns)


def _table(held: list[pa.RecordBatch], columns: pa.Schema) -> pa.Table:
    """In the types of the index: Spark names the session's zone with timestamps, and may choose larger texts."""
    table = pa.Table.from_batches(held)
    return table.select(range(table.num_columns - 1)).rename_columns(columns.names).cast(columns)
