"""Min/max: the range of a column. Every ordered column of every stream has one, named here or not (`minmax.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.archive.index.kind import IndexKind, Mask, unfit
from millpond.archive.index.view import Entries
from millpond.model.cut import comparable
from millpond.model.predicate import Predicate


class MinMax(IndexKind):
    """Says that queries ask for ranges of a column. Adds nothing: ranges are always known."""

    name = "minmax"
    stage = 0

    def __init__(self, column: str) -> None:
        super().__init__(column)

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        found = schema.field(self.column).type
        if not comparable(found):
            raise unfit(self, self.column, found, "a plain value with an order")
        return []

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        return {}

    def keep(self, term: Predicate, entries: Entries) -> Mask | None:
        return None
