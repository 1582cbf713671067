"""Writing to a stream of a served pond, and knowing what the stream is.

Records are decoded and checked here, before they travel, so that what is wrong with one is told as an embedded stream
tells it. For that the stream's definition is kept; when records do not fit, or the node says so, it is asked for
again, once, because columns may have been added meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.client.connection import Connection
from millpond.client.given import numbered
from millpond.client.put_way import PutWay
from millpond.client.snapshots import Snapshots
from millpond.clock import SystemClock
from millpond.errors import Backpressure, Forbidden, InvalidRecord, InvalidSchema, StreamNotFound, Unavailable
from millpond.ingest import Ingest
from millpond.ingest.batching import Batching, OnError
from millpond.ingest.producer import Producer, name_and_start
from millpond.log.engine import Ack
from millpond.model.definition import Durability, StreamDefinition, check_durability
from millpond.model.units import Duration, Size
from millpond.wire import requests as ask
from millpond.wire.answers import StreamInfo


class RemoteWriting:
    """The part of `RemoteStream` that knows the stream's definition and takes records by it."""

    def __init__(
        self, connection: Connection, name: str, stream_id: int, on_producer: Callable[[Producer], None]
    ) -> None:
        self._connection, self._on_producer = connection, on_producer
        self._name, self.id = name, stream_id
        self._snapshots = Snapshots(connection, name, stream_id)
        self._lock = threading.Lock()
        self._known: Ingest | None = None
        self._dropped = False

    # What it is.

    @property
    def name(self) -> str:
        return self._name

    @property
    def definition(self) -> StreamDefinition:
        """As created and altered; `StreamNotFound` once it was dropped."""
        return self._ingest(newer=True).definition

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records, without `_streamlet`, `_offset` and `_ingest_time`."""
        return self.definition.schema

    def info(self) -> StreamInfo:
        """What it is, in values that JSON has."""
        self._check_there()
        try:
            info: StreamInfo = self._connection.ask(ask.Describe(self._name, id=self.id), StreamInfo)
        except Forbidden:  # who may only write is told what a listing tells
            return self._listed()
        return info

    def _listed(self) -> StreamInfo:
        for info in self._connection.ask(ask.ListStreams(), list[StreamInfo]):
            if info.id == self.id:
                found: StreamInfo = info
                return found
        self.forget()
        raise self._gone()

    def _ingest(self, newer: bool) -> Ingest:
        """What checks records: as it is known, or (newer) as the node has it now."""
        self._check_there()
        known = self._known
        if known is not None and not newer:
            return known
        definition = self._defined()
        if definition.id != self.id:
            self.forget()
            self._check_there()
        with self._lock:
            known = self._known
            if known is None or known.definition.schema_version != definition.schema_version:
                known = self._known = Ingest(definition)
            return known

    def _defined(self) -> StreamDefinition:
        try:
            return self._snapshots.mark()[0]
        except Forbidden:  # as in `info`
            return self._listed().definition()

    def _check_there(self) -> None:
        if self._dropped:
            raise self._gone()

    def _gone(self) -> StreamNotFound:
        return StreamNotFound(f"stream {self._name!r} was dropped", hint="pond.streams() lists what is there")

    def forget(self) -> None:
        """It was dropped."""
        self._dropped = True

    # Writing.

    def append(
        self, rows: Any, *, producer: str = "", sequence: int | None = None, durability: Durability | None = None
    ) -> Ack:
        """Append records: a dict, a list of dicts, a `RecordBatch`, a `Table` or a pandas DataFrame. All or nothing.

        Returns once the records are as safe as the stream's durability (or the one given here) says; the answer
        names it and the offsets. With a producer and a sequence that goes upwards, a retry is recognised and gets the
        first one's offsets. Raises `InvalidRecord` naming row, column and value, or a `Backpressure` error when there
        is no room; nothing is kept then. `Unavailable` leaves open whether the records were kept: `producer()` is for
        those who want to be sure.
        """
        chosen = None if durability is None else check_durability(durability)
        request = ask.Append(
            self._name, id=self.id, producer=producer, sequence=numbered(producer, sequence), durability=chosen
        )
        return self._append(request, rows)[0]

    def stage(self, rows: Any, stage: str) -> int:
        """Have the node check records and hold them for a commit that names `stage`; how many."""
        return self._append(ask.Append(self._name, id=self.id, stage=stage), rows)[1]

    def _append(self, request: ask.Append, rows: Any) -> tuple[Ack, int]:
        """The answer, and how many rows there were. A schema that has changed since is found out by a misfit."""
        ingest = self._ingest(newer=False)
        try:
            return self._send(request, ingest, rows)
        except (InvalidRecord, InvalidSchema):
            newer = self._ingest(newer=True)
            if newer is ingest:
                raise
            return self._send(request, newer, rows)

    def _send(self, request: ask.Append, ingest: Ingest, rows: Any) -> tuple[Ack, int]:
        batch = ingest.to_batch(rows)
        if not batch.num_rows:
            return Ack({}, check_durability(request.durability or ingest.definition.durability)), 0
        return self._connection.link.append(request, batch), batch.num_rows

    def producer(
        self,
        name: str | None = None,
        *,
        batch_bytes: Size = "1MB",
        linger: Duration = "5ms",
        max_in_flight: int = 8,
        buffer: Size = "64MB",
        wait: Duration = "30s",
        give_up: Duration = "2m",
        durability: Durability | None = None,
        on_error: OnError | None = None,
    ) -> Producer:
        """For many small appends: batches them, sends them on without waiting, and never doubles a record.

        A batch goes when it has `batch_bytes`, or `linger` after its first record; at most `max_in_flight` at a time.
        `buffer`: how much may wait to be acknowledged; `append` then waits, up to `wait`. `give_up`: how long it is
        tried while there is no room or no answer. `on_error(error, records)` is called, in a thread of the
        producer's, for records that failed. `name`: of one producer at a time; one is made up if none is given.
        """
        called, first = name_and_start(name, SystemClock().now_micros())
        chosen = None if durability is None else check_durability(durability)

        def open_way(producer: str) -> PutWay:
            self._check_there()
            request = ask.Append(self._name, id=self.id, producer=producer, durability=chosen)
            return PutWay(self._connection.another(), request, self._connection.timeout_seconds)

        self._ingest(newer=False)
        made = Producer(
            called,
            first,
            self._ingest,
            open_way,
            Batching.of(batch_bytes, linger, max_in_flight, buffer, wait, give_up),
            retried=(Backpressure, Unavailable),
            on_error=on_error,
        )
        self._on_producer(made)
        return made
