"""A stream, as users hold it: read, scan, get, settle; and where its two halves meet. Appending is in `writing`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import query
from millpond.archive.analysis import Analysis
from millpond.archive.index.filters import Filter
from millpond.archive.reindex import Progress, RebuildReport
from millpond.archive.relayout import RelayoutReport
from millpond.archive.settle import SettleReport
from millpond.archive.stream_archive import StreamArchive
from millpond.archive.vacuum import VacuumReport, check_age
from millpond.clock import Clock
from millpond.errors import Backpressure
from millpond.ingest.producer import Producer
from millpond.log.engine import LogEngine
from millpond.model.definition import StreamDefinition
from millpond.model.query_note import QueryNote
from millpond.model.units import Duration, Size, parse_bytes
from millpond.pond.bulk import StreamBulk
from millpond.pond.expiry import Expiry
from millpond.pond.history import QueryHistory
from millpond.pond.loading import Loading
from millpond.pond.pins import Given, Pins, Processed
from millpond.pond.relayouting import Relayouting
from millpond.pond.settling import Settling
from millpond.pond.staging import Staging
from millpond.pond.truncating import plan
from millpond.pond.upkeep import Upkeep
from millpond.pond.writing import StreamWriting
from millpond.query import (
    Halves,
    ObjectMap,
    QueryReport,
    ReadMeter,
    SegmentListing,
    Snapshot,
    Start,
    StreamReader,
    Where,
)
from millpond.settings import Settings
from millpond.telemetry import Telemetry
from millpond.wire.answers import StreamInfo, TruncatePlan
from millpond.wire.relayout import run
from millpond.wire.served import Door
from millpond.wire.status import StreamStatus


class Stream(StreamWriting):
    """Get one from `pond.stream(name)` or `pond.create_stream(...)`. Thread-safe; there is one object per stream."""

    def __init__(
        self,
        definition: StreamDefinition,
        log: LogEngine,
        archive: StreamArchive,
        clock: Clock,
        settings: Settings,
        open_door: Any,
        telemetry: Telemetry,
        pond_id: str,
        on_producer: Callable[[Producer], None],
        truncate: Callable[[Stream], TruncatePlan],
        staging: Staging,
        record: Callable[[str, str, str], None],
        processed: Processed,
        given: Given,
        history: QueryHistory,
        upkeep: Upkeep,
    ) -> None:
        halves = Halves(lambda: self.definition, log, archive, clock, note_query=self.note_query)
        super().__init__(definition, log, clock, settings, telemetry.log.refused, on_producer, halves)
        self._archive, self._open_door, self._pond_id = archive, open_door, pond_id
        self._truncate, self._history, self._upkeep = truncate, history, upkeep
        pins = Pins(log, clock, settings, processed)
        self.settling = Settling(definition, log, archive, clock, settings, telemetry, self.telemetry, pins)
        self.relayouting = Relayouting(lambda: self.definition, archive, clock, settings, history, upkeep)
        self.settling.merging_held = self.relayouting.alive
        loading = Loading(lambda: self.definition, archive, clock, settings, upkeep)
        self.bulk = StreamBulk(self, loading, staging, lambda rows: self._prepare(rows, "", None, None))
        self.expiry = Expiry(
            self.halves, self.settling, clock, lambda action, detail: record(action, self._name, detail), given
        )

    def __repr__(self) -> str:
        return f"<millpond stream {self._name!r}>"

    # What it is.

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records, without `_streamlet`, `_offset` and `_ingest_time`."""
        return self.definition.schema

    def info(self) -> StreamInfo:
        """What it is, in values that JSON has."""
        return StreamInfo.of(self.definition, self._archive.root)

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
    ) -> StreamReader:
        """Batches in order per streamlet, settled and live without a seam, system columns included.

        `start`: "earliest", "latest", offsets per streamlet, or a time (of ingestion). `follow`: go on as records
        arrive, until closed. `limit`: at most so many records. The reader's `position` may be kept and given as `start`
        later. `merge_within`: records of all streamlets in the order of event time (of ingestion where there is none),
        each held back for up to so long for those before it.
        """
        options: dict[str, Any] = {
            "follow": follow,
            "columns": columns,
            "where": where,
            "batch_rows": batch_rows,
            "limit": limit,
            "meter": ReadMeter(self.telemetry.reading, self._clock),
        }
        if merge_within is None:
            return query.read(self.halves, start, **options)
        return query.read_merged(self.halves, start, within=merge_within, clock=self._clock, **options)

    def scan(self, where: Where = None, *, columns: Sequence[str] | None = None, limit: int | None = None) -> pa.Table:
        """The records that match, live ∪ settled, as one table of one exact snapshot; no promise about their order."""
        return query.scan(self.halves, where, columns, limit)

    def scan_batches(
        self, where: Where = None, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `scan`, batch by batch."""
        return query.scan_batches(self.halves, where, columns, limit)

    def open_scan(
        self, where: Where = None, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """As `scan_batches`, with the schema of the batches."""
        return query.open_scan(self.halves, where, columns, limit)

    def count(self, where: Where = None) -> int:
        """How many records match."""
        return query.count(self.halves, where)

    def add_filter(self, filter: Filter) -> Callable[[], None]:
        """Let code of yours rule out settled objects, after everything else: `filter(predicate, objects)` says which
        of the table's rows must be read (see docs/indexes.md). For queries of this process. Returns how to stop it."""
        return self._archive.add_filter(filter)

    def explain(self, where: Where = None) -> QueryReport:
        """What a scan would read and skip, without reading it."""
        return query.plan(self.halves, where)

    def map(self, where: Where = None, axes: Sequence[str] | None = None) -> ObjectMap:
        """Where the settled objects lie along two columns, and which a scan would read. `axes`: the columns along x and
        y; None means those of the layout."""
        return query.draw(self.halves, where, axes)

    def get(self, key: Any = None, /, *, limit: int = 10, **secondary: Any) -> pa.Table:
        """Records by primary key, or by a secondary one (`get(city="Nice")`), newest first, over both halves."""
        return query.get(self.halves, key, limit=limit, secondary=secondary)

    def snapshot(self) -> Snapshot:
        """What is there now: a Delta version with its boundary, and the heads. Readable while settling goes on."""
        return self.halves.snapshot()

    def segments(self) -> list[SegmentListing]:
        """The stream's segments, archived and live."""
        return query.segments(self.halves)

    def read_segment(self, segment_id: str, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of one segment."""
        return query.read_segment(self.halves, segment_id, columns)

    # Keeping.

    def settle(self) -> SettleReport | None:
        """Move everything acknowledged up to now into the archive. None if all has settled already."""
        return self.settling.settle()

    def vacuum(self, older_than: Duration = "7d", *, preview: bool = False) -> VacuumReport:
        """Remove objects that are in no snapshot of that time: leftovers of loads that came to nothing, and what was
        merged or truncated before. `preview`: only say what would go. `Backpressure` while a load is under way."""
        seconds = check_age(older_than)
        self._upkeep.check()
        if self.bulk.loading.alive():
            raise Backpressure(f"{self._name} is being loaded", hint="try again when the load is done")
        if self.relayouting.alive():
            raise Backpressure(f"{self._name} is being laid out anew", hint="try again when the relayout is done")
        older_micros = self._clock.now_micros() - int(seconds * 1e6)
        report = self._archive.vacuum(older_micros, preview=preview, step=self._upkeep.step)
        return replace(report, stream=self._name)

    def rebuild_indexes(self, *, everything: bool = False, progress: Progress | None = None) -> RebuildReport:
        """Read settled objects of which some index knows nothing (or `everything`), and make their entries: after
        `alter_stream(indexes=...)`, or where index files were lost. Queries and settles go on meanwhile; if it is given
        up, what is done stays. `progress(done, total)` is called on the way, with numbers of objects."""
        self._upkeep.check()
        return self._archive.rebuild_indexes(everything=everything, progress=progress, step=self._upkeep.step)

    def analyse(
        self, spark: Any = None, *, period: Duration = "7d", better_by: float = 0.1, swap: bool = True
    ) -> Analysis:
        """Fit the layout anew, to a sample of the last period's settled records and to the queries on record, and let
        the new model count from now on if those queries would read less by that share. What has settled stays as it
        lies until `relayout`. With a Spark session executors read the sample. `swap=False`: only say what would be."""
        job = None if spark is None else importlib.import_module("millpond.spark.relayout")
        draw = None if job is None else job.sampling(spark, self.definition, self._archive.root)
        return self.relayouting.analyse(period, better_by, swap, draw)

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
        With a Spark session executors do it. `object_bytes_min`: as the setting; "0B": an object for every bucket.
        `progress(done, total)` is told of bytes. `Backpressure` while another relayout is under way."""
        rewrite = self.relayouting.rewrite
        if spark is not None:
            rewrite = importlib.import_module("millpond.spark.relayout").rewriting(spark)
        least = None if object_bytes_min is None else parse_bytes(object_bytes_min)
        return run(self.relayouting, self._name, f"here/{threading.get_ident()}", least, rewrite, progress)

    def truncate(self, *, preview: bool = False) -> TruncatePlan:
        """Discard all records, live and settled, at one moment; its next generation begins, empty, at offset 0.

        Appends and followers go over to it by themselves; positions of the old one are refused. Returns what is gone,
        which is also on record in `_pond/audit`, or, with `preview`, what would be.
        """
        return plan(self, done=False) if preview else self._truncate(self)

    def status(self) -> StreamStatus:
        """Where the stream stands."""
        definition = self.definition
        snapshot = self.snapshot()
        objects = snapshot.settled.objects
        held = self._log.segments(definition.id)
        pinned = sum(each.bytes for each in held if each.offsets.stop <= snapshot.boundary.get(each.streamlet, 0))
        return StreamStatus(
            name=definition.name,
            id=definition.id,
            generation=definition.generation,
            streamlets=definition.streamlets,
            durability=definition.durability,
            boundary=dict(snapshot.boundary),
            head=dict(snapshot.heads),
            rows_live=sum(len(offsets) for offsets in snapshot.live.values()),
            rows_settled=int(np.maximum(objects.rows, 0).sum()),  # -1 where nobody knows
            bytes_live=self._log.bytes_live(definition.id) - pinned,
            bytes_settled=int(objects.sizes.sum()),
            objects=len(objects),
            version=snapshot.version,
            settling=self.settling.state,
            warnings=snapshot.settled.warnings,
            bytes_pinned=pinned,
            ttl_seconds=definition.ttl_seconds,
            dropping=self.expiry.state,
        )

    # Spark, and what the pond does with a stream.

    def to_spark(self, spark: Any) -> Any:
        """A Spark DataFrame of the stream, live ∪ settled; each query of it sees one exact, fresh snapshot."""
        return importlib.import_module("millpond.spark").to_spark(self, spark)

    @property
    def pond_id(self) -> str:
        """Which pond it is in."""
        return self._pond_id

    def door(self) -> Door:
        """Where Spark's executors fetch the live half."""
        door: Door = self._open_door()
        return door

    def note_query(self, note: QueryNote) -> None:
        """Put on record what a query asked of it, soon. Neither waits nor raises."""
        definition = self._definition
        if definition is not None:
            self._history.note(definition, note)

    def redefine(self, definition: StreamDefinition | None) -> None:
        """The catalog has changed: the stream was altered, or (None) dropped."""
        if definition is not None:
            self.settling.definition = definition
        self._become(definition)
        self.expiry.look_soon()

    @property
    def archive(self) -> StreamArchive:
        return self._archive
