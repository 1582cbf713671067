"""One streaming query's source: what `java/PondSource.java` asks, answered.

A batch is a range of offsets per streamlet. What of it lies under the boundary is read from objects by Spark's own
Parquet scan, the rest is fetched by Flight; where the two meet is decided when the batch is planned, so a batch that is
run again after it has settled holds the same records. Invariant: a place that Spark hands back from a checkpoint is of
this pond, this stream and this generation, and within what the stream has, or the query fails before it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidValue, MillpondError, OffsetGone
from millpond.model.offsets import OffsetRange, ranges_between
from millpond.spark.admission import ends_within, records_of_bytes, waiting
from millpond.spark.group_position import GroupPosition
from millpond.spark.jvm import Callback
from millpond.spark.kept import kept_from
from millpond.spark.place import Place
from millpond.spark.planner import OPTIONS, PinnedScan, SessionPlanner
from millpond.spark.ponds import OpenStream
from millpond.spark.report import QueryFigures
from millpond.spark.source_options import ARCHIVE, SourceOptions
from millpond.spark.workshop import Java

if TYPE_CHECKING:
    from millpond.model.definition import StreamDefinition
    from millpond.query.snapshot import Snapshot

logger = logging.getLogger(__name__)


class StreamSource:
    """Called by one thread of Spark's, the query's own, and stopped by any."""

    def __init__(self, planner: SessionPlanner, opened: OpenStream, options: SourceOptions) -> None:
        self._planner, self._opened, self._options = planner, opened, options
        self._stream = opened.served
        self._until: Mapping[int, int] | None = None  # the heads when AvailableNow began
        self._last: Snapshot | None = None
        self._group = None
        if options.group is not None:
            self._group = GroupPosition(opened.pond, self._stream.name, options.group)
        self._questions = {
            "start": lambda text: self._begun(self._start()),
            "began": lambda text: self._begun(self._checked(Place.parse(text), self._stream.definition)),
            "latest": lambda text: self._latest(text, limited=False),
            "latest within limits": lambda text: self._latest(text, limited=True),
            "up to now": self._up_to_now,
            "batch": self._batch,
            "commit": self._commit,
            "behind": self._behind,
            "name": lambda text: f"Millpond({self._stream.name})",
            "stop": self._stop,
        }

    def answer(self, question: str, text: str) -> Any:
        """An answer, or a text that begins with "!": why there is none."""
        try:
            return self._questions[question](text)
        except MillpondError as error:
            return f"!Millpond: {error} [{error.code}]"
        except Exception as error:  # an exception here would reach the user as py4j's, without its text
            logger.exception("a streaming query over %s could not go on", self._stream.name)
            return f"!Millpond: {question} of {self._stream.name}: {type(error).__name__}: {error}"

    # Where it begins, and how far it goes.

    def _start(self) -> Place:
        options, definition = self._options, self._stream.definition
        if options.start == ARCHIVE and definition.settle is None:
            raise InvalidValue(
                f"{definition.name} is never archived, so its archive has no beginning",
                hint='startingOffsets "earliest" is the first record that is still there',
            )
        offsets = self._opened.starts("earliest" if options.start == ARCHIVE else options.start)
        if isinstance(options.start, str):  # a word or a time means what is there; offsets mean what they say
            kept = kept_from(self._stream.snapshot(), definition)
            offsets = {streamlet: max(offset, kept.get(streamlet, 0)) for streamlet, offset in offsets.items()}
        place = self._place(definition, offsets)
        for name, said in options.start_place.items():
            if said != getattr(place, name, None):
                raise InvalidValue(
                    f"startingOffsets are of {name} {said!r}; {definition.name} has {getattr(place, name, None)!r}",
                    hint="offsets mean records of one pond, stream and generation only",
                )
        return place

    def _begun(self, place: Place) -> str:
        if self._group is not None:
            self._group.make(place.offsets)
        return place.text

    def _latest(self, text: str, *, limited: bool) -> str:
        """Where the next batch ends, and where the stream does."""
        definition, snapshot = self._stream.definition, self._stream.snapshot()
        self._last = snapshot
        start = self._checked(Place.parse(text), definition, snapshot)
        newest = self._place(definition, snapshot.heads)
        heads = dict(snapshot.heads)
        if self._until is not None:
            heads = {streamlet: min(head, self._until.get(streamlet, 0)) for streamlet, head in heads.items()}
        begin = start.offsets if start.generation == definition.generation else {}
        ranges = ranges_between(begin, heads)
        end = dict(begin) | {streamlet: offsets.stop for streamlet, offsets in ranges.items()}
        if limited and ranges:
            end |= self._within_limits(definition, snapshot, ranges)
        return f"{self._place(definition, end).text}\0{newest.text}"

    def _within_limits(
        self, definition: StreamDefinition, snapshot: Snapshot, ranges: Mapping[int, OffsetRange]
    ) -> dict[int, int]:
        options = self._options
        limits = [] if options.records_max is None else [options.records_max]
        if options.bytes_max is not None:
            live = sum(len(offsets.intersect(_from(snapshot.boundary.get(s, 0)))) for s, offsets in ranges.items())
            settled = sum(waiting(snapshot, definition, ranges).values()) - live
            status = self._opened.stream.status()
            limits.append(
                records_of_bytes(
                    options.bytes_max,
                    settled,
                    status.bytes_settled / max(1, status.rows_settled),
                    status.bytes_live / max(1, status.rows_live),
                )
            )
        return ends_within(min(limits), snapshot, definition, ranges) if limits else {}

    def _up_to_now(self, text: str) -> str:
        self._until = dict(self._stream.snapshot().heads)
        return ""

    def _behind(self, text: str) -> str:
        """How many records the query has not read yet."""
        at, newest = map(Place.parse, text.split("\0"))
        begin = at.offsets if at.generation == newest.generation else {}
        ranges = ranges_between(begin, newest.offsets)
        return str(sum(waiting(self._stream.snapshot(), self._stream.definition, ranges).values()))

    # What a batch holds.

    def _batch(self, text: str) -> Java:
        *places, schema = text.split("\0")
        start, end = map(Place.parse, places)
        definition, snapshot = self._stream.definition, self._snapshot_up_to(end)
        for place in (start, end):
            self._checked(place, definition, snapshot)
        begin = start.offsets if start.generation == end.generation else {}
        wanted = ranges_between(begin, end.offsets) if end.generation == definition.generation else {}
        ranges, failure = self._still_there(wanted, kept_from(snapshot, definition))
        boundary = snapshot.boundary
        settled = {s: o for s, offsets in ranges.items() if len(o := offsets.intersect(_until(boundary.get(s, 0))))}
        live = {s: o for s, offsets in ranges.items() if len(o := offsets.intersect(_from(boundary.get(s, 0))))}
        scan = BatchScan(self._planner, self._stream, snapshot, live, failure)
        jvm = self._planner.jvm
        key = self._planner.key(self._stream, snapshot.settled)
        table = self._planner.table(key, snapshot.settled)
        whole = jvm.whole(key, self._stream.name, table, jvm.parsed(schema), OPTIONS)
        pinned = jvm.workshop.pinned(table, sum(map(len, live.values())), scan.since_micros, Callback(scan.answer))
        return jvm.workshop.batch(whole, pinned, bool(settled), _where(settled, boundary, scan.since_micros))

    def _snapshot_up_to(self, end: Place) -> Snapshot:
        """The snapshot by which the batch's end was chosen, if it is that batch."""
        last, self._last = self._last, None
        if last is not None and last.generation == end.generation and _covers(last.heads, end.offsets):
            return last
        return self._stream.snapshot()

    def _still_there(
        self, ranges: Mapping[int, OffsetRange], kept: Mapping[int, int]
    ) -> tuple[Mapping[int, OffsetRange], str]:
        """The ranges without what has expired, and why the batch fails if anything has, or nothing.

        It fails only when it is run: after a restart Spark plans the last batch again although it is committed."""
        left = {s: o for s, offsets in ranges.items() if len(o := offsets.intersect(_from(kept.get(s, 0))))}
        lost = sum(map(len, ranges.values())) - sum(map(len, left.values()))
        if not lost:
            return ranges, ""
        return left, self._data_loss(f"{lost} records of {self._stream.name} were gone before the query read them")

    def _data_loss(self, what: str) -> str:
        if not self._options.fail_on_data_loss:
            logger.warning("%s; it goes on without them", what)
            return ""
        error = OffsetGone(what, hint='.option("failOnDataLoss", "false") goes on without them')
        return f"!Millpond: {error} [{error.code}]"

    # Places.

    def _place(self, definition: StreamDefinition, offsets: Mapping[int, int]) -> Place:
        return Place(self._stream.pond_id, definition.name, definition.id, definition.generation, dict(offsets))

    def _checked(self, place: Place, definition: StreamDefinition, snapshot: Snapshot | None = None) -> Place:
        """The place, if it is one in this stream as it is now."""
        if (place.pond, place.id) != (self._stream.pond_id, definition.id):
            raise InvalidValue(
                f"the checkpoint is of {place.stream}, id {place.id}, of pond {place.pond}; this is {definition.name}, "
                f"id {definition.id}, of pond {self._stream.pond_id}",
                hint="a checkpoint belongs to one stream of one pond: give this query a directory of its own",
            )
        if place.generation != definition.generation:
            self._truncated(place, definition)
        elif snapshot is not None and not _covers(snapshot.heads, place.offsets):
            raise OffsetGone(
                f"the checkpoint is ahead of {definition.name}: it is at {dict(place.offsets)}, the stream ends at "
                f"{dict(snapshot.heads)}",
                hint="was the pond restored from an older copy? begin anew with another checkpoint",
            )
        return place

    def _truncated(self, place: Place, definition: StreamDefinition) -> None:
        what = (
            f"{definition.name} was truncated: the checkpoint is of generation {place.generation}, this is "
            f"{definition.generation}"
        )
        if self._options.fail_on_data_loss:
            hint = 'begin anew with another checkpoint, or go on with .option("failOnDataLoss", "false")'
            raise OffsetGone(what, hint=hint)
        logger.warning("%s; the query goes on with what was appended since", what)

    # What is done with what was processed.

    def _commit(self, text: str) -> str:
        place = Place.parse(text)
        if self._group is not None and place.generation == self._stream.definition.generation:
            self._group.move(place.offsets)
        return ""

    def _stop(self, text: str) -> str:
        self._opened.close()
        return ""


class BatchScan(PinnedScan):
    """The scans of one micro-batch. If records of it are gone, they fail."""

    def __init__(
        self,
        planner: SessionPlanner,
        stream: Any,
        snapshot: Snapshot,
        live: Mapping[int, OffsetRange],
        failure: str,
    ) -> None:
        super().__init__(planner, stream, snapshot, QueryFigures("a micro-batch"), live=live)
        self._failure = failure

    def answer(self, question: str, text: str) -> Any:
        return self._failure or super().answer(question, text)


def _from(offset: int) -> OffsetRange:
    return OffsetRange(offset, 2**63 - 1)


def _until(offset: int) -> OffsetRange:
    return OffsetRange(0, offset)


def _covers(heads: Mapping[int, int], offsets: Mapping[int, int]) -> bool:
    return all(offset <= heads.get(streamlet, 0) for streamlet, offset in offsets.items())


def _where(settled: Mapping[int, OffsetRange], boundary: Mapping[int, int], since_micros: int) -> str:
    """Which records of the objects are in the ranges and have not expired, in SQL; empty if all are."""
    kept = f"_ingest_time >= timestamp_micros({since_micros})" if since_micros else ""
    if all(settled.get(streamlet) == OffsetRange(0, stop) for streamlet, stop in boundary.items() if stop):
        return kept
    each = [f"(_streamlet = {s} AND _offset >= {o.start} AND _offset < {o.stop})" for s, o in settled.items()]
    low = min((offsets.start for offsets in settled.values()), default=0)
    high = max((offsets.stop for offsets in settled.values()), default=0)
    # The bounds of all are what Parquet's reader can skip row groups and pages by.
    within = f"_offset >= {low} AND _offset < {high} AND ({' OR '.join(each) or 'false'})"
    return f"{within} AND {kept}" if kept else within
