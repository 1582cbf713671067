"""Records by key, newest first, from both halves and one exact snapshot, without starting Spark (K6).

Steps: fix the heads; ask the log's key index; *then* take the settled snapshot. In this order nothing falls between
the halves: what the log had let go of before it was asked lies under that snapshot's boundary, so records at or above
the boundary are taken from the log's answer and those below it from the objects. The answer is what was acknowledged
when the heads were taken.

A primary key lives in one streamlet, where "newest" is the highest offset, and among the records of loads. Where there
are some, and for a secondary key, which is looked up in all streamlets, records are merged by `_ingest_time`, then
`_offset`. Objects are ruled out by their statistics and read newest first,
until no older one can hold a record that belongs to the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.archive.snapshot import SettledSnapshot
from millpond.errors import InvalidValue, OffsetGone
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import streamlet_of
from millpond.model.ingested import ingested_since
from millpond.model.predicate import In, Predicate
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET
from millpond.query.halves import Halves
from millpond.query.loads import loaded
from millpond.query.objects import spans_of
from millpond.query.places import at_or_above
from millpond.query.projection import Projection
from millpond.query.terms import both, equals
from millpond.query.values import key_value

# An answer is held in memory whole.
LIMIT_MAX = 100_000


def get(halves: Halves, value: Any = None, *, limit: int = 10, secondary: Mapping[str, Any] | None = None) -> pa.Table:
    """At most `limit` records with this primary key, or with this one secondary key; all columns, newest first."""
    check_limit(limit)
    sought = wanted(halves.definition, value, secondary or {})
    while True:
        generation = halves.generation
        try:
            found = _newest(halves, sought, limit)
        except OffsetGone:
            if halves.generation == generation:
                raise
        else:
            if halves.generation == generation:
                return found
        # The stream was truncated meanwhile: what was found is gone.


def _newest(halves: Halves, sought: Wanted, limit: int) -> pa.Table:
    definition = halves.definition
    heads, cutoff = halves.log.heads(definition.id), halves.cutoff_micros()
    live = halves.log.find(
        definition.id,
        sought.column,
        sought.value,
        streamlet=sought.streamlet,
        limit=limit,
        below=heads,
        since_micros=cutoff,
    )
    settled = halves.snapshot().settled
    loads = loaded(settled, definition)
    best = _Newest(Projection.of(definition, None, system=True), sought.streamlet is None or bool(loads), limit)
    best.add([batch.filter(pa.array(at_or_above(batch, settled.boundary))) for batch in live])
    kept = None if cutoff is None else ingested_since(cutoff)
    _add_settled(best, settled, both(sought.term(loads), kept), heads | loads)
    return best.table


def check_limit(limit: int) -> None:
    """`InvalidValue` unless `get` may give so many records."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidValue(f"a limit of {limit!r}", hint=f"1 to {LIMIT_MAX}; scan has no such bound")


@dataclass(frozen=True)
class Wanted:
    """What is looked for, and where: one streamlet for the primary key, all of them (None) for a secondary."""

    column: str
    value: Any
    streamlet: int | None

    def term(self, loads: Collection[int]) -> Predicate | None:
        """True for the records sought; `loads`: the streamlet of loads, if there are any."""
        place = None if self.streamlet is None else In(STREAMLET, (self.streamlet, *loads))
        return both(place, equals(self.column, self.value))


def wanted(definition: StreamDefinition, value: Any, secondary: Mapping[str, Any]) -> Wanted:
    """The one key that a caller names, its value as the column would give it back."""
    keys = definition.keys
    if not keys:
        raise InvalidValue(
            f"{definition.name} has no keys to look up by", hint="scan(where=...) finds records by any column"
        )
    named = ", ".join(keys)
    if (value is not None) + len(secondary) > 1:
        raise InvalidValue("get takes one key", hint="scan(where='... AND ...') finds records by several columns")
    if value is None and not secondary:
        raise InvalidValue("get needs the value of a key", hint=f"get(value) looks up {keys[0]!r}; keys: {named}")
    column, given = next(iter(secondary.items())) if secondary else (keys[0], value)
    if column not in keys:
        raise InvalidValue(f"{column!r} is not a key of {definition.name}", hint=f"keys: {named}; or scan(where=...)")
    found = key_value(given, definition.schema, column)
    return Wanted(column, found, streamlet_of(found, definition.streamlets) if column == keys[0] else None)


class _Newest:
    """The newest records seen so far, at most `limit`. Not thread-safe."""

    def __init__(self, projection: Projection, everywhere: bool, limit: int) -> None:
        self._projection = projection
        self._limit = limit
        self._order = [(INGEST_TIME, "descending")] * everywhere + [(OFFSET, "descending"), (STREAMLET, "ascending")]
        self.by = self._order[0][0]
        self.table = projection.schema.empty_table()

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        found = pa.Table.from_batches([self._projection.apply(batch) for batch in batches], self._projection.schema)
        if found.num_rows:
            joined = pa.concat_tables([self.table, found]).combine_chunks()
            self.table = joined.sort_by(self._order).slice(0, self._limit)

    def beats(self, newest: int) -> bool:
        """Whether no record that is at most this new (by `by`, as a number) can still enter."""
        if self.table.num_rows < self._limit:
            return False
        last: int = self.table.column(self.by)[-1].cast(pa.int64()).as_py()
        return last > newest


def _add_settled(
    best: _Newest, settled: SettledSnapshot, predicate: Predicate | None, heads: Mapping[int, int]
) -> None:
    """Let the settled records compete, without those that were appended after the heads were taken."""
    columns = best.table.schema.names
    spans = spans_of(settled.objects, settled.objects.prune(predicate).keep)
    bound = spans.stop - 1 if best.by == OFFSET else spans.newest
    order = np.argsort(-bound, kind="stable")
    for at in order.tolist():
        if best.beats(int(bound[at])):
            return
        found = settled.read(spans.only([at]), columns, predicate)
        best.add([batch.filter(pa.array(~at_or_above(batch, heads))) for batch in found])
