"""The grid: space is cut into cells of equal size, and each cell belongs to the bucket that its hash says.

A cell is `10 ** -precision` long along each dimension; with precision 1 and degrees that is about eleven kilometres.
There are many more cells than buckets, from dense and sparse places, so buckets come out about equally large without
knowing the data. An object then holds cells from all over, and one box cannot describe it: index such a stream with
`Boxes`, one box per cell. Null, NaN and infinities have cells of their own.

    {"kind": "grid", "columns": ["lat", "lon"], "precision": 1, "buckets": 128, "low": [41, -6], "high": [52, 10]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.layout.dimensions import Dimension, curve_order, dimension_of, numbers_of
from millpond.archive.layout.layout import BUCKETS_MAX, BucketBox, Buckets, Layout, Levels, Model, Order
from millpond.archive.layout.sample import drawn
from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.past_query import PastQuery

Cells = npt.NDArray[np.int64]

PRECISION_MIN, PRECISION_MAX = -9, 9
# Cells beyond this are one: no coordinate is out there.
_CELL_MAX = 2**52
# More would be a grey picture.
_BOXES_MAX = 20_000
# From the splitmix64 generator: every bit of the input moves every bit of the output.
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Grid(Layout):
    """`Grid("lat", "lon", precision=1, buckets=32)`: cells of 0.1 along each of some columns of numbers."""

    name = "grid"

    def __init__(self, *columns: str, precision: int = 1, buckets: int = 32) -> None:
        whole = isinstance(precision, int) and not isinstance(precision, bool)
        if not whole or not PRECISION_MIN <= precision <= PRECISION_MAX:
            raise InvalidValue(
                f"{self.name}: precision {precision!r}",
                hint=f"digits after the point, {PRECISION_MIN} to {PRECISION_MAX}: 1 makes cells of 0.1",
            )
        super().__init__(*columns, buckets=buckets, precision=precision)

    @property
    def precision(self) -> int:
        return int(self.spec.option("precision"))

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        for column in self.columns:
            dimension = dimension_of(schema.field(column))
            if dimension is None or dimension.form != "number":
                raise InvalidSchema(
                    f"layout {self.spec}: {column!r} has type {schema.field(column).type}, which has no digits",
                    hint="a grid is over numbers; a k-d tree takes any ordered type",
                )

    def fit(self, sample: pa.Table, history: Sequence[PastQuery] = ()) -> GridModel:
        """The sample only tells where pictures are to be drawn."""
        rows = drawn(sample.select(list(self.columns)))
        numbers = numbers_of(rows, [Dimension(name, "number") for name in self.columns])
        ends = []
        for at in range(len(self.columns)):
            finite = numbers[np.isfinite(numbers[:, at]), at]
            ends.append((float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0))
        low, high = tuple(low for low, _ in ends), tuple(high for _, high in ends)
        return GridModel(_Stored(self.name, self.columns, self.precision, self.buckets, low, high))

    @classmethod
    def decode(cls, plain: Mapping[str, Any]) -> GridModel:
        return GridModel(msgspec.convert(plain, _Stored))


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    columns: tuple[str, ...]
    precision: int
    buckets: int
    low: tuple[float, ...]
    high: tuple[float, ...]


class GridModel(Model):
    """A grid with its buckets."""

    kind = Grid.name

    def __init__(self, stored: _Stored) -> None:
        """`ValueError` if it is none."""
        if not (
            stored.kind == self.kind
            and 1 <= stored.buckets <= BUCKETS_MAX
            and PRECISION_MIN <= stored.precision <= PRECISION_MAX
            and len(stored.columns) == len(stored.low) == len(stored.high) > 0
        ):
            raise ValueError("not a grid")
        self._stored = stored
        self._dimensions = [Dimension(name, "number") for name in stored.columns]
        self._levels = Levels.halving(stored.buckets)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._stored.columns

    @property
    def levels(self) -> Levels:
        return self._levels

    @cached_property
    def id(self) -> str:
        """Of what assigns: where pictures are drawn makes no other model."""
        plain = msgspec.structs.replace(self._stored, low=(), high=())
        return f"{self.kind}-{hashlib.blake2b(msgspec.json.encode(plain), digest_size=8).hexdigest()}"

    def encode(self) -> bytes:
        return msgspec.json.encode(self._stored)

    def _assign(self, rows: pa.Table) -> Buckets:
        return self._buckets_of(self._cells(numbers_of(rows, self._dimensions)))

    def _cells(self, numbers: npt.NDArray[np.float64]) -> Cells:
        with np.errstate(over="ignore"):
            scaled = np.floor(numbers * 10.0**self._stored.precision)
        cells: Cells = np.clip(scaled, -_CELL_MAX, _CELL_MAX).astype(np.int64)
        return cells

    def _buckets_of(self, cells: Cells) -> Buckets:
        mixed = np.zeros(len(cells), np.uint64)
        for at in range(cells.shape[1]):
            mixed += cells[:, at].view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in _MIX:
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
        found: Buckets = (mixed % np.uint64(self._stored.buckets)).astype(np.int32)
        return found

    def order(self, rows: pa.Table) -> Order:
        """Cell by cell as far as the curve goes that way, and along it inside a cell."""
        return curve_order(numbers_of(rows, self._dimensions))

    def boxes(self) -> list[BucketBox]:
        """One per cell of where the sample was."""
        ends = self._cells(np.array([self._stored.low, self._stored.high]))
        ranges = [range(int(low), int(high) + 1) for low, high in ends.T]
        if np.prod([float(len(one)) for one in ranges]) > _BOXES_MAX:
            return []
        cells = np.array(list(islice(product(*ranges), _BOXES_MAX)), np.int64).reshape(-1, len(ranges))
        size = 10.0**-self._stored.precision
        return [
            BucketBox(bucket, tuple(at * size for at in cell), tuple((at + 1) * size for at in cell))
            for bucket, cell in zip(self._buckets_of(cells).tolist(), cells.tolist(), strict=True)
        ]
