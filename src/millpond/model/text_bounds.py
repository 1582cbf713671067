"""Text and bytes of many objects, compared nearly as quickly as numbers.

The first eight bytes of a value, as a number with the first byte on top, are its *head*. Whatever sorts before another
value has a head that is less or the same, so unequal heads decide; only where they are the same the bytes are compared.
A bound that is not known has the head that decides least: the least of all among lower bounds, the greatest among
upper ones; and where that is the same as another's, Arrow's null decides nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Heads = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_WORD_BYTES = 8
_GREATEST = np.uint64(2**64 - 1)
# By the number of bytes there are: which of the eight belong to the value.
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)

KERNELS = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_DECIDED = {"<": np.less, "<=": np.less, ">": np.greater, ">=": np.greater}


class Texts:
    """The bytes of a string or binary array, in place. What a null has under it is no matter of anyone's."""

    def __init__(self, values: pa.Array) -> None:
        _, offsets, data = values.buffers()
        count = len(values) + 1 if offsets is not None else 0
        self._offsets = np.frombuffer(offsets or b"", np.int32)[values.offset : values.offset + count]
        if data is None or data.size < _WORD_BYTES:
            data = bytes(data or b"").ljust(_WORD_BYTES, b"\0")
        self._last = len(data) - _WORD_BYTES
        # The word at each byte but the last ones, of which there is no whole one. Words overlap: it is indexed only,
        # since `take` would first make a copy in which they do not.
        self._words: Heads = np.ndarray((self._last + 1,), "<u8", data, 0, (1,))

    def heads(self) -> Heads:
        """Of all values."""
        starts = self._offsets[:-1]
        sizes = np.minimum(self._offsets[1:] - starts, _WORD_BYTES)
        found: Heads = self._at(starts, _MASKS[sizes]).byteswap()
        return found

    def equal(self, value: bytes, places: Places) -> Places:
        """Which of the values at `places` are this one: where in `places` they stand."""
        starts = self._offsets.take(places)
        same = np.flatnonzero(self._offsets.take(places + 1) - starts == len(value))
        for at in range(0, len(value), _WORD_BYTES):
            part = value[at : at + _WORD_BYTES]
            words = self._at(starts.take(same) + at, _MASKS[len(part)])
            same = same[words == np.uint64(int.from_bytes(part, "little"))]
        return same

    def _at(self, starts: npt.NDArray[np.int32], masks: Any) -> Heads:
        """The words that begin there, of which `masks` are wanted."""
        if len(starts) and int(starts.max()) > self._last:
            within = np.minimum(starts, self._last)
            beyond = (starts - within).astype(np.uint64) * np.uint64(8)
            words: Heads = self._words[within] >> np.minimum(beyond, np.uint64(63))
        else:
            words = self._words[starts]
        words &= masks
        return words


class TextBounds:
    """The lower, or the upper, bounds of many objects; or of some of them. Immutable."""

    def __init__(self, texts: pa.Array, heads: Heads, places: Places | None = None) -> None:
        """`texts`: binary, of all objects; `heads`: of those at `places`."""
        self._texts, self._heads, self._places = texts, heads, places

    @classmethod
    def of(cls, texts: pa.Array, *, lowest: bool) -> TextBounds:
        heads = Texts(texts).heads() if len(texts) else np.empty(0, np.uint64)
        if texts.null_count:
            heads[np.asarray(texts.is_null())] = np.uint64(0) if lowest else _GREATEST
        return cls(texts, heads)

    def __len__(self) -> int:
        return len(self._heads)

    @property
    def type(self) -> pa.DataType:
        return self._texts.type

    @cached_property
    def texts(self) -> pa.Array:
        """The bytes, null where they are not known."""
        return self._texts if self._places is None else self._texts.take(pa.array(self._places))

    def take(self, places: Places) -> TextBounds:
        """Those of some of these objects."""
        among_all = places if self._places is None else self._places.take(places)
        return TextBounds(self._texts, self._heads.take(places), among_all)

    def certainly(self, op: str, value: bytes) -> Mask:
        """Where the comparison holds, whatever is not known."""
        head = np.uint64(int.from_bytes(value[:_WORD_BYTES].ljust(_WORD_BYTES, b"\0"), "big"))
        decided = _DECIDED.get(op)
        found: Mask = np.zeros(len(self), dtype=np.bool_) if decided is None else decided(self._heads, head)
        alike = np.flatnonzero(self._heads == head)
        if len(alike):
            found[alike] = as_mask(KERNELS[op](self.take(alike).texts, pa.scalar(value, self.type)))
        return found


def as_mask(answer: pa.BooleanArray) -> Mask:
    """An answer of Arrow's, false where it is not known."""
    known = answer.fill_null(False) if answer.null_count else answer
    mask: Mask = known.to_numpy(zero_copy_only=False)
    return mask
