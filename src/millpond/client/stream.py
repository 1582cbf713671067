"""A stream of a served pond: the methods of `millpond.Stream`, each a request to its node. `writing` has appending."""

from __future__ import annotations

import base64
import importlib
import secrets
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
from millpond.client.given import limited, named, place, rows, terms
from millpond.client.reader import RemoteReader
from millpond.client.relayouts import RemoteRelayouts
from millpond.client.served import RemoteDoor, StreamForSpark
from millpond.client.writing import RemoteWriting
from millpond.ingest.producer import Producer
from millpond.model.query_note import QueryNote
from millpond.model.units import Duration, Size, parse_bytes, parse_seconds
from millpond.query import ObjectMap, QueryReport, SegmentListing, Snapshot, Start, Where, check_within
from millpond.query.lookup import check_limit, wanted
from millpond.query.reader import check_bounds
from millpond.wire import requests as ask
from millpond.wire.answers import Counted, TruncatePlan
from millpond.wire.relayout import run
from millpond.wire.relayout_requests import Analyse, Relayout
from millpond.wire.status import StreamStatus


class RemoteStream(RemoteWriting):
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
        super().__init__(connection, name, stream_id, on_producer)
        self._pond_id = pond_id
        self.bulk = RemoteBulk(connection, self)

    def __repr__(self) -> str:
        return f"<millpond stream {self._name!r} at {self._connection.shown}>"

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
