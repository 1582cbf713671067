"""A packet: records of many small appends that travel to a stream together, under one number.

Single records are held encoded, a few bytes each and nobody else's to change, and become Arrow when the packet is
sealed. A packet is sent again unchanged, so that its number always means the same records.
"""

from __future__ import annotations

from concurrent.futures import Future
from itertools import groupby

import pyarrow as pa

from millpond.ingest.prepare import Ingest
from millpond.log.engine import Ack


class Packet:
    """Not thread-safe: the producer holds its lock while it fills one, and one thread seals and sends it."""

    def __init__(self, ingest: Ingest, opened_seconds: float) -> None:
        self.ingest, self.opened_seconds = ingest, opened_seconds
        self.future: Future[Ack] = Future()
        # It belongs to all records of the batch, and they are on their way: nobody can call it off.
        self.future.set_running_or_notify_cancel()
        self.rows = 0
        self.bytes = 0
        self.sequence = -1
        self.sends = 0
        self.sent_seconds = 0.0
        self.done = False
        self._waiting: list[bytes | pa.RecordBatch] = []
        self._batch: pa.RecordBatch | None = None

    def add(self, records: list[bytes] | pa.RecordBatch, rows: int, size: int) -> None:
        """Take records in, as `Ingest.compact` gave them."""
        if isinstance(records, list):
            self._waiting += records
        else:
            self._waiting.append(records)
        self.rows += rows
        self.bytes += size

    @property
    def batch(self) -> pa.RecordBatch:
        """All of it, in the order in which it was added."""
        if self._batch is None:
            batches: list[pa.RecordBatch] = []
            for encoded, run in groupby(self._waiting, lambda each: isinstance(each, bytes)):
                alike = list(run)
                batches += [self.ingest.unpack(alike)] if encoded else alike
            self._batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            self._waiting.clear()
        return self._batch
