"""Objects: their names, and how rows become Parquet bytes.

An object is written once, under a name that carries where it belongs and which attempt wrote it:

    g00001/1401408000.86400/b0042-000000000017-9f3c2e51.parquet
    generation / start.seconds of the time partition / bucket - block (Delta version meant) - attempt

It describes itself (C3): besides the schema its footer holds the stream, the generation, the offsets per streamlet and
the range of times, so that a stray object can be identified without the table, and its time range without its body. A
Parquet file without its footer is not readable at all: a clean end is told apart from a crash.

Encoding is chosen for time, measured on 100-byte records: Snappy (zstd at level 1 takes a third longer for a third
less), dictionaries only where a sample shows few distinct values (on others they cost up to twice the time), page
checksums and page indexes always (below what can be measured). Statistics leave NaN out by Parquet's rule, and engines
that sort NaN above every number would skip rows by them: a column with NaN is written without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.archive.checksums import block_checksums
from millpond.archive.footer_stats import column_ranges, statistics_columns
from millpond.archive.layout.place import Place
from millpond.archive.partition import partition_name, row_times
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET
from millpond.model.stats import ColumnRange

FORMAT_VERSION = "1"
# The key under which the footer of every object that we wrote says so.
FORMAT = b"millpond.format"

# A reader that wants a few offsets or keys decodes one row group; smaller ones would cost footer and compression.
ROW_GROUP_ROWS = 1 << 18

# Distinct values are counted in a few runs spread over the rows: neighbours alone would make sorted columns look small.
_SAMPLE_RUNS = 4
_SAMPLE_RUN_ROWS = 1_024
# A dictionary pays off when a value comes back this often within the sample.
_SAMPLE_REPEATS = 8

_NAME = re.compile(r"g(\d{5})/(-?\d+)\.(\d+)/b(\d{4,})-(\d{12})-([0-9a-f]{8})\.parquet\Z")
# The same for a column of paths at once: where a path is one of ours, and the numbers in its last part.
NAME_NUMBERS = r"^g\d{5}/-?\d+\.\d+/b(?P<bucket>\d{4,18})-(?P<block>\d{12})-[0-9a-f]{8}\.parquet$"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parts of an object's path within its stream's directory."""

    generation: int
    start: int
    seconds: int
    bucket: int
    block: int
    attempt: str

    def __str__(self) -> str:
        return f"{self.directory}/b{self.bucket:04d}-{self.block:012d}-{self.attempt}.parquet"

    @property
    def directory(self) -> str:
        return f"g{self.generation:05d}/{partition_name(self.start, self.seconds)}"


def parse_name(path: str) -> ObjectName | None:
    """The parts of a path that we wrote; None for one that another engine wrote."""
    match = _NAME.match(path)
    if match is None:
        return None
    generation, start, seconds, bucket, block = map(int, match.groups()[:5])
    return ObjectName(generation, start, seconds, bucket, block, match[6])


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What the index entry and the Delta action of an object say of it."""

    size: int
    rows: int
    columns: Mapping[str, ColumnRange]
    checksums: bytes
    entry: Mapping[str, Any] = field(default_factory=dict)  # what the stream's indexes say, by the names of columns


def encode_object(
    table: pa.Table, definition: StreamDefinition, place: Place | None = None
) -> tuple[memoryview, ObjectFacts]:
    """Rows (at least one, in the stored schema) as the bytes of a Parquet file, and what is known of it. `place`: where
    a layout put them."""
    described = table.replace_schema_metadata(_description(table, definition) | _placed(place))
    sink = pa.BufferOutputStream()
    footers: list[pq.FileMetaData] = []
    pq.write_table(
        described,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="snappy",
        use_dictionary=_dictionary_columns(table),
        write_statistics=statistics_columns(table),
        write_page_index=True,
        write_page_checksum=True,
        metadata_collector=footers,
    )
    data = memoryview(sink.getvalue())
    return data, ObjectFacts(len(data), table.num_rows, column_ranges(table, footers[0]), block_checksums(data))


def _description(table: pa.Table, definition: StreamDefinition) -> dict[str, str]:
    times = pc.min_max(row_times(table, definition.event_time).cast(pa.int64()))
    offsets = {str(s): [r.start, r.stop] for s, r in offset_ranges(table).items()}
    return {
        FORMAT.decode(): FORMAT_VERSION,
        "millpond.stream": definition.name,
        "millpond.stream_id": str(definition.id),
        "millpond.generation": str(definition.generation),
        "millpond.offsets": json.dumps(offsets),
        "millpond.time_micros": json.dumps([times["min"].as_py(), times["max"].as_py()]),
    }


def _placed(place: Place | None) -> dict[str, str]:
    if place is None:
        return {}
    return {"millpond.model": place.model, "millpond.bucket": f"{place.bucket}/{place.buckets}"}


def offset_ranges(data: pa.Table | pa.RecordBatch) -> dict[int, OffsetRange]:
    """Per streamlet the least range that holds all offsets."""
    streamlets = data.column(STREAMLET)
    extremes = pc.min_max(streamlets)
    if extremes["min"].as_py() == extremes["max"].as_py():  # the common case, and without a group by
        if data.num_rows == 0:
            return {}
        found = pc.min_max(data.column(OFFSET))
        return {extremes["min"].as_py(): OffsetRange(found["min"].as_py(), found["max"].as_py() + 1)}
    columns = pa.table([streamlets, data.column(OFFSET)], names=["s", "o"])
    grouped = columns.group_by("s").aggregate([("o", "min"), ("o", "max")]).sort_by("s")
    return {row["s"]: OffsetRange(row["o_min"], row["o_max"] + 1) for row in grouped.to_pylist()}


def _dictionary_columns(table: pa.Table) -> list[str] | bool:
    """The columns whose values repeat. Nested ones are left plain: Parquet names their leaves, not them."""
    chosen = [
        field.name
        for field in table.schema
        if not pa.types.is_nested(field.type)
        and not pa.types.is_boolean(field.type)
        and field.name not in (OFFSET,)
        and (field.name in (STREAMLET, INGEST_TIME) or _repeats(table.column(field.name)))
        and not (pa.types.is_floating(field.type) and _has_negative_zero(table.column(field.name)))
    ]
    return chosen or False


def _has_negative_zero(column: pa.ChunkedArray) -> bool:
    """Whether there is one. Spark's Parquet reader looks for 0.0 in a dictionary and does not find -0.0, which to SQL
    is the same: it would skip the rows."""
    numbers = column.to_numpy()
    return bool(np.any(np.signbit(numbers) & (numbers == 0)))


def _repeats(column: pa.ChunkedArray) -> bool:
    rows = len(column)
    if rows <= _SAMPLE_RUNS * _SAMPLE_RUN_ROWS:
        sample = column
    else:
        step = (rows - _SAMPLE_RUN_ROWS) // (_SAMPLE_RUNS - 1)
        runs: list[Any] = []
        for run in range(_SAMPLE_RUNS):
            runs += column.slice(run * step, _SAMPLE_RUN_ROWS).chunks
        sample = pa.chunked_array(runs, column.type)
    return int(pc.count_distinct(sample, mode="only_valid").as_py()) * _SAMPLE_REPEATS <= len(sample)
