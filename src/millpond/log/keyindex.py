"""The key index of a sealed segment: where a key's value may be found, by hash.

Two shapes of one thing, whichever is smaller: the distinct hashes in order with, for each, where its rows begin in
`rows`. Hashes collide: whoever looks up compares the values as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.model.hashing import Hashes

Rows = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Sorted hashes of one key column. `starts` is None where hashes are (nearly) all distinct: then one per row."""

    hashes: Hashes
    rows: Rows
    starts: Rows | None

    @classmethod
    def build(cls, hashes: Hashes) -> KeyIndex:
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        ordered = hashes[order]
        changes = np.empty(len(ordered), np.bool_)
        if len(ordered):
            changes[0] = True
            np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
        starts = np.flatnonzero(changes)
        if len(starts) * 2 > len(ordered):
            return cls(ordered, order, None)
        return cls(ordered[starts], order, np.append(starts, len(ordered)).astype(np.uint32))

    def find(self, wanted: int) -> Rows:
        """The rows whose hash is `wanted`, in order."""
        # A Python int would send searchsorted through float64: slow, and wrong beyond 53 bits.
        key = np.uint64(wanted)
        low = int(np.searchsorted(self.hashes, key, "left"))
        high = int(np.searchsorted(self.hashes, key, "right"))
        if self.starts is None:
            return self.rows[low:high]
        return self.rows[int(self.starts[low]) : int(self.starts[high])] if low < high else self.rows[:0]

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.rows.nbytes + (self.starts.nbytes if self.starts is not None else 0)
