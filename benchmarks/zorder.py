"""Delta's own way to lay rows out: `optimize.z_order`, read with the minima and maxima in its log."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.figures import talk
from millpond.gridpocket import SCHEMA, Readings

COLUMNS = ["latitude", "longitude"]
_TRIES = 4
# So much more or fewer files than objects are about equal.
_ABOUT = 0.15


class ZOrdered:
    """The readings in a Delta table along a Z-order curve, in about so many files of equal size."""

    def __init__(self, path: str, readings: Readings, objects: int) -> None:
        write_deltalake(path, pa.RecordBatchReader.from_batches(SCHEMA, readings.batches()))
        self._table = DeltaTable(path)
        # How large sorted rows are is known once they are sorted: what came of the first target tells the next one.
        target = self.bytes_total // objects
        for _ in range(_TRIES):
            self._table.optimize.z_order(COLUMNS, target_size=target)
            talk(f"z-order: {len(self.sizes)} files for a target of {target:,} bytes; {objects} are wanted")
            if abs(len(self.sizes) - objects) <= _ABOUT * objects:
                return
            target = target * len(self.sizes) // objects
        raise AssertionError(f"z-order made {len(self.sizes)} files, and {objects} are wanted")

    @property
    def _files(self) -> pa.Table:
        return pa.table(self._table.get_add_actions(flatten=True))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._files.column("size_bytes").to_numpy()
        return found

    @property
    def bytes_total(self) -> int:
        return int(self.sizes.sum())

    @property
    def rows(self) -> int:
        return int(self._files.column("num_records").to_numpy().sum())

    def bounds(self, which: str) -> npt.NDArray[np.float64]:
        """The `min` or `max` of latitude and longitude of each file."""
        files = self._files
        return np.stack([files.column(f"{which}.{name}").to_numpy() for name in COLUMNS], axis=1)
