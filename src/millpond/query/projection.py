"""Which columns a caller gets, in which order and types, and how a batch of either half is brought to that.

The user's columns unless named; system columns only when named. The schema is fixed when the query starts: a column
that is added while it runs does not appear, and batches written before a column existed give nulls for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema
from millpond.model.sizes import fits

# What one batch handed to a caller holds at most: enough to amortise Python's cost per batch, little enough that a
# slow caller, or a door with a message limit, never has to take a whole segment at once.
BATCH_ROWS_MAX = 65_536
BATCH_BYTES_MAX = 8_000_000


@dataclass(frozen=True)
class Projection:
    """The columns that leave a query."""

    schema: pa.Schema

    @classmethod
    def of(cls, definition: StreamDefinition, columns: Sequence[str] | None, *, system: bool = False) -> Projection:
        """The named columns, in the order named; None: the user's, with the system's behind them if `system`."""
        stored = stored_schema(definition.schema)
        if columns is None:
            return cls(stored if system else definition.schema)
        if isinstance(columns, str):
            raise InvalidValue(f"columns is the string {columns!r}", hint=f"give a list: columns=[{columns!r}]")
        if not columns:
            raise InvalidValue("no columns are named", hint="name at least one, or leave columns out for all of them")
        for name in columns:
            if stored.get_field_index(name) < 0:
                raise InvalidValue(f"{definition.name} has no column {name!r}", hint=_suggestion(name, stored.names))
        if len(set(columns)) != len(columns):
            raise InvalidValue(f"columns {list(columns)} name one twice", hint="name each once")
        return cls(pa.schema([stored.field(name) for name in columns]))

    def reading(self, *also: str) -> list[str]:
        """What to ask a half for: these columns and those that the query itself needs."""
        names = list(self.schema.names)
        return names + [name for name in also if name not in names]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with exactly these columns; missing ones are null."""
        if batch.schema.equals(self.schema, check_metadata=False):
            return batch
        at = batch.schema.get_field_index
        arrays = [
            batch.column(at(field.name)) if at(field.name) >= 0 else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _suggestion(name: str, known: Sequence[str]) -> str:
    by_lower = {column.lower(): column for column in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    start = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return f"{start}columns: {', '.join(known)}"


def pieces(
    batch: pa.RecordBatch, rows_max: int = BATCH_ROWS_MAX, bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """`batch` cut, without copying, into batches within the bounds. A single row may still be over `bytes_max`."""
    if batch.num_rows <= rows_max:
        yield from _halved(batch, bytes_max)
        return
    for start in range(0, batch.num_rows, rows_max):
        yield from _halved(batch.slice(start, rows_max), bytes_max)


def _halved(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or fits(batch, bytes_max):
        if batch.num_rows:
            yield batch
        return
    middle = batch.num_rows // 2
    yield from _halved(batch.slice(0, middle), bytes_max)
    yield from _halved(batch.slice(middle), bytes_max)
