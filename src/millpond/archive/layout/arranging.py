"""Arranging: the rows of a block, by a model, become one group of rows per bucket, each in the order it is stored in.

How many buckets a block is cut into depends on who writes. A settle that somebody asked for uses all of them. One in
the background uses the upper levels of the tree, as many buckets as give objects of a sensible size: a minute's worth
of records in 128 buckets would litter the store with tiny objects. Merging refines later what has grown.

A stream's first model is fitted to its first block. If that had few rows, the model gives way to one of a block that
has several times as many. A block for which the model is out of date (all of it is later than all that the model knows,
say) is laid out by one that is fitted to that block alone: the same dimensions, other cuts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.archive.layout.layout import Layout, Model, Order
from millpond.archive.layout.place import Place

# A block is out of balance if its fullest bucket holds this many times the mean; another model is better if its fullest
# holds less than that share.
_OUT_OF_BALANCE = 3.0
_BETTER = 0.6
# A model with fewer rows per bucket than this knows little of where rows lie.
_FEW_PER_BUCKET = 64
# It gives way to one that was fitted to so many times as many.
_TIMES_AS_MANY = 4

_LOG = logging.getLogger(__name__)


class Arranging:
    """How one writer lays out what it writes. For one thread."""

    def __init__(
        self,
        layout: Layout,
        model: Model | None = None,
        *,
        object_bytes_min: int = 0,
        keep: Callable[[Model], None] | None = None,
    ) -> None:
        """`object_bytes_min`: what an object's rows should have in memory at least; 0: all buckets are used. `keep` is
        called with a model that was fitted here; without it, objects do not name that model, which nobody will know."""
        self._layout = layout
        self._object_bytes_min = object_bytes_min
        self._keep = keep
        self._known = model is not None or keep is not None
        self.model = model

    @property
    def columns(self) -> tuple[str, ...]:
        """What the layout looks at."""
        return self._layout.columns

    def groups(self, rows: pa.Table, within: int = 1) -> Iterator[tuple[Place | None, pa.Table]]:
        """The rows (at least one) by bucket. `within`: they are of one bucket of so many already. Takes the memory of
        the rows once more. A layout of a user's that fails must not keep records from settling: then they are stored as
        they come."""
        try:
            model = self._fitted(rows)
            buckets = self._buckets(model, rows.nbytes, within)
            if within == 1:
                model = _in_balance(model, rows, buckets)
            order, edges, found = _ordered(model, rows, buckets)
        except (OSError, MemoryError):
            raise
        except Exception:
            _LOG.exception("layout %s failed; rows are stored as they come", self._layout.spec)
            yield None, rows
            return
        arranged = _taken(rows, order)
        for bucket, start, stop in zip(found, edges[:-1], edges[1:], strict=True):
            yield self._place(model, bucket, buckets), arranged.slice(start, stop - start)

    def in_order(self, rows: pa.Table) -> pa.Table:
        """Rows of one object, in the order in which the newest model stores them."""
        return rows if self.model is None else _taken(rows, self.model.order(rows))

    def _place(self, model: Model, bucket: int, buckets: int) -> Place | None:
        return Place(model.id, bucket, buckets) if self._known else None

    def _fitted(self, rows: pa.Table) -> Model:
        model = self.model
        if model is not None:
            few = _FEW_PER_BUCKET * self._layout.buckets
            if self._keep is None or not 0 < model.rows < few or rows.num_rows < _TIMES_AS_MANY * model.rows:
                return model
        model = self._layout.fit(rows)
        if self._keep is not None:
            self._keep(model)
        self.model = model
        return model

    def _buckets(self, model: Model, size: int, within: int) -> int:
        if not self._object_bytes_min:
            return model.buckets
        return model.levels.at_most(within * max(1, size // self._object_bytes_min))


def _in_balance(model: Model, rows: pa.Table, buckets: int) -> Model:
    """The model, or one like it if it would put most rows into few buckets."""
    if buckets < 2 or rows.num_rows < _FEW_PER_BUCKET * buckets:
        return model
    fullest = _fullest(model, rows, buckets)
    if fullest * buckets <= _OUT_OF_BALANCE * rows.num_rows:
        return model
    other = model.refitted(rows)
    return model if other is None or _fullest(other, rows, buckets) > _BETTER * fullest else other


def _fullest(model: Model, rows: pa.Table, buckets: int) -> int:
    return int(np.bincount(model.assign(rows, buckets)).max())


def _ordered(model: Model, rows: pa.Table, buckets: int) -> tuple[Order, list[int], list[int]]:
    """The order of the rows by bucket and inside each, where buckets begin and the last ends, and which they are."""
    assigned = model.assign(rows, buckets)
    if assigned.shape != (rows.num_rows,) or assigned.min() < 0 or assigned.max() >= model.levels.at_most(buckets):
        raise ValueError(f"model {model.id} does not give each row one of {buckets} buckets")
    # Sixteen bits hold every number of a bucket, and are sorted several times as fast.
    order = np.argsort(assigned.astype(np.uint16), kind="stable")
    starts = np.flatnonzero(np.diff(assigned[order], prepend=-1))
    edges = [*starts.tolist(), len(order)]
    found = assigned[order[starts]].tolist()
    keyed = _taken(rows.select(list(model.columns)), order)
    for start, stop in pairwise(edges):
        inside = model.order(keyed.slice(start, stop - start))
        placed = np.zeros(stop - start, np.bool_)
        placed[inside] = True
        if len(inside) != len(placed) or not placed.all():
            raise ValueError(f"model {model.id} does not give each row one place")
        order[start:stop] = order[start:stop][inside]
    return order, edges, found


def _taken(rows: pa.Table, order: Order) -> pa.Table:
    """From combined columns, one after the other: taking from many chunks is slow, and a copy of all takes memory."""
    chosen = pa.array(order)
    columns = [column.combine_chunks().take(chosen) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)
