"""What an index kind is: something that knows enough of each object to say of some that no row in them is wanted.

A kind is made for some columns of a stream (`Values("city")`). Of every object that is written it makes an *entry*, a
few values under the names of `fields`; when a query is planned it is shown the entries of all objects that are still in
question and says which of them may hold a wanted row.

The rule that everything rests on (I4): `keep` says False only of an object of which the entry *proves* that no row in
it satisfies the term. It is never asked for more, and whatever goes wrong costs time only: an entry with a missing
value, a kind that raises, an answer of the wrong length all mean that the object is read.
"""

from __future__ import annotations

import abc
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.view import Entries
from millpond.errors import InvalidValue
from millpond.model.predicate import Predicate
from millpond.model.spec import Option, Spec

Mask = npt.NDArray[np.bool_]

# The type of a field whose value is some bytes beside the index, read only when they are asked for (`Entries.blob`).
BLOB = pa.struct(
    [
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("crc32", pa.int64()),
    ]
)


class IndexKind(abc.ABC):
    """Subclass it, and pass an instance to `create_stream`, or name the class as an entry point `millpond.indexes`.

    An instance is made again from its columns and options whenever a stream is opened, also in other processes: what
    `__init__` takes besides columns are options with plain values, handed on to `super().__init__`. It keeps no state
    but that, and is used by many threads at once.
    """

    # What it is called in specs and reports: a word in small letters.
    name: ClassVar[str]
    # When it is asked: 0, a few comparisons of arrays; 1, more work; 2, reads from disk. A later one is asked only of
    # objects that the earlier ones left.
    stage: ClassVar[int] = 1

    def __init__(self, *columns: str, **options: Option) -> None:
        self._spec = Spec(self.name, columns, tuple(options.items()))

    @property
    def spec(self) -> Spec:
        """What it is, as a plain value."""
        return self._spec

    @property
    def columns(self) -> tuple[str, ...]:
        return self._spec.columns

    @property
    def column(self) -> str:
        """The first column; the only one of most kinds."""
        return self._spec.columns[0]

    @property
    def entry_key(self) -> str:
        """What its entries are called in index files. Those that were made under other options have another name, and
        are not known: what a value means may depend on them. A kind whose entries mean the same under all its options
        gives `spec.key`."""
        options = self._spec.options
        return self._spec.key + (f"#{zlib.crc32(repr(options).encode()):08x}" if options else "")

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidValue` if it cannot work on these columns. `schema` is the stream's, and has them."""
        self.fields(schema)

    @abc.abstractmethod
    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The values of an entry, their names and types. A name goes with a meaning: what a newer version of the kind
        means otherwise gets another name, since entries stay as long as their objects do."""

    @abc.abstractmethod
    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        """The entry of an object with these rows (all columns of the stream, at least one row): a value for each of
        `fields`, bytes for a `BLOB`. Called once per object, in a thread or a process of its own. A value that is
        missing or None is not known, and then the object is always read."""

    @abc.abstractmethod
    def keep(self, term: Predicate, entries: Entries) -> Mask | None:
        """Which of these objects may hold a row that satisfies `term`; None: it cannot tell.

        `term` is about this kind's columns only: a leaf (`Compare`, `In`, `StartsWith`, …, or `Not` around one), or an
        `And` or `Or` of such, which is asked first, and taken apart if the answer is None. Literals have the types of
        their columns. Called for every query that mentions the columns: no loops over objects, but in stage 2.
        """

    def __repr__(self) -> str:
        return f"<index {self._spec}>"


def unfit(kind: IndexKind, column: str, found: pa.DataType, hint: str) -> InvalidValue:
    """The error for a column of a type that a kind does not take."""
    return InvalidValue(f"{kind.spec.key}: column {column!r} has type {found}", hint=hint)
