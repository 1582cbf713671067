"""What a layout is: a way to group rows into buckets, so that rows which are asked for together lie together.

A `Layout` is what a user names: columns, a number of buckets, options. It is fitted to a sample and, if there are any,
to past queries; the result is a `Model`, which says of every row in which bucket it belongs. Each bucket of a block
becomes an object of its own.

Obligations of a model, held by `millpond.testing.layout_contract`:

- every row belongs to exactly one bucket, whatever it holds: null, NaN and infinities are values like others;
- it is stateless: the same row goes to the same bucket, in any process, whatever rows are beside it;
- it is small, and `encode` says all of it: what is decoded assigns alike and has the same id;
- with fewer buckets it uses its upper levels: a coarser bucket is the union of finer ones.

A model never decides what a query reads. Objects are skipped by what is known of the rows that they do hold, so a
model that is stale, lost or bad costs time and never a row (I4).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.layout.dimensions import dimension_of
from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.past_query import PastQuery
from millpond.model.spec import Option, Spec

Buckets = npt.NDArray[np.int32]
Order = npt.NDArray[np.int64]

# A model of so many is less than a megabyte, which every task of a job is sent.
BUCKETS_MAX = 16_384


@dataclass(frozen=True, slots=True)
class BucketBox:
    """Where a bucket lies, as a picture shows it: per column of the model the least and the greatest number."""

    bucket: int
    lows: tuple[float, ...]
    highs: tuple[float, ...]


class Model(abc.ABC):
    """A layout fitted to data. Immutable and thread-safe."""

    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at; rows must have them."""

    @property
    @abc.abstractmethod
    def levels(self) -> Levels:
        """How its buckets join into fewer."""

    @property
    def buckets(self) -> int:
        """How many there are at most; some may stay empty."""
        return self.levels.buckets

    @property
    @abc.abstractmethod
    def id(self) -> str:
        """Names it in index entries; equal models have equal ids."""

    @property
    def rows(self) -> int:
        """From how many rows it was fitted; 0 if it does not depend on any."""
        return 0

    def assign(self, rows: pa.Table, buckets: int | None = None) -> Buckets:
        """The bucket of each row, from 0; with at most so many `buckets` if that is given."""
        finest = self._assign(rows)
        return finest if buckets is None else self.levels.coarser(buckets)[finest]

    @abc.abstractmethod
    def _assign(self, rows: pa.Table) -> Buckets:
        """The bucket of each row, of all buckets."""

    def refitted(self, rows: pa.Table) -> Model | None:
        """A model of the same kind that suits these rows, of which this one would put most into few buckets: the time
        has gone on, say, and all of them are later than all that it knows. None: there is no such thing."""
        return None

    @abc.abstractmethod
    def order(self, rows: pa.Table) -> Order:
        """The order in which the rows of one object are stored, so that parts of it can be skipped, too."""

    @abc.abstractmethod
    def boxes(self) -> list[BucketBox]:
        """Where buckets lie, for pictures; empty if that cannot be drawn."""

    @abc.abstractmethod
    def encode(self) -> bytes:
        """As JSON, an object whose `kind` is that of its layout."""


class Layout(abc.ABC):
    """What users ask for: `KdTree("lat", "lon", buckets=128)`. Immutable."""

    name: ClassVar[str]

    def __init__(self, *columns: str, buckets: int, **options: Option) -> None:
        if isinstance(buckets, bool) or not isinstance(buckets, int) or not 1 <= buckets <= BUCKETS_MAX:
            raise InvalidValue(f"{self.name}: {buckets!r} buckets", hint=f"1 to {BUCKETS_MAX:,}, e.g. buckets=128")
        self._spec = Spec(self.name, columns, (("buckets", buckets), *options.items()))

    @property
    def spec(self) -> Spec:
        """This layout as it is stored with a stream."""
        return self._spec

    @property
    def columns(self) -> tuple[str, ...]:
        return self._spec.columns

    @property
    def buckets(self) -> int:
        return int(self._spec.option("buckets"))

    def check(self, schema: pa.Schema) -> None:
        """`InvalidSchema` unless rows of this schema can be laid out."""
        for column in self.columns:
            if schema.get_field_index(column) < 0:
                raise InvalidSchema(
                    f"layout {self._spec}: {column!r} is not a column", hint=f"columns: {', '.join(schema.names)}"
                )
            kind = schema.field(column).type
            if dimension_of(schema.field(column)) is None:
                raise InvalidSchema(
                    f"layout {self._spec}: {column!r} has type {kind}, which has no order",
                    hint="numbers, text, dates, timestamps and booleans can be dimensions",
                )

    @abc.abstractmethod
    def fit(self, sample: pa.Table, history: Sequence[PastQuery] = ()) -> Model:
        """The model for rows like these and queries like those; the same for the same input."""

    @classmethod
    @abc.abstractmethod
    def decode(cls, plain: Mapping[str, Any]) -> Model:
        """The model whose `encode` gave this JSON; `ValueError`, `KeyError` or `TypeError` if it is none."""

    def __repr__(self) -> str:
        parts = [repr(column) for column in self.columns]
        parts += [f"{name}={value!r}" for name, value in self._spec.options]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and other.spec == self.spec

    def __hash__(self) -> int:
        return hash(self._spec)


@dataclass(frozen=True, eq=False)
class Levels:
    """How buckets join, level by level: `levels[d]` says for each bucket to which of that level it belongs. The first
    level has one bucket, the last has them all, and each is a refinement of the one before."""

    levels: tuple[Buckets, ...]

    @classmethod
    def halving(cls, buckets: int) -> Levels:
        """Buckets in a row, halved and halved again."""
        found = [np.zeros(buckets, np.int32)]
        spans = [(0, buckets)]
        while len(spans) < buckets:
            spans = [part for low, high in spans for part in _halves(low, high)]
            found.append(np.repeat(np.arange(len(spans), dtype=np.int32), [high - low for low, high in spans]))
        return cls(tuple(found))

    @property
    def buckets(self) -> int:
        return len(self.levels[-1])

    def count(self, level: int) -> int:
        return int(self.levels[level][-1]) + 1

    def at_most(self, buckets: int) -> int:
        """How many buckets the finest level has that has no more than this."""
        return self.count(self._level(buckets))

    def coarser(self, buckets: int) -> Buckets:
        """That level."""
        return self.levels[self._level(buckets)]

    def _level(self, buckets: int) -> int:
        return max(level for level in range(len(self.levels)) if level == 0 or self.count(level) <= buckets)


def _halves(low: int, high: int) -> list[tuple[int, int]]:
    if high - low < 2:
        return [(low, high)]
    middle = (low + high) // 2
    return [(low, middle), (middle, high)]
