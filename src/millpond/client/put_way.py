"""A producer's way to a served stream: one pipelined Flight put."""

from __future__ import annotations

import pyarrow as pa

from millpond.flight.put import Put
from millpond.log.engine import Ack


class PutWay:
    """See `ingest.way.Way`."""

    def __init__(self, put: Put) -> None:
        self._put = put

    def write(self, batch: pa.RecordBatch, sequence: int) -> None:
        self._put.write(batch, sequence)

    def next_ack(self, timeout_seconds: float) -> Ack:
        return self._put.next_ack(timeout_seconds)

    def close(self) -> None:
        self._put.abandon()
