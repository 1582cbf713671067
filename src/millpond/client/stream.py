"""A stream of a served pond: the methods of `millpond.Stream`, each a request to its node.

Records are decoded and checked here, before they travel, so that what is wrong with one is told as an embedded stream
tells it. For that the stream's definition is kept; when records do not fit, or the node says so, it is asked for
again, once, because columns may have been added meanwhile.
"""

from __future__ import annotations

import base64
import importlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from millpond.archive.analysis import Analysis, check_better_by
from millpond.archive.index.filters import Filter
from millpond.archive.reindex import Progress, RebuildReport
from millpond.archive.relayout import RelayoutReport
from millpond.archive.settle import SettleReport
from millpond.archive.vacuum import VacuumReport, check_age
from millpond.client.bulk import RemoteBulk
from millpond.client.connection import Connection
from millpond.client.given import limited, named, numbered, place, rows, terms
from millpond.client.put_way import PutWay
from millpond.client.reader import RemoteReader
from millpond.client.relayouts import RemoteRelayouts
from millpond.client.served import RemoteDoor, StreamForSpark
from millpond.client.snapshots import Snapshots
from millpond.clock import SystemClock
from millpond.errors import (
    Backpressure,
    Forbidden,
    InvalidRecord,
    InvalidSchema,
    StreamNotFound,
    Unavailable,
)
from millpond.ingest import Ingest
from millpond.ingest.batching import Batching, OnError
from millpond.ingest.producer import Producer, name_and_start
from millpond.log.engine import Ack
from millpond.model.definition import Durability, StreamDefinition, check_durability
from millpond.model.query_note import QueryNote
from millpond.model.units import Duration, Size, parse_bytes, parse_seconds
from millpond.query import ObjectMap, QueryReport, SegmentListing, Snapshot, Start, Where, check_within
from millpond.query.lookup import check_limit, wanted
from millpond.query.reader import check_bounds
from millpond.wire import requests as ask
from millpond.wire.answers import Counted, StreamInfo, TruncatePlan
from millpond.wire.relayout import run
from millpond.wire.relayout_requests import Analyse, Relayout
from millpond.wire.status import StreamStatus


class RemoteStream:
    """Get one from `pond.stream(name)` or `pond.create_stream(...)` of a connected pond. Thread-safe; there is one
    object per stream."""

    def __init__(
        self,
        connection: Connection,
        pond_id: str,
        name: str,
        stream_id: int,
        on_producer: Callable[[Producer], None],
    ) -> None:
        self._connection, self._on_producer = connection, on_producer
        self._pond_id, self._name, self.id = pond_id, name, stream_id
        self._snapshots = Snapshots(connection, name, stream_id)
        self.bulk = RemoteBulk(connection, self)
        self._lock = threading.Lock()
        self._known: Ingest | None = None
        self._dropped = False

    def __repr__(self) -> str:
        return f"<millpond stream {self._name!r} at {self._connection.shown}>"

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

    # Reading.

    def read(
        self,
        start: Start = "earliest",
        *,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        where: Where = None,
        batch_rows: int = 65_536,
        limit: int | None = None,
        merge_within: Duration | None = None,
        give_up: Duration = "2m",
    ) -> RemoteReader:
        """Batches in order per streamlet, settled and live without a seam, system columns included.

        `start`: "earliest", "latest", offsets per streamlet, or a time (of ingestion). `follow`: go on as records
        arrive, until closed; a lost connection is made again, and given up after `give_up`. `limit`: at most so many
        records. The reader's `position` may be kept and given as `start` later. `merge_within`: records of all
        streamlets in the order of event time (of ingestion where there is none), each held back for up to so long for
        those before it.
        """
        self._check_there()
        limit, batch_rows = limited(limit), rows(batch_rows, "batches")
        check_bounds(batch_rows, limit)
        request = ask.Read(
            self._name,
            id=self.id,
            start=place(start),
            follow=follow,
            columns=named(columns),
            batch_rows=batch_rows,
            limit=limit,
            merge_within=None if merge_within is None else f"{check_within(merge_within):f}s",
            **terms(where),
        )
        return RemoteReader(self._connection, request, parse_seconds(give_up))

    def scan(self, where: Where = None, *, columns: Sequence[str] | None = None, limit: int | None = None) -> pa.Table:
        """The records that match, live ∪ settled, as one table of one exact snapshot; no promise about their order."""
        schema, batches = self.open_scan(where, columns, limit)
        return pa.Table.from_batches(list(batches), schema)

    def scan_batches(
        self, where: Where = None, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `scan`, batch by batch."""
        return self.open_scan(where, columns, limit)[1]

    def open_scan(
        self, where: Where = None, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """As `scan_batches`, with the schema of the batches."""
        self._check_there()
        return self._connection.fetch(
            ask.Scan(self._name, id=self.id, columns=named(columns), limit=limited(limit), **terms(where))
        )

    def count(self, where: Where = None) -> int:
        """How many records match."""
        self._check_there()
        found: Counted = self._connection.ask(ask.CountRows(self._name, id=self.id, **terms(where)), Counted)
        return found.count

    def add_filter(self, filter: Filter) -> Callable[[], None]:
        """Let code of yours rule out settled objects, after everything else: `filter(predicate, objects)` says which
        of the table's rows must be read (see docs/indexes.md). For queries that are planned in this process, which are
        Spark's: it is never sent to the node. Returns how to stop it."""
        return self._snapshots.add_filter(filter)

    def explain(self, where: Where = None) -> QueryReport:
        """What a scan would read and skip, without reading it."""
        self._check_there()
        report: QueryReport = self._connection.ask(ask.Explain(self._name, id=self.id, **terms(where)), QueryReport)
        return report

    def map(self, where: Where = None, axes: Sequence[str] | None = None) -> ObjectMap:
        """Where the settled objects lie along two columns, and which a scan would read. `axes`: the columns along x and
        y; None means those of the layout."""
        self._check_there()
        drawn: ObjectMap = self._connection.ask(
            ask.DrawMap(self._name, id=self.id, axes=named(axes), **terms(where)), ObjectMap
        )
        return drawn

    def get(self, key: Any = None, /, *, limit: int = 10, **secondary: Any) -> pa.Table:
        """Records by primary key, or by a secondary one (`get(city="Nice")`), newest first, over both halves."""
        check_limit(limit)
        definition = self._ingest(newer=False).definition
        sought = wanted(definition, key, secondary)
        field = definition.schema.field(sought.column)
        by = sought.column if secondary else None
        request = ask.Get(self._name, _exact(sought.value, field), exact=True, by=by, limit=limit, id=self.id)
        return self._connection.table(request)

    def snapshot(self) -> Snapshot:
        """What is there now: a Delta version with its boundary, and the heads. Its objects are listed by the node, and
        read from where they lie: that is for callers on the node, or with its archive mounted under the same path."""
        self._check_there()
        return self._snapshots.take()[1]

    def segments(self) -> list[SegmentListing]:
        """The stream's segments, archived and live."""
        self._check_there()
        found: list[SegmentListing] = self._connection.ask(ask.Segments(self._name, id=self.id), list[SegmentListing])
        return found

    def read_segment(self, segment_id: str, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of one segment."""
        self._check_there()
        return self._connection.fetch(
            ask.ReadSegment(self._name, segment_id, columns=named(columns), id=self.id)
        ).batches

    # Keeping.

    def settle(self) -> SettleReport | None:
        """Move everything acknowledged up to now into the archive. None if all has settled already."""
        self._check_there()
        report: SettleReport | None = self._connection.ask(ask.Settle(self._name, id=self.id), SettleReport | None)
        return report

    def vacuum(self, older_than: Duration = "7d", *, preview: bool = False) -> VacuumReport:
        """Remove objects that are in no snapshot of that time: leftovers of loads that came to nothing, and what was
        merged or truncated before. `preview`: only say what would go. `Backpressure` while a load is under way."""
        self._check_there()
        seconds = check_age(older_than)
        request = ask.Vacuum(self._name, f"{seconds}s", preview, id=self.id)
        report: VacuumReport = self._connection.ask(request, VacuumReport)
        return report

    def rebuild_indexes(self, *, everything: bool = False, progress: Progress | None = None) -> RebuildReport:
        """Read settled objects of which some index knows nothing (or `everything`), and make their entries: after
        `alter_stream(indexes=...)`, or where index files were lost. Queries and settles go on meanwhile; if it is given
        up, what is done stays. `progress(done, total)` is called at the end only."""
        self._check_there()
        request = ask.RebuildIndexes(self._name, everything, id=self.id)
        report: RebuildReport = self._connection.ask(request, RebuildReport)
        if progress is not None:
            progress(report.objects, report.objects)
        return report

    def analyse(
        self, spark: Any = None, *, period: Duration = "7d", better_by: float = 0.1, swap: bool = True
    ) -> Analysis:
        """Fit the layout anew, to a sample of the last period's settled records and to the queries on record, and let
        the new model count from now on if those queries would read less by that share. What has settled stays as it
        lies until `relayout`. With a Spark session it is made here, and executors read the sample: they must have the
        archive's directory under the node's path. Otherwise the node does it. `swap=False`: only say what would be."""
        self._check_there()
        if spark is not None:
            check_better_by(better_by)
            return RemoteRelayouts(self._connection, self._name, self.id).analyse(
                spark, *self._snapshots.take(), parse_seconds(period), better_by, swap
            )
        request = Analyse(self._name, f"{parse_seconds(period)}s", better_by, swap, id=self.id)
        found: Analysis = self._connection.ask(request, Analysis)
        return found

    def relayout(
        self,
        spark: Any = None,
        *,
        object_bytes_min: Size | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> RelayoutReport:
        """Rewrite settled objects so that they lie as the newest model says, a time partition at a time; small ones are
        merged on the way. The same rows are there before and after, and each commit proves it; queries under way go on
        with what they began with. Killed at any moment, what was committed stays, and another call does the rest.
        With a Spark session executors do it, which must have the archive's directory under the node's path; otherwise
        the node. `object_bytes_min`: as the setting; "0B": an object for every bucket. `progress(done, total)` is told
        of bytes, by Spark. `Backpressure` while another relayout is under way."""
        self._check_there()
        least = None if object_bytes_min is None else parse_bytes(object_bytes_min)
        if spark is None:
            request = Relayout(self._name, None if least is None else f"{least}B", id=self.id)
            report: RelayoutReport = self._connection.ask(request, RelayoutReport)
            return report
        relayouts = RemoteRelayouts(self._connection, self._name, self.id)
        rewrite = importlib.import_module("millpond.spark.relayout").rewriting(spark)
        return run(relayouts, self._name, secrets.token_hex(8), least, rewrite, progress)

    def truncate(self, *, preview: bool = False) -> TruncatePlan:
        """Discard all records, live and settled, at one moment; its next generation begins, empty, at offset 0.

        Appends and followers go over to it by themselves; positions of the old one are refused. Returns what is gone,
        which is also on record in `_pond/audit`, or, with `preview`, what would be.
        """
        self._check_there()
        request = ask.Truncate(self._name, id=self.id, preview=preview)
        gone: TruncatePlan = self._connection.ask(request, TruncatePlan)
        return gone

    def status(self) -> StreamStatus:
        """Where the stream stands."""
        self._check_there()
        status: StreamStatus = self._connection.ask(ask.StreamStatus(self._name, id=self.id), StreamStatus)
        return status

    # Spark.

    def to_spark(self, spark: Any) -> Any:
        """A Spark DataFrame of the stream, live ∪ settled; each query of it sees one exact, fresh snapshot."""
        return importlib.import_module("millpond.spark").to_spark(StreamForSpark(self), spark)

    @property
    def pond_id(self) -> str:
        """Which pond it is in."""
        return self._pond_id

    def note_query(self, note: QueryNote) -> None:
        """Put on record what a query asked of it, soon. Neither waits nor raises."""
        self._connection.notes.add(self._name, self.id, note)

    def door(self) -> RemoteDoor:
        """Where Spark's executors fetch the live half."""
        return RemoteDoor(self._connection.location, self._connection.token, self._connection.tls)


def _exact(value: Any, field: pa.Field) -> str:
    """A value that loses nothing on the way: an Arrow stream that holds it, in base64."""
    batch = pa.record_batch([pa.array([value], field.type)], names=["key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()
