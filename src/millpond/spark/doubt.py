"""Which columns may hold NaN, as far as the index knows. See `java/CarefulParquet.java` for why it matters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millpond.model.stats import Stats


def columns_in_doubt(schema: pa.Schema, stats: Stats) -> list[str]:
    """Columns, and fields of structs ("a.b"), of floating point for which NaN is not ruled out in every object."""
    return [
        path
        for field in schema
        for path in _floating(field.name, field.type)
        if path not in stats.columns or not _without_nan(path, stats)
    ]


def _without_nan(column: str, stats: Stats) -> bool:
    """A bound is known only of a column without NaN; an object in which all is null has none."""
    bounded = np.asarray(stats.columns[column].mins.is_valid())
    return bool((bounded | stats.all_null(column)).all())


def _floating(path: str, kind: pa.DataType) -> Iterator[str]:
    """Spark hands no filter on elements of lists and maps to the reader."""
    if pa.types.is_floating(kind):
        yield path
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _floating(f"{path}.{field.name}", field.type)
