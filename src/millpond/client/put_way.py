"""A producer's way to a served stream: one pipelined Flight put, over a connection of its own."""

from __future__ import annotations

import pyarrow as pa

from millpond.flight.link import FlightLink
from millpond.log.engine import Ack
from millpond.wire.requests import Append


class PutWay:
    """See `ingest.way.Way`. Connects with the first write. `answer_seconds`: how long an acknowledgement may take."""

    def __init__(self, link: FlightLink, request: Append, answer_seconds: float) -> None:
        self._link, self._put, self._answer_seconds = link, link.put(request), answer_seconds

    def write(self, batch: pa.RecordBatch, sequence: int) -> None:
        self._put.write(batch, sequence)

    def next_ack(self, timeout_seconds: float) -> Ack:
        return self._put.next_ack(min(timeout_seconds, self._answer_seconds))

    def close(self) -> None:
        self._put.abandon()
        self._link.close()
