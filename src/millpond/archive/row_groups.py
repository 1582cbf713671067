"""Which row groups of an object may hold a matching row, by the statistics in its footer.

The same question as for whole objects, one level down, and the same answer: unknown means read. Statistics of floats
leave NaN out, by Parquet's rule; those of objects that we wrote are there only if there is none. Which objects these
are the caller says: what is written in a footer goes along when another tool rewrites the object.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.archive.footer_stats import chunk_range, column_places, complete
from millpond.model.predicate import Predicate
from millpond.model.prune import may_match
from millpond.model.stats import Stats


def row_groups(file: pq.ParquetFile, predicate: Predicate, columns: pa.Schema, *, ours: bool) -> list[int]:
    """The row groups to read; `columns` are those of the predicate, with the types it is meant for. `ours`: we wrote
    these very bytes."""
    metadata, there = file.metadata, file.schema_arrow
    if metadata.num_row_groups <= 1:
        return list(range(metadata.num_row_groups))  # the index entry has decided already
    usable = [
        field
        for field in columns
        if field in there and (complete(field.type) or (ours and pa.types.is_floating(field.type)))
    ]
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    places = column_places(metadata)
    ranges = [{field.name: chunk_range(group.column(places[field.name])) for field in usable} for group in groups]
    known = [{name: found for name, found in each.items() if found is not None} for each in ranges]
    stats = Stats.gather(pa.schema(usable), known, [group.num_rows for group in groups])
    keep = may_match(predicate, stats).keep
    return [at for at in range(len(groups)) if keep[at]]
