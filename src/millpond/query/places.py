"""Records by their place (streamlet and offset): a term that both halves can push down, and the exact cut of a batch.

A term with a range per streamlet would cost every row as many comparisons as there are streamlets, of which there may
be a thousand. So the term is one hull over all ranges, and what it lets through too much is cut off here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.offsets import OffsetRange
from millpond.model.predicate import And, Compare, In, Predicate
from millpond.model.schema import OFFSET, STREAMLET


def hull_of(ranges: Mapping[int, OffsetRange]) -> OffsetRange:
    """From the least start to the greatest stop of ranges (at least one)."""
    return OffsetRange(min(r.start for r in ranges.values()), max(r.stop for r in ranges.values()))


def near(ranges: Mapping[int, OffsetRange]) -> Predicate:
    """True for every record in the ranges (at least one), and for others of the same streamlets between them."""
    hull = hull_of(ranges)
    return And(
        (
            In(STREAMLET, tuple(sorted(ranges))),
            Compare(">=", OFFSET, hull.start),
            Compare("<", OFFSET, hull.stop),
        )
    )


def at_or_above(batch: pa.RecordBatch, marks: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    """Which rows lie at or above their streamlet's mark. No mark means 0."""
    streamlets, offsets = (batch.column(name).to_numpy() for name in (STREAMLET, OFFSET))
    least = np.zeros(max([*marks, int(streamlets.max(initial=0))]) + 1, np.int64)
    least[list(marks)] = list(marks.values())
    above: npt.NDArray[np.bool_] = offsets >= least[streamlets]
    return above


def inside(batch: pa.RecordBatch, ranges: Mapping[int, OffsetRange]) -> pa.RecordBatch:
    """The rows of a batch of what is `near` that lie in the ranges."""
    if len(ranges) == 1:
        return batch
    chosen = at_or_above(batch, {s: r.start for s, r in ranges.items()})
    chosen &= ~at_or_above(batch, {s: r.stop for s, r in ranges.items()})
    return batch if chosen.all() else batch.filter(pa.array(chosen))
