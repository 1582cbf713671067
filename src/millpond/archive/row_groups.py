"""Which row groups of an object may hold a matching row, by the statistics in its footer.

The same question as for whole objects, one level down, and the same answer: unknown means read. Only types whose
statistics are exact and complete are used; those of floats leave NaN out, and those of decimals and binary are in the
writer's own form.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.model.predicate import Predicate
from millpond.model.prune import may_match
from millpond.model.stats import ColumnRange, Stats

_USABLE = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_boolean,
)


def row_groups(file: pq.ParquetFile, predicate: Predicate, columns: pa.Schema) -> list[int]:
    """The row groups to read; `columns` are those of the predicate, with the types it is meant for."""
    metadata, there = file.metadata, file.schema_arrow
    if metadata.num_row_groups <= 1:
        return list(range(metadata.num_row_groups))  # the index entry has decided already
    usable = [f for f in columns if f in there and any(test(f.type) for test in _USABLE)]
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    places = {groups[0].column(at).path_in_schema: at for at in range(groups[0].num_columns)}
    ranges = [{field.name: _range(group.column(places[field.name])) for field in usable} for group in groups]
    known = [{name: found for name, found in each.items() if found is not None} for each in ranges]
    stats = Stats.gather(pa.schema(usable), known, [group.num_rows for group in groups])
    keep = may_match(predicate, stats).keep
    return [at for at in range(len(groups)) if keep[at]]


def _range(chunk: pq.ColumnChunkMetaData) -> ColumnRange | None:
    found = chunk.statistics
    if found is None or not found.has_min_max or not found.has_null_count:
        return None
    return ColumnRange(found.min, found.max, found.null_count)
