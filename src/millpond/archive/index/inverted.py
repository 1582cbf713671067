"""Value lists of many objects: as they are, and the other way round, for each distinct value the objects that have it.

Turning millions of values round takes a second or two, more than any query should. So the lists are in parts, and every
question that is asked of all of them turns one more part round: each waits for a part only, and after some questions
all are answered from the distinct values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.gather import by_chunk, ends_of, items_of
from millpond.model.text_bounds import Texts

# Up to here the objects of each value are put together one by one.
_FEW = 256
# Values in a part: turned round in some hundredths of a second.
PART_VALUES = 1 << 18


@dataclass(frozen=True, eq=False)
class Inverted:
    """`objects[starts[v]:starts[v + 1]]` are the places of the objects that have value v of `values`."""

    values: pa.Array
    starts: npt.NDArray[np.int64]
    objects: npt.NDArray[np.int32]
    total: int

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
    starts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, lists: pa.ListArray) -> Listed:
        """What lies under a list that is null is of no object, and told of that one, of which nothing is known."""
        starts = np.asarray(lists.offsets)
        first = int(starts[0]) if len(starts) else 0
        return cls(lists.values.slice(first, int(starts[-1]) - first if len(starts) else 0), starts - starts[:1])

    def having(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """As of `Inverted`."""
        found = np.zeros(len(self.starts) - 1, dtype=np.bool_)
        found[np.searchsorted(self.starts, np.flatnonzero(wanted), side="right") - 1] = True
        return found

    def turned(self) -> Inverted:
        encoded = self.values.dictionary_encode()
        codes = np.asarray(encoded.indices)
        owners = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        starts = np.zeros(len(encoded.dictionary) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)), out=starts[1:])
        return Inverted(encoded.dictionary, starts, owners[np.argsort(codes, kind="stable")], len(self.starts) - 1)


class ListedTexts:
    """Lists of text of all objects, for looking at those of a few."""

    def __init__(self, lists: pa.ChunkedArray) -> None:
        self._ends = ends_of(lists)
        self._chunks = [(np.asarray(chunk.offsets), Texts(chunk.values)) for chunk in lists.chunks]

    def having(self, wanted: Sequence[str], selected: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of the objects at these places, those that have any of the values."""
        found = np.zeros(len(selected), dtype=np.bool_)
        for number, which, within in by_chunk(self._ends, selected):
            starts, texts = self._chunks[number]
            owners, items = items_of(starts, within)
            for text in wanted:
                found[which][owners[texts.equal(text.encode(), items)]] = True
        return found


class Lists:
    """The lists of all objects, in parts. Thread-safe: two threads may turn the same part round, to the same end."""

    def __init__(self, lists: pa.ChunkedArray) -> None:
        self.parts: list[Inverted | Listed] = [
            Listed.of(piece) for chunk in lists.chunks for piece in _pieces(chunk) if len(piece)
        ]
        self._asked = False

    @property
    def turned(self) -> bool:
        """Whether all parts are."""
        return all(isinstance(part, Inverted) for part in self.parts)

    def turn_one(self) -> None:
        """Turn a part round; not when it is called for the first time: many processes ask once."""
        if self._asked:
            for at, part in enumerate(self.parts):
                if isinstance(part, Listed):
                    self.parts[at] = part.turned()
                    break
        self._asked = True


def _pieces(lists: pa.ListArray) -> list[pa.ListArray]:
    """One after the other, of no more values each than a part has, or of one list."""
    starts = np.asarray(lists.offsets)
    pieces, begin = [], 0
    while begin < len(lists):
        end = int(np.searchsorted(starts, int(starts[begin]) + PART_VALUES, side="right")) - 1
        end = min(max(end, begin + 1), len(lists))
        pieces.append(lists.slice(begin, end - begin))
        begin = end
    return pieces
