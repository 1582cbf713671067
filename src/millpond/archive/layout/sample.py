"""Samples: few rows that stand for many.

Drawn by chance, always the same for the same number of rows: every so-manieth row would see only some of the meters
that report in turn.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

# A tree of a thousand buckets still has a hundred rows in each; more only takes longer.
SAMPLE_ROWS = 1 << 17


def drawn(rows: pa.Table, most: int = SAMPLE_ROWS) -> pa.Table:
    """At most so many of the rows, in their order."""
    if rows.num_rows <= most:
        return rows
    chosen = np.random.default_rng(rows.num_rows).choice(rows.num_rows, most, replace=False)
    return rows.combine_chunks().take(pa.array(np.sort(chosen)))
