"""The key index of a sealed segment: where a key's value may be found, by hash.

One sorted array of 64-bit entries: the upper bits of a row's hash, then the row. Sorting plain numbers is six times as
quick as sorting rows by their hashes, and takes no second array. The bits that the row displaces are missing from the
hash, and hashes collide anyway: whoever looks up compares the values as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.model.hashing import Hashes

Rows = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """`row_bits`: how many of the lower bits of an entry are the row."""

    entries: Hashes
    row_bits: int

    @classmethod
    def build(cls, hashes: Hashes) -> KeyIndex:
        """From the hashes of all rows, in order."""
        row_bits = len(hashes).bit_length()
        entries = hashes >> np.uint64(row_bits)
        entries <<= np.uint64(row_bits)
        entries |= np.arange(len(hashes), dtype=np.uint64)
        entries.sort()
        return cls(entries, row_bits)

    def find(self, wanted: int) -> Rows:
        """The rows that may have the hash `wanted`, in order: all that have it are among them."""
        last = (1 << self.row_bits) - 1
        # A Python int would send searchsorted through float64: slow, and wrong beyond 53 bits.
        low = np.searchsorted(self.entries, np.uint64(wanted & ~last), "left")
        high = np.searchsorted(self.entries, np.uint64(wanted | last), "right")
        return (self.entries[low:high] & np.uint64(last)).astype(np.uint32)

    @property
    def nbytes(self) -> int:
        return self.entries.nbytes
