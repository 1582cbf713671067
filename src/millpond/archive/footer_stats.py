"""Column statistics in Parquet footers: what the writer has computed anyway need not be computed again.

Used when an object is written (its index entry) and when it is read (which row groups to decode). Taken are integers,
text, dates and timestamps, whose statistics are exact and complete. Those of floats leave NaN out, so they are taken
only from an object that was just written, without any where there is a NaN. Those of decimals and binary are in the
writer's own form and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.model.cut import comparable
from millpond.model.stats import ColumnRange, collect_stats, lower_bound, upper_bound

_COMPLETE = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)


def complete(kind: pa.DataType) -> bool:
    """Whether the footer's statistics of this type speak for all values."""
    return any(test(kind) for test in _COMPLETE)


def statistics_columns(table: pa.Table) -> list[str] | bool:
    """The columns whose statistics speak for every value. Parquet names the leaves of nested ones, so these have
    theirs all together or, where a float is among them or some other column has NaN, not at all."""
    chosen = [
        field.name
        for field in table.schema
        if not (pa.types.is_nested(field.type) and _holds_floats(field.type))
        and not (pa.types.is_floating(field.type) and pc.any(pc.is_nan(table.column(field.name))).as_py())
    ]
    return True if len(chosen) == table.num_columns else chosen


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_floats(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def column_ranges(table: pa.Table, metadata: pq.FileMetaData) -> dict[str, ColumnRange]:
    """What `collect_stats(table)` says, of the table that was just written as this file; mostly without looking.
    The file has no statistics of columns with NaN."""
    found: dict[str, ColumnRange] = {}
    left: list[str] = []
    places = column_places(metadata)
    for field in table.schema:
        if not comparable(field.type):
            continue
        ranges = None
        if complete(field.type) or pa.types.is_floating(field.type):
            ranges = _over_groups(metadata, places[field.name])
        if ranges is None:
            left.append(field.name)
        else:
            found[field.name] = ColumnRange(lower_bound(ranges.min), upper_bound(ranges.max), ranges.nulls)
    return found | collect_stats(table.select(left))


def column_places(metadata: pq.FileMetaData) -> Mapping[str, int]:
    """Where the chunk of each plain column is within a row group."""
    return {metadata.schema.column(at).path: at for at in range(len(metadata.schema))}


def chunk_range(chunk: pq.ColumnChunkMetaData) -> ColumnRange | None:
    """The range of one column in one row group. None: the footer does not tell."""
    stats = chunk.statistics
    if stats is None or not stats.has_null_count:
        return None
    if not stats.has_min_max:
        return ColumnRange(None, None, stats.null_count) if stats.null_count == chunk.num_values else None
    try:
        return ColumnRange(stats.min, stats.max, stats.null_count)
    except (ValueError, OverflowError):  # dates and timestamps reach beyond the years 1 to 9999
        return None


def _over_groups(metadata: pq.FileMetaData, place: int) -> ColumnRange | None:
    ranges = [chunk_range(metadata.row_group(at).column(place)) for at in range(metadata.num_row_groups)]
    known = [each for each in ranges if each is not None]
    if len(known) < len(ranges):
        return None
    nulls = sum(each.nulls for each in known)
    valued = [each for each in known if each.min is not None]
    if not valued:
        return ColumnRange(None, None, nulls)
    return ColumnRange(min(each.min for each in valued), max(each.max for each in valued), nulls)
