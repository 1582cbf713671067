"""Min/max entries: typed columns `min.<column>`, `max.<column>`, `nulls.<column>` of an index file.

A null bound means "not known", and what is not known is read. Columns that came later are unknown in older objects'
entries, never absent values: an object without the column is all null in it, but saying so is left to the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from millpond.model.cut import comparable
from millpond.model.stats import ColumnRange, ColumnStats, Stats

MIN, MAX, NULLS = "min.", "max.", "nulls."


def entry_fields(schema: pa.Schema) -> list[pa.Field]:
    """The columns of an index file for objects of this (stored) schema."""
    fields = []
    for field in schema:
        if comparable(field.type):
            fields += [pa.field(MIN + field.name, field.type), pa.field(MAX + field.name, field.type)]
            fields.append(pa.field(NULLS + field.name, pa.int64()))
    return fields


def entry_columns(schema: pa.Schema, ranges: Sequence[Mapping[str, ColumnRange]]) -> dict[str, pa.Array]:
    """The same columns, filled: one row per object."""
    stats = Stats.gather(schema, ranges, [0] * len(ranges))
    columns: dict[str, pa.Array] = {}
    for name, column in stats.columns.items():
        columns[MIN + name], columns[MAX + name], columns[NULLS + name] = column.mins, column.maxs, column.nulls
    return columns


def stats_of(entries: pa.Table, schema: pa.Schema) -> Stats:
    """Entries (any number of them with nulls throughout: not known) in the form that pruning compares with."""
    columns = {}
    for field in schema:
        names = [prefix + field.name for prefix in (MIN, MAX, NULLS)]
        if comparable(field.type) and all(name in entries.schema.names for name in names):
            columns[field.name] = ColumnStats(*(entries.column(name) for name in names))
    return Stats(entries.column("rows"), columns)
