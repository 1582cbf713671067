"""Value lists of many objects, the other way round: for each distinct value, the objects that have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Up to here the objects of each value are put together one by one.
_FEW = 256


@dataclass(frozen=True, eq=False)
class Inverted:
    """`objects[starts[v]:starts[v + 1]]` are the places of the objects that have value v of `values`."""

    values: pa.Array
    starts: npt.NDArray[np.int64]
    objects: npt.NDArray[np.int32]
    total: int

    @classmethod
    def of(cls, lists: pa.ChunkedArray) -> Inverted:
        """From a list per object, null where it is not known."""
        flat = pc.list_flatten(lists)
        parents: list[npt.NDArray[np.int64]] = []
        before = 0
        for chunk in lists.chunks:
            parents.append(np.asarray(pc.list_parent_indices(chunk)) + before)
            before += len(chunk)
        owners = np.concatenate(parents).astype(np.int32) if parents else np.empty(0, np.int32)
        encoded = (
            flat.combine_chunks().dictionary_encode() if len(flat) else pa.array([], flat.type).dictionary_encode()
        )
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        codes = np.asarray(encoded.indices)
        order = np.argsort(codes, kind="stable")
        starts = np.zeros(len(encoded.dictionary) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)), out=starts[1:])
        return cls(encoded.dictionary, starts, owners[order], len(lists))

    def having(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Of all objects, those that have any of the values where `wanted` is set."""
        found = np.zeros(self.total, dtype=np.bool_)
        hits = np.flatnonzero(wanted)
        if len(hits) <= _FEW:
            for hit in hits.tolist():
                found[self.objects[self.starts[hit] : self.starts[hit + 1]]] = True
        else:
            found[self.objects[np.repeat(wanted, np.diff(self.starts))]] = True
        return found


@dataclass(frozen=True, eq=False)
class Listed:
    """The same as they are, one after the other: quicker than turning them round if they are not asked often. Object i
    has those from `starts[i]` to `starts[i + 1]`."""

    values: pa.Array
    starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lists: pa.ListArray) -> Listed:
        lengths = np.asarray(lists.value_lengths().fill_null(0))
        return cls(lists.flatten(), np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))

    def having(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """As of `Inverted`."""
        found = np.zeros(len(self.starts) - 1, dtype=np.bool_)
        found[np.searchsorted(self.starts, np.flatnonzero(wanted), side="right") - 1] = True
        return found
