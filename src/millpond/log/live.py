"""A stream's live half in memory: its streamlets, how much it holds, and who waits for more."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import OffsetGone, Truncated
from millpond.log.engine import SegmentInfo, Standing, StreamFigures
from millpond.log.sealed import Sealed, with_system
from millpond.log.segment import Segment, State
from millpond.log.streamlet import Streamlet
from millpond.model.definition import StreamDefinition
from millpond.model.evaluate import Filter
from millpond.model.hashing import hash_value
from millpond.model.ingested import ingested_since
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import And, Compare, Predicate
from millpond.model.rows import RowCodec, codec_of
from millpond.model.schema import SYSTEM_COLUMNS, stored_schema
from millpond.telemetry import Tally


def truncated(name: str, generation: int, now: int) -> Truncated:
    """Whoever asks for offsets of an earlier generation is told so."""
    return Truncated(
        f"{name} was truncated: generation {generation} is gone, this is {now}",
        hint='read it anew with start="earliest"',
    )


class LiveStream:
    """Thread-safe: `lock` is the log's own, shared by all streams so that a group is published as one."""

    def __init__(
        self, definition: StreamDefinition, lock: threading.Lock, segment_bytes: int, refused: Tally | None = None
    ) -> None:
        self.definition = definition
        self._segment_bytes = segment_bytes
        self.refused = refused or Tally()  # appends that nobody waits for
        self.streamlets = [Streamlet(n, segment_bytes) for n in range(definition.streamlets)]
        self.grown = threading.Condition(lock)
        self.memory_bytes = 0
        self.appended_bytes = 0
        self.appends = 0
        self._opened_rows = self._opened_bytes = 0
        self.dropped = False
        self._lock = lock
        stored = stored_schema(definition.schema)
        self._stored = (definition, stored, stored.names)

    def opened(self) -> None:
        """It is as it was found: what comes from now on is counted."""
        self._opened_rows, self._opened_bytes = sum(s.head for s in self.streamlets), self.appended_bytes

    def figures(self, settled: Mapping[int, int]) -> StreamFigures:
        """How much was appended since it was opened, and what it holds beyond what has settled."""
        with self._lock:
            live = [(s, max(s.start, settled.get(s.number, 0))) for s in self.streamlets]
            held = [(next(x for x in s.segments if x.end > at), at) for s, at in live if s.head > at]
            return StreamFigures(
                self.appends,
                sum(s.head for s in self.streamlets) - self._opened_rows,
                self.appended_bytes - self._opened_bytes,
                sum(segment.bytes for s in self.streamlets for segment in s.segments),
                self.memory_bytes,
                min((segment.ingest_micros_at(start) for segment, start in held), default=None),
            )

    def truncate(self, definition: StreamDefinition) -> list[Segment]:
        """Begin a new generation, empty; the segments that are gone. The lock is held."""
        gone = [segment for streamlet in self.streamlets for segment in streamlet.segments]
        self._opened_rows -= sum(s.head for s in self.streamlets)
        # In this order: whoever looks without the lock may take new streamlets for old ones, which hold less, but not
        # old ones for new.
        self.streamlets = [Streamlet(n, self._segment_bytes) for n in range(definition.streamlets)]
        self.definition = definition
        self.grown.notify_all()
        return gone

    def codec(self, version: int) -> RowCodec:
        """The row codec of a schema version."""
        return codec_of(self.definition.schemas[version])

    def heads(self) -> dict[int, int]:
        with self._lock:
            return {s.number: s.head for s in self.streamlets}

    def standing(self) -> Standing:
        with self._lock:
            return Standing(self.definition.generation, {s.number: s.head for s in self.streamlets})

    def starts(self) -> dict[int, int]:
        with self._lock:
            return {s.number: s.start for s in self.streamlets}

    def segments(self) -> list[Segment]:
        with self._lock:
            return [segment for streamlet in self.streamlets for segment in streamlet.segments]

    def infos(self) -> list[SegmentInfo]:
        """The segments as they are listed to users; a closed one counts as sealed."""
        generation = self.definition.generation
        return [
            SegmentInfo(
                s.streamlet,
                s.offsets,
                s.bytes,
                str(State.SEALED if s.state is State.CLOSED else s.state),
                s.first_ingest,
                s.last_ingest,
                f"g{generation:05d}-s{s.streamlet:03d}-{s.base:012d}",
            )
            for s in self.segments()
        ]

    def read(
        self,
        streamlet: int,
        offsets: OffsetRange,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
        loose: bool,
        generation: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Records of a range, filtered and cut to columns segment by segment; see `LogEngine.read`."""
        definition = self.definition
        schema, every = self._as_stored(definition)
        names = every if columns is None else list(columns)
        chosen = Filter(predicate, schema, loose=loose) if predicate is not None else None
        with self._lock:
            now = self.definition.generation
            held = self.streamlets[streamlet].held(offsets)
        if generation is not None and generation != now:
            raise truncated(definition.name, generation, now)
        if held is None:
            raise self._gone(streamlet, offsets)
        bare = not any(name in SYSTEM_COLUMNS for name in (*names, *(chosen.columns if chosen else ())))
        user = every[: len(definition.schema)]
        for segment in held:
            if predicate is not None and not segment.may_match(predicate, schema):
                continue
            for chunk in segment.chunks(offsets, definition, self.codec):
                batch = chunk.batch if bare else with_system(chunk, streamlet)
                if chosen is not None:
                    batch = chosen.apply(batch)
                if batch.num_rows:
                    yield batch if names == (user if bare else every) else batch.select(names)

    def _as_stored(self, definition: StreamDefinition) -> tuple[pa.Schema, list[str]]:
        """Its schema and the names of its columns, made once per definition: it costs as much as reading a few rows."""
        known, schema, names = self._stored
        if known is not definition:
            schema = stored_schema(definition.schema)
            names = schema.names
            self._stored = (definition, schema, names)
        return schema, names

    def _gone(self, streamlet: int, offsets: OffsetRange) -> OffsetGone:
        held = self.streamlets[streamlet]
        return OffsetGone(
            f"{self.definition.name}: offsets {offsets} of streamlet {streamlet} are not held live, "
            f"which is [{held.start}, {held.head})",
            hint="what has settled is read from the archive; what lies beyond the head is not there yet",
        )

    def find(
        self,
        column: str,
        value: Any,
        streamlet: int | None,
        limit: int,
        below: Mapping[int, int],
        since_micros: int | None = None,
    ) -> list[pa.RecordBatch]:
        """Records by key, newest first; see `LogEngine.find`."""
        searched = self.streamlets if streamlet is None else [self.streamlets[streamlet]]
        return [b for each in searched for b in self._find_in(each, column, value, limit, below, since_micros)]

    def _find_in(
        self,
        streamlet: Streamlet,
        column: str,
        value: Any,
        limit: int,
        below: Mapping[int, int],
        since_micros: int | None,
    ) -> list[pa.RecordBatch]:
        while True:
            with self._lock:
                held = [
                    s for s in reversed(streamlet.segments) if since_micros is None or s.last_ingest >= since_micros
                ]
                stop = below.get(streamlet.number, streamlet.head)
                offsets = OffsetRange(streamlet.start, max(streamlet.start, stop))
            try:
                return self._search(held, offsets, column, value, limit, since_micros)
            except OffsetGone:
                if streamlet.start == offsets.start:
                    raise
                # Released under our hands, with the files it was in: what is left is searched anew.

    def _search(
        self,
        segments: Sequence[Segment],
        offsets: OffsetRange,
        column: str,
        value: Any,
        left: int,
        since_micros: int | None,
    ) -> list[pa.RecordBatch]:
        predicate, wanted = Compare("=", column, value), hash_value(value)
        schema = stored_schema(self.definition.schema)
        equal = Filter(predicate if since_micros is None else And((predicate, ingested_since(since_micros))), schema)
        found: list[pa.RecordBatch] = []
        for segment in segments:
            mine = segment.offsets.intersect(offsets)
            if left <= 0:
                break
            if len(mine) == 0 or not (self._has_index(segment, column) or segment.may_match(predicate, schema)):
                continue
            for batch in self._newest_first(segment, mine, column, wanted):
                matching = equal.apply(batch).slice(0, left)
                if matching.num_rows:
                    found.append(matching)
                    left -= matching.num_rows
        return found

    @staticmethod
    def _has_index(segment: Segment, column: str) -> bool:
        return isinstance(segment.contents, Sealed) and column in segment.contents.keys

    def _newest_first(
        self, segment: Segment, offsets: OffsetRange, column: str, wanted: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a segment that may have the key, with system columns, newest first."""
        contents = segment.contents
        if isinstance(contents, Sealed) and column in contents.keys:
            rows = contents.keys[column].find(wanted)[::-1]
            rows = rows[(rows >= offsets.start - segment.base) & (rows < offsets.stop - segment.base)]
            if len(rows):
                yield contents.take(rows, self.definition, segment.streamlet)
            return
        for chunk in reversed(list(segment.chunks(offsets, self.definition, self.codec))):
            batch = with_system(chunk, segment.streamlet)
            yield batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))
