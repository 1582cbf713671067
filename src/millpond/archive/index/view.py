"""What a kind is shown when a query is planned: the entries of the objects that are in question, in columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.gather import Indices, take

T = TypeVar("T")


class Place(NamedTuple):
    """Where a blob is. Without a file: it is not known."""

    file: str | None
    position: int
    bytes: int
    crc32: int


class Blobs(Protocol):
    """Where the bytes of `BLOB` fields are."""

    def read(self, places: Sequence[Place]) -> list[bytes | None]:
        """The bytes at each place; None if they are not there, or not what was written."""
        ...


class Entries:
    """The entries of one index. Thread-safe: nothing changes but what is kept by `cached`.

    `selected` are the objects in question, as places among all of them. `column` and `blob` know only these; what is
    derived from the entries of all objects is made once with `cached`, and then indexed with `selected`."""

    def __init__(
        self,
        columns: Mapping[str, pa.ChunkedArray],
        total: int,
        selected: Indices | None = None,
        blobs: Blobs | None = None,
        kept: dict[Hashable, Any] | None = None,
    ) -> None:
        self._columns, self._total, self._blobs = columns, total, blobs
        self._selected = selected
        self._kept: dict[Hashable, Any] = {} if kept is None else kept

    def __len__(self) -> int:
        return self._total if self._selected is None else len(self._selected)

    @property
    def selected(self) -> Indices:
        """The places of these objects among all."""
        return np.arange(self._total, dtype=np.int64) if self._selected is None else self._selected

    @property
    def size(self) -> int:
        """The bytes that all entries take in memory."""
        return self.cached("millpond.size", lambda entries: sum(int(one.nbytes) for one in entries._columns.values()))

    @property
    def all(self) -> Entries:
        """The entries of all objects."""
        return Entries(self._columns, self._total, None, self._blobs, self._kept)

    def select(self, selected: Indices) -> Entries:
        """Those of the objects at these places among all, in ascending order."""
        return Entries(self._columns, self._total, selected, self._blobs, self._kept)

    def column(self, field: str) -> pa.ChunkedArray:
        """A value of each entry, null where it is not known."""
        column = self._columns[field]
        return column if self._selected is None else take(column, self._selected)

    def cached(self, key: Hashable, make: Callable[[Entries], T]) -> T:
        """What `make` derives from the entries of all objects, made when it is first asked for and kept as long as the
        objects are the same. Two threads may make it twice."""
        if key not in self._kept:
            self._kept[key] = make(self.all)
        found: T = self._kept[key]
        return found

    def blob(self, field: str, at: int) -> bytes | None:
        """The bytes of a `BLOB` field of one of these objects; None if they are not known."""
        return self.blobs(field, at, at + 1)[0]

    def blobs(self, field: str, start: int, stop: int) -> list[bytes | None]:
        """The same of several of these objects, which is quicker."""
        if self._blobs is None:
            return [None] * (stop - start)
        names, *numbers = self.cached(("millpond.places", field), lambda entries: _places(entries.column(field)))
        at = self.selected[start:stop]
        files, *where = (column[at].tolist() for column in numbers)
        return self._blobs.read(list(map(Place, map(names.__getitem__, files), *where)))

    def known(self) -> npt.NDArray[np.bool_]:
        """Of which of these objects every value is there."""
        whole = self.cached("millpond.known", lambda entries: entries._all_known())
        return whole if self._selected is None else whole[self._selected]

    def _all_known(self) -> npt.NDArray[np.bool_]:
        known = np.ones(self._total, dtype=np.bool_)
        for column in self._columns.values():
            if column.null_count:
                known &= np.asarray(column.is_valid())
        return known


def _places(column: pa.ChunkedArray) -> tuple[list[str | None], Indices, Indices, Indices, Indices]:
    """The names of all files, and the parts of all places: which name, and the numbers; -1 where they are not known.
    The last name is that of no file."""
    whole = column.combine_chunks()
    parts = dict(zip([field.name for field in whole.type], whole.flatten(), strict=True))
    files = parts["file"].dictionary_encode()
    numbers = (files.indices, parts["position"], parts["bytes"], parts["crc32"])
    file, position, size, crc32 = (np.asarray(part.fill_null(-1)) for part in numbers)
    return [*files.dictionary.to_pylist(), None], file, position, size, crc32
