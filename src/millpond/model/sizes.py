"""How large batches are, found out in few steps.

Arrow's `nbytes` looks at every buffer of every column for what of it is used: longer than it takes to read a record.
What is handed out record by record is measured for every one of them.
"""

from __future__ import annotations

import pyarrow as pa

# A batch whose buffers are no larger, used or not, is not looked at any closer.
SMALL_BYTES = 4_096


def about_bytes(batch: pa.RecordBatch) -> int:
    """A batch's `nbytes`; of a small one, those of its buffers, of which it may be a slice."""
    buffers: int = batch.get_total_buffer_size()
    return buffers if buffers <= SMALL_BYTES else batch.nbytes


def fits(batch: pa.RecordBatch, bytes_max: int) -> bool:
    """Whether a batch has no more than so many bytes: if its buffers have not, it need not be looked at closer."""
    return bool(batch.get_total_buffer_size() <= bytes_max or batch.nbytes <= bytes_max)
