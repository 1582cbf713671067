"""The live half for a Spark query: [boundary, head), with heads that are the same for everything one query reads.

Spark plans and reads one view several times in one query (both sides of a self-join, a subquery, a task that is tried
again), at different moments. The boundary comes with the view, fixed when its objects were listed. The heads are fixed
here, by the first request of a query, and kept for all of its later ones.

What is kept is bounded: the least recently used query is forgotten beyond `QUERIES_MAX`, and any that asked for nothing
for `IDLE_SECONDS`. A query that comes back after that would see newer heads; no query is that long between two reads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import InvalidValue
from millpond.model.offsets import OffsetRange
from millpond.query.halves import Halves
from millpond.query.projection import Projection, pieces
from millpond.query.terms import Where, is_never, ready

QUERIES_MAX = 10_000
IDLE_SECONDS = 3_600.0

_Key = tuple[str, int, int]


@dataclass
class _Fixed:
    heads: Mapping[int, int]
    used_seconds: float


class FixedHeads:
    """Heads by (query, stream, generation). Thread-safe."""

    def __init__(self, clock: Clock, *, queries_max: int = QUERIES_MAX, idle_seconds: float = IDLE_SECONDS) -> None:
        self._clock = clock
        self._queries_max = queries_max
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._fixed: OrderedDict[_Key, _Fixed] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._fixed)

    def of(
        self, query: str, stream_id: int, generation: int, take: Callable[[], Mapping[int, int]]
    ) -> Mapping[int, int]:
        """The heads that this query sees: those it was given before, or `take()`, now and for later."""
        now = self._clock.monotonic_seconds()
        key = (query, stream_id, generation)
        with self._lock:
            self._forget_idle(now)
            fixed = self._fixed.pop(key, None) or _Fixed(dict(take()), now)
            fixed.used_seconds = now
            self._fixed[key] = fixed
            if len(self._fixed) > self._queries_max:
                self._fixed.popitem(last=False)
            return fixed.heads

    def _forget_idle(self, now: float) -> None:
        while self._fixed:
            oldest = next(iter(self._fixed.values()))
            if now - oldest.used_seconds <= self._idle_seconds:
                return
            self._fixed.popitem(last=False)


def read_live(
    halves: Halves,
    fixed: FixedHeads,
    *,
    query: str,
    boundary: Mapping[int, int],
    generation: int,
    streamlets: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    where: Where = None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the live batches that one scan of a query reads. `query` identifies the query; "" means that
    nothing else belongs to it. `where` is taken loosely: the caller filters again. All columns unless named."""
    definition = halves.definition
    halves.check_generation(generation)
    projection = Projection.of(definition, columns, system=True)
    predicate = ready(where, definition.schema, loose=True)

    def take() -> dict[int, int]:
        return halves.log.heads(definition.id)

    heads = fixed.of(query, definition.id, generation, take) if query else take()
    chosen = range(definition.streamlets) if streamlets is None else streamlets
    for streamlet in chosen:
        if streamlet not in heads:
            raise InvalidValue(f"no streamlet {streamlet}", hint=f"0 to {definition.streamlets - 1}")

    def read(streamlet: int) -> Iterator[pa.RecordBatch]:
        start, stop = boundary.get(streamlet, 0), heads[streamlet]
        offsets = OffsetRange(min(start, stop), stop)
        for batch in halves.read_range(generation, streamlet, offsets, projection.schema.names, predicate):
            yield from map(projection.apply, pieces(batch))

    return projection.schema, iter(()) if is_never(predicate) else chain.from_iterable(map(read, chosen))
