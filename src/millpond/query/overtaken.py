"""Records that were handed out although one before them in their streamlet was not.

A position says where each streamlet goes on, so whoever reads on from it is given these again. Within one read they
are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.schema import OFFSET, STREAMLET

Numbers = npt.NDArray[np.int64]


class Overtaken:
    """Of one read. Not thread-safe."""

    def __init__(self) -> None:
        self._offsets: dict[int, Numbers] = {}

    def handed_out(self, batch: pa.RecordBatch, position: Mapping[int, int]) -> None:
        """These were, and the read would go on at `position`."""
        streamlets, offsets = places_of(batch)
        for streamlet in np.unique(streamlets).tolist():
            known = self._offsets.get(streamlet, np.empty(0, np.int64))
            self._offsets[streamlet] = np.concatenate((known, offsets[streamlets == streamlet]))
        for streamlet, known in list(self._offsets.items()):
            beyond = known[known >= position.get(streamlet, 0)]
            if len(beyond):
                self._offsets[streamlet] = beyond
            else:
                del self._offsets[streamlet]

    def without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch that were not handed out yet."""
        if not self._offsets:
            return batch
        streamlets, offsets = places_of(batch)
        fresh = np.ones(len(offsets), np.bool_)
        for streamlet, known in self._offsets.items():
            fresh &= ~((streamlets == streamlet) & np.isin(offsets, known))
        return batch if fresh.all() else batch.filter(pa.array(fresh))


def places_of(batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
    """The streamlets and the offsets of records."""
    return np.asarray(batch.column(STREAMLET)).astype(np.int64), np.asarray(batch.column(OFFSET))
