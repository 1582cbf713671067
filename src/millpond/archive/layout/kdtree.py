"""The k-d tree: space is halved, and halved again, until there are as many buckets as asked for, of equal size.

Each node holds a dimension and a cut: rows whose number there is less go left, all others (greater, null, NaN) right.
Where to cut is decided in `splits.py`. All rows walk down the tree together, a level at a time; a leaf is reached by
walking in place. A coarser bucket is everything below one node of an upper level.

    {"kind": "kdtree", "dimensions": [{"name": "lat", "form": "number"}, ...], "rows": 131072,
     "low": [41.3, -5.1], "high": [51.1, 9.6],
     "split": [0, 1, -1, ...], "cut": [46.2, 2.3, 0.0, ...], "left": [1, 3, 2, ...], "right": [2, 4, 2, ...]}

`split` is the dimension of each node, -1 at a leaf, which is its own left and right; nodes come before their children.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.layout.dimensions import Dimension, Numbers, curve_order, dimension_of, numbers_of
from millpond.archive.layout.layout import BUCKETS_MAX, BucketBox, Buckets, Layout, Levels, Model, Order
from millpond.archive.layout.sample import drawn
from millpond.archive.layout.splits import Split, Workload, best_split, median_split
from millpond.errors import InvalidValue
from millpond.model.past_query import PastQuery

# Rows that walk together: their numbers stay in the processor's cache.
_CHUNK_ROWS = 1 << 15
_ROUND_ROBIN = "round_robin"
_SPLITS = ("queries", _ROUND_ROBIN)


class KdTree(Layout):
    """`KdTree("lat", "lon", buckets=128)`: any number of dimensions of any ordered type. `split`: how dimensions are
    chosen; "queries" by what was asked and how the data lies, "round_robin" in turn, at the median, for comparison."""

    name = "kdtree"

    def __init__(self, *columns: str, buckets: int = 128, split: str = "queries") -> None:
        if split not in _SPLITS:
            raise InvalidValue(f"{self.name}: split={split!r}", hint=f"one of {', '.join(_SPLITS)}")
        super().__init__(*columns, buckets=buckets, **({} if split == _SPLITS[0] else {"split": split}))
        self._in_turn = split == _ROUND_ROBIN

    def fit(self, sample: pa.Table, history: Sequence[PastQuery] = ()) -> KdModel:
        rows = drawn(sample.select(list(self.columns)))
        dimensions = [_dimension(rows, name) for name in self.columns]
        numbers = numbers_of(rows, dimensions)
        workload = Workload.of(self.columns, [] if self._in_turn else history, numbers)
        return _grow(dimensions, numbers, self.buckets, workload, in_turn=self._in_turn)

    @classmethod
    def decode(cls, plain: Mapping[str, Any]) -> KdModel:
        return KdModel(msgspec.convert(plain, _Stored))


class _StoredDimension(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    form: str
    prefix: str = ""


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model as JSON. `low`, `high`: between which most of the sample was, for pictures."""

    kind: str
    dimensions: tuple[_StoredDimension, ...]
    rows: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    split: tuple[int, ...]
    cut: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]


class KdModel(Model):
    """A fitted tree."""

    kind = KdTree.name

    def __init__(self, stored: _Stored) -> None:
        """`ValueError` if it is not a tree."""
        self._stored = stored
        self._dimensions = [Dimension(each.name, each.form, each.prefix) for each in stored.dimensions]
        self._split = np.array(stored.split, np.int64)
        self._cut = np.array(stored.cut, np.float64)
        self._left, self._right = np.array(stored.left, np.int32), np.array(stored.right, np.int32)
        self._check()
        leaves = self._leaves()
        self._bucket = np.zeros(len(self._split), np.int32)
        self._bucket[leaves] = np.arange(len(leaves), dtype=np.int32)
        self._levels = self._find_levels(leaves)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._dimensions)

    @property
    def levels(self) -> Levels:
        return self._levels

    @property
    def rows(self) -> int:
        return self._stored.rows

    @cached_property
    def id(self) -> str:
        return f"{self.kind}-{hashlib.blake2b(self.encode(), digest_size=8).hexdigest()}"

    def encode(self) -> bytes:
        return msgspec.json.encode(self._stored)

    def _assign(self, rows: pa.Table) -> Buckets:
        numbers = numbers_of(rows, self._dimensions)
        found = np.empty(len(numbers), np.int32)
        for start in range(0, len(numbers), _CHUNK_ROWS):
            found[start : start + _CHUNK_ROWS] = self._walk(numbers[start : start + _CHUNK_ROWS])
        return found

    def _walk(self, numbers: Numbers) -> Buckets:
        flat, first = np.ascontiguousarray(numbers).ravel(), np.arange(len(numbers)) * len(self._dimensions)
        at = np.zeros(len(numbers), np.int32)
        for _ in range(len(self._levels.levels) - 1):
            # A leaf has -1 for its dimension: any number will do, both ways lead to itself.
            less = flat[first + np.maximum(self._split[at], 0)] < self._cut[at]
            at = np.where(less, self._left[at], self._right[at])
        buckets: Buckets = self._bucket[at]
        return buckets

    def refitted(self, rows: pa.Table) -> KdModel:
        """Each node cuts the dimension that it did, where the rows that come to it leave its sides their shares."""
        sample = drawn(rows.select(list(self.columns)))
        dimensions = [_dimension(sample, name) for name in self.columns]
        numbers = numbers_of(sample, dimensions)
        cuts = list(self._stored.cut)
        waiting = [(0, numbers)]
        while waiting:
            at, inside = waiting.pop()
            dimension = self._stored.split[at]
            if dimension < 0:
                continue
            left, right = self._stored.left[at], self._stored.right[at]
            found = median_split(inside, int(self._leaves_under[left]), int(self._leaves_under[at]), dimension)
            if found is not None:
                cuts[at] = found.cut
            less = inside[:, dimension] < cuts[at]
            waiting += [(left, inside[less]), (right, inside[~less])]
        low, high = _bounds(numbers)
        named = tuple(_StoredDimension(each.name, each.form, each.prefix) for each in dimensions)
        return KdModel(
            msgspec.structs.replace(
                self._stored, dimensions=named, rows=len(numbers), low=low, high=high, cut=tuple(cuts)
            )
        )

    @cached_property
    def _leaves_under(self) -> npt.NDArray[np.int64]:
        """How many buckets are under each node."""
        found = np.where(self._split < 0, 1, 0)
        for at in range(len(found) - 1, -1, -1):
            if self._split[at] >= 0:
                found[at] = found[self._left[at]] + found[self._right[at]]
        return found

    def order(self, rows: pa.Table) -> Order:
        return curve_order(numbers_of(rows, self._dimensions))

    def boxes(self) -> list[BucketBox]:
        stored, found = self._stored, []
        waiting = [(0, stored.low, stored.high)]
        while waiting:
            at, low, high = waiting.pop()
            split = stored.split[at]
            if split < 0:
                found.append(BucketBox(int(self._bucket[at]), low, high))
                continue
            cut = min(max(stored.cut[at], low[split]), high[split])
            waiting.append((stored.left[at], low, (*high[:split], cut, *high[split + 1 :])))
            waiting.append((stored.right[at], (*low[:split], cut, *low[split + 1 :]), high))
        return sorted(found, key=lambda box: box.bucket)

    def _check(self) -> None:
        size, dimensions, stored = len(self._split), len(self._dimensions), self._stored
        at = np.arange(size)
        leaf = self._split < 0
        own = (self._left == at) & (self._right == at)
        below = (self._left > at) & (self._right > at) & (self._left < size) & (self._right < size)
        children = np.sort(np.concatenate([self._left[~leaf], self._right[~leaf]]))
        if not (
            stored.kind == self.kind
            and 0 < size < 2 * BUCKETS_MAX
            and dimensions == len(stored.low) == len(stored.high) > 0
            and size == len(self._cut) == len(self._left) == len(self._right)
            and bool(np.where(leaf, own, below).all())
            and bool((self._split < dimensions).all())
            and np.array_equal(children, np.arange(1, size))
        ):
            raise ValueError("not a tree")

    def _leaves(self) -> npt.NDArray[np.int64]:
        """From left to right."""
        found, waiting = [], [0]
        while waiting:
            at = waiting.pop()
            if self._split[at] < 0:
                found.append(at)
            else:
                waiting += [int(self._right[at]), int(self._left[at])]
        return np.array(found, np.int64)

    def _find_levels(self, leaves: npt.NDArray[np.int64]) -> Levels:
        found = []
        nodes = [0]
        while True:
            found.append(nodes)
            below = [
                child
                for at in nodes
                for child in ((at,) if self._split[at] < 0 else (int(self._left[at]), int(self._right[at])))
            ]
            if below == nodes:
                break
            nodes = below
        return Levels(tuple(self._level_of(nodes, leaves) for nodes in found))

    def _level_of(self, nodes: list[int], leaves: npt.NDArray[np.int64]) -> Buckets:
        """For each bucket, which of these nodes it is under. Both are from left to right."""
        ends = np.searchsorted(self._last_buckets[nodes], np.arange(len(leaves)))
        return ends.astype(np.int32)

    @cached_property
    def _last_buckets(self) -> npt.NDArray[np.int32]:
        """The last bucket under each node. Children come after their parents, so backwards they are known first."""
        last = self._bucket.copy()
        for at in range(len(last) - 1, -1, -1):
            if self._split[at] >= 0:
                last[at] = last[self._right[at]]
        return last


def _dimension(rows: pa.Table, name: str) -> Dimension:
    dimension = dimension_of(rows.schema.field(name))
    if dimension is None:
        raise InvalidValue(f"{name!r} has type {rows.schema.field(name).type}, which has no order", hint="see docs")
    return dimension.fitted(rows.column(name))


def _grow(dimensions: list[Dimension], numbers: Numbers, buckets: int, workload: Workload, *, in_turn: bool) -> KdModel:
    split: list[int] = []
    cut: list[float] = []
    children: list[list[int]] = []
    bucket_rows = len(numbers) / buckets
    # Nodes to be made: their rows, how many buckets they get, how deep they are, and whose child on which side.
    waiting = [(numbers, buckets, 0, -1, 0)]
    while waiting:
        rows, count, depth, parent, side = waiting.pop(0)
        at = len(split)
        if parent >= 0:
            children[parent][side] = at
        found = _split(rows, count, bucket_rows, workload, depth if in_turn else None)
        split.append(-1 if found is None else found.dimension)
        cut.append(0.0 if found is None else found.cut)
        children.append([at, at])
        if found is not None:
            less = rows[:, found.dimension] < found.cut
            waiting.append((rows[less], found.buckets_left, depth + 1, at, 0))
            waiting.append((rows[~less], count - found.buckets_left, depth + 1, at, 1))
    low, high = _bounds(numbers)
    return KdModel(
        _Stored(
            KdTree.name,
            tuple(_StoredDimension(each.name, each.form, each.prefix) for each in dimensions),
            len(numbers),
            low,
            high,
            tuple(split),
            tuple(cut),
            tuple(left for left, _ in children),
            tuple(right for _, right in children),
        )
    )


def _split(rows: Numbers, buckets: int, bucket_rows: float, workload: Workload, turn: int | None) -> Split | None:
    """`turn`: the depth, for dimensions in turn; None: whichever is best."""
    if buckets < 2 or len(rows) < 2:
        return None
    dimensions = rows.shape[1]
    if turn is None:
        return best_split(rows, buckets, bucket_rows, workload, range(dimensions))
    tries = (median_split(rows, buckets // 2, buckets, (turn + step) % dimensions) for step in range(dimensions))
    return next((found for found in tries if found is not None), None)


def _bounds(numbers: Numbers) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ends = []
    for at in range(numbers.shape[1]):
        finite = numbers[np.isfinite(numbers[:, at]), at]
        ends.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0))
    return tuple(low for low, _ in ends), tuple(high for _, high in ends)
