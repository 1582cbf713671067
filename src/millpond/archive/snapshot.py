"""A settled snapshot: a Delta version, its boundary, and its objects. Frozen, and readable as long as its files are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.filters import Filter as ObjectFilter
from millpond.archive.object_index import ObjectIndex
from millpond.archive.reader import BATCH_ROWS, Condition, ObjectToRead, read_object
from millpond.errors import InvalidInput
from millpond.model.evaluate import Filter
from millpond.model.predicate import Predicate
from millpond.model.prune import Pruning
from millpond.storage.protocol import Storage


@dataclass(frozen=True, eq=False)
class SettledSnapshot:
    """Everything of one version. `version` is -1 and there are no objects before the first settle. Thread-safe."""

    version: int
    boundary: Mapping[int, int]
    objects: ObjectIndex
    root: str
    schema: pa.Schema
    storage: Storage = field(repr=False)
    warnings: tuple[str, ...] = ()
    generation: int = 1
    filters: tuple[ObjectFilter, ...] = ()  # the user's own, of this process

    def prune(self, predicate: Predicate | None, filters: Sequence[ObjectFilter] = ()) -> Pruning:
        """Which objects a user's query with this predicate must read; `filters`: more of them than the stream has."""
        return self.objects.prune(predicate, (*self.filters, *filters))

    def read(
        self,
        keep: npt.NDArray[np.bool_] | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        loose: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in the order of objects, and within each in its own.

        `keep`: a mask over `objects`, as `objects.prune` gives it; None prunes by the predicate. `columns`: None means
        all of `schema`. The predicate is applied exactly; with `loose`, terms not understood count as true.
        """
        names = self._columns(columns)
        where = None if predicate is None else Condition(predicate, Filter(predicate, self.schema, loose=loose))
        mask = self.prune(predicate).keep if keep is None else keep
        if where is not None and where.passing.passes_none:
            return
        for at in np.flatnonzero(mask).tolist():
            wanted = self.object_at(at)
            yield from read_object(self.storage, self.root, wanted, self.schema, names, where, batch_rows)

    def share(self, at: int, predicate: Predicate) -> float:
        """Of the rows of one object those that satisfy the predicate, 0 to 1; terms not understood count as true."""
        only = np.zeros(len(self.objects), dtype=np.bool_)
        only[at] = True
        column = min(Filter(predicate, self.schema, loose=True).columns, default=self.schema.names[-1])
        matching: int = sum(batch.num_rows for batch in self.read(only, [column], predicate, loose=True))
        return matching / max(1, int(self.objects.rows[at]))

    def object_at(self, at: int) -> ObjectToRead:
        objects = self.objects
        return ObjectToRead(objects.paths[at], int(objects.sizes[at]), objects.blocks_checksums(at))

    def _columns(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            return list(self.schema.names)
        if not columns:
            raise InvalidInput(
                "no columns to read", hint="name one, e.g. _offset; rows without columns cannot be counted"
            )
        for name in columns:
            if self.schema.get_field_index(name) < 0:
                raise InvalidInput(f"no column {name!r}", hint=f"columns: {', '.join(self.schema.names)}")
        return list(columns)
