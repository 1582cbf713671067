"""Arranging: the rows of a block, by a model, become one group of rows per bucket, each in the order it is stored in.

How many buckets a block is cut into depends on who writes. A settle that somebody asked for uses all of them. One in
the background uses the upper levels of the tree, the finest at which the buckets that it fills have a sensible size on
average: a minute's worth of records in 128 buckets would litter the store with tiny objects. Merging refines later what
has grown.

A stream's first model is fitted to its first block. If that had few rows, the model gives way to one of a block that
has several times as many. A block for which the model is out of date (all of it is later than all that the model knows,
say) is laid out by one that is fitted to that block alone: the same dimensions, other cuts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.archive.layout.layout import Buckets, Layout, Model, Order
from millpond.archive.layout.place import Place, adapted
from millpond.errors import InvalidInput
from millpond.model.past_query import PastQuery

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
        keep: Callable[[Model], object] | None = None,
        adapt: bool = False,
        named: str | None = None,
    ) -> None:
        """`object_bytes_min`: what an object's rows should have in memory at least; 0: all buckets are used. `keep` is
        called with a model that was fitted here; without it, objects do not name that model, which nobody will know.
        `adapt`: a block for which the model is out of date gets one of its own; otherwise the model is followed to the
        letter. `named`: what entries call the model, if not by its id."""
        self._layout = layout
        self._object_bytes_min = object_bytes_min
        self._keep = keep
        self._adapt = adapt
        self._named = named
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
            finest = _assigned(model, rows)
            if self._adapt and within == 1:
                model, finest = self._in_balance(model, finest, rows)
            buckets = self._buckets(model, finest, rows.nbytes)
            order, edges, found = _ordered(model, rows, model.levels.coarser(buckets)[finest])
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
        if not self._known:
            return None
        newest = model if self.model is None else self.model
        return Place(self._named or adapted(newest.id, model.id), bucket, buckets)

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

    def _in_balance(self, model: Model, finest: Buckets, rows: pa.Table) -> tuple[Model, Buckets]:
        """The model, or one like it if it would put most rows into few buckets; and where it puts them."""
        wanted = rows.nbytes // self._object_bytes_min if self._object_bytes_min else model.buckets
        return suited(model, finest, rows, model.levels.at_most(wanted))

    def _buckets(self, model: Model, finest: Buckets, size: int) -> int:
        """How many buckets the level has that is used for these rows."""
        levels = model.levels
        for level in range(len(levels.levels) - 1, 0, -1):
            filled = len(np.unique(levels.levels[level][finest]))
            if filled == 1 or size >= filled * self._object_bytes_min:
                return levels.count(level)
        return 1


def suited(model: Model, finest: Buckets, rows: pa.Table, buckets: int) -> tuple[Model, Buckets]:
    """The model that gave rows these buckets, or one like it if it puts most rows into few of so many; and where it
    puts them."""
    if buckets < 2 or rows.num_rows < _FEW_PER_BUCKET * buckets:
        return model, finest
    fullest = _fullest(model, finest, buckets)
    other = model.refitted(rows) if fullest * buckets > _OUT_OF_BALANCE * rows.num_rows else None
    if other is None:
        return model, finest
    again = _assigned(other, rows)
    return (other, again) if _fullest(other, again, buckets) <= _BETTER * fullest else (model, finest)


def assigned(model: Model, rows: pa.Table) -> Buckets:
    """Where a model puts rows. `InvalidInput` if it fails, as one of a user's may."""
    try:
        return _assigned(model, rows)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise _failed(model.kind, error) from error


def fitted(layout: Layout, sample: pa.Table, history: Sequence[PastQuery]) -> Model:
    """A model of a layout. `InvalidInput` if it fails, as one of a user's may."""
    try:
        return layout.fit(sample, history)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise _failed(layout.name, error) from error


def _failed(layout: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"layout {layout} failed: {type(error).__name__}: {error}",
        hint="nothing was changed; millpond.testing.layout_contract finds what is wrong with a layout, and "
        "alter_stream(..., layout=...) gives the stream another",
    )


def _assigned(model: Model, rows: pa.Table) -> Buckets:
    found = model.assign(rows)
    if found.shape != (rows.num_rows,) or found.min() < 0 or found.max() >= model.buckets:
        raise ValueError(f"model {model.id} does not give each row one of {model.buckets} buckets")
    return found


def _fullest(model: Model, finest: Buckets, buckets: int) -> int:
    return int(np.bincount(model.levels.coarser(buckets)[finest]).max())


def _ordered(model: Model, rows: pa.Table, assigned: Buckets) -> tuple[Order, list[int], list[int]]:
    """The order of the rows by bucket and inside each, where buckets begin and the last ends, and which they are."""
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
