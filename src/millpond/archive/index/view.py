"""What a kind is shown when a query is planned: the entries of the objects that are in question, in columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

T = TypeVar("T")
Indices = npt.NDArray[np.int64]


class Blobs(Protocol):
    """Where the bytes of `BLOB` fields are."""

    def read(self, places: Sequence[Mapping[str, Any] | None]) -> list[bytes | None]:
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
    def all(self) -> Entries:
        """The entries of all objects."""
        return Entries(self._columns, self._total, None, self._blobs, self._kept)

    def select(self, selected: Indices) -> Entries:
        """Those of the objects at these places among all."""
        return Entries(self._columns, self._total, selected, self._blobs, self._kept)

    def column(self, field: str) -> pa.ChunkedArray:
        """A value of each entry, null where it is not known."""
        column = self._columns[field]
        return column if self._selected is None else column.take(pa.array(self._selected))

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
        column = self._columns[field]
        if self._selected is None:
            found = column.slice(start, stop - start)
        else:
            found = column.take(pa.array(self._selected[start:stop]))
        places = found.to_pylist()
        return [None] * len(places) if self._blobs is None else self._blobs.read(places)

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
