"""The indexes of a data set, checked and made ready: as a stream's, but over the columns of files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.archive.index.registry import INDEXES
from millpond.archive.index.stream_indexes import StreamIndexes, indexes_for
from millpond.archive.specs import checked_indexes
from millpond.errors import InvalidValue
from millpond.model.spec import GivenSpec, Spec


def checked_specs(
    given: Sequence[GivenSpec], columns: pa.Schema, partitions: Sequence[str], others: Sequence[str]
) -> tuple[Spec, ...]:
    """As specs; `InvalidValue` if one does not work. `columns`: those that can be indexed; `others`: those that are in
    the files and cannot."""
    specs = checked_indexes(given)
    for spec in specs:
        for name in spec.columns:
            if name in partitions:
                raise InvalidValue(
                    f"{spec.key}: {name!r} is in the names of directories, not in files",
                    hint="leave it out: files are ruled out by it without an index",
                )
            if name in others:
                raise InvalidValue(
                    f"{spec.key}: {name!r} has a type that has no order, or none that indexes know",
                    hint=f"columns that can be indexed: {', '.join(columns.names) or 'none'}",
                )
            if name not in columns.names:
                raise InvalidValue(f"{spec.key}: no column {name!r}", hint=f"columns: {', '.join(columns.names)}")
        INDEXES.make(spec).check(columns)
    if len({spec.key for spec in specs}) < len(specs):
        raise InvalidValue(
            f"indexes={[spec.key for spec in specs]} names one twice", hint="one of a kind for the same columns"
        )
    return specs


def used_columns(specs: Sequence[Spec], columns: pa.Schema) -> pa.Schema:
    """The columns that indexes are about, in the order of the schema; those that are gone are left out."""
    named = {name for spec in specs for name in spec.columns}
    return pa.schema([field for field in columns if field.name in named])


def kinds_of(specs: Sequence[Spec], columns: pa.Schema) -> StreamIndexes:
    """What the specs name. A kind that this process does not know is warned of, and not asked."""
    return indexes_for(specs, columns)
