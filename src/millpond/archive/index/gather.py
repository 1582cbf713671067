"""Getting at some objects among all: which chunk of a column has them, and where the items of their lists are.

Places are in ascending order. Arrow's own `take` puts the chunks of a column together first, all of them: for some
objects of a hundred thousand that costs a hundred times as much as everything else that is decided about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]


def ends_of(column: pa.ChunkedArray) -> list[int]:
    """Where each chunk ends."""
    return list(accumulate(map(len, column.chunks)))


def by_chunk(ends: Sequence[int], places: Indices) -> Iterator[tuple[int, slice, Indices]]:
    """The chunks that have any of these places: which of `places` those are, and where they are in the chunk."""
    first = begin = 0
    for number, end in enumerate(ends):
        last = first + int(np.searchsorted(places[first:], end)) if number + 1 < len(ends) else len(places)
        if last > first:
            yield number, slice(first, last), places[first:last] - begin if begin else places[first:last]
        first, begin = last, end


def take(column: pa.ChunkedArray, places: Indices) -> pa.ChunkedArray:
    """The values at these places."""
    found = by_chunk(ends_of(column), places)
    taken = [column.chunk(at).take(pa.array(within)) for at, _, within in found]
    return pa.chunked_array(taken or [pa.array([], column.type)])


def items_of(starts: npt.NDArray[np.integer], places: Indices) -> tuple[Indices, Indices]:
    """Object i has the items from `starts[i]` to `starts[i + 1]`. The items of the objects at `places`, one after the
    other, and whose each is: where in `places` its object stands."""
    first = starts.take(places)
    counts = starts.take(places + 1) - first
    owners = np.repeat(np.arange(len(places)), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) + (first - before).take(owners)
