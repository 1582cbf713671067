"""Which records of an append are stored, and which columns of them: a stream's own filter and projection (K17).

The filter is a condition over the columns that are sent; a record for which it is false or null is left out, as by
SQL's WHERE. Then only the columns that the stream stores go on. Both look at records in columns, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from millpond.model.definition import StreamDefinition
from millpond.model.evaluate import Filter
from millpond.model.rows import Row, RowCodec


class Sieve:
    """Of one definition. Thread-safe. `count` is told how many records were left out, each time."""

    def __init__(self, definition: StreamDefinition, sent: RowCodec, count: Callable[[int], None]) -> None:
        """`sent`: of what is checked, which a record has before it is sifted."""
        self._sent, self._count = sent, count
        self._schema = definition.schema
        self._filter = None if definition.keep_terms is None else Filter(definition.keep_terms, sent.schema)
        self._columns = [sent.schema.get_field_index(name) for name in definition.schema.names]
        self._narrows = self._columns != list(range(len(sent.schema)))

    def batch(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """What is stored of a batch, and how many rows of it are not."""
        kept = batch if self._filter is None else self._filter.apply(batch)
        left_out = int(batch.num_rows - kept.num_rows)
        self._count(left_out)
        if self._narrows:
            kept = pa.RecordBatch.from_arrays([kept.column(at) for at in self._columns], schema=self._schema)
        return kept, left_out

    def rows(self, rows: Sequence[Row]) -> tuple[list[Row], list[bool]]:
        """What is stored of some checked rows, and of each whether it is."""
        chosen = self._chosen(rows)
        self._count(chosen.count(False))
        kept = [row for row, wanted in zip(rows, chosen, strict=True) if wanted]
        if self._narrows:
            kept = [tuple(row[at] for at in self._columns) for row in kept]
        return kept, chosen

    def _chosen(self, rows: Sequence[Row]) -> list[bool]:
        if self._filter is None or not rows:
            return [True] * len(rows)
        try:
            mask: list[bool] = self._filter.mask(self._sent.to_batch(rows)).to_pylist()
            return mask
        except Exception:  # one holds what is no text, say: whoever encodes it says so
            return [True] if len(rows) == 1 else [wanted for row in rows for wanted in self._chosen([row])]
