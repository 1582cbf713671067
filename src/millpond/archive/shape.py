"""The columns of a schema, whatever a batch has: what it is too old to have is null."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """`rows` with exactly the columns of `schema`, in its order."""
    columns = []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            column = rows.column(at)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return type(rows).from_arrays(columns, schema=schema)
