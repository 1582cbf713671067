"""A sample of rows that come one batch after the other, when nobody knows how many there will be.

Every row has the same chance to be in it: once too many are held, half of them go, and of what follows only half as
many are taken. The same rows always give the same sample.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class Thinning:
    """For one thread."""

    def __init__(self, schema: pa.Schema, most: int) -> None:
        self._rng = np.random.default_rng(most)
        self._most = most
        self._share = 1.0
        self._held: list[pa.Table] = [schema.empty_table()]

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the sample's columns, and maybe more."""
        names = self._held[0].schema.names
        self._held.append(self._some(pa.Table.from_batches([rows]).select(names), self._share))
        while sum(held.num_rows for held in self._held) > self._most:
            self._share /= 2
            self._held = [self._some(held, 0.5) for held in self._held]

    def sample(self) -> pa.Table:
        """What is held."""
        return pa.concat_tables(self._held).combine_chunks()

    def _some(self, rows: pa.Table, share: float) -> pa.Table:
        if share == 1:
            return rows
        chosen = np.flatnonzero(self._rng.random(rows.num_rows) < share)
        return rows.take(pa.array(chosen))
