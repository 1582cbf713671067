"""A log engine too simple to be wrong: every record a one-row batch in a list, one lock around everything.

It is the reference that real engines are compared with in the contract suite, and the fake in tests of the rooms above
the log. It keeps the protocol's promises that can be kept in memory; nothing survives a close. A read looks at the
list anew for every batch, so a release in the middle of one is noticed by it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from millpond.clock import SystemClock
from millpond.errors import Backpressure, InvalidValue, OffsetGone, PondClosed, StreamNotFound
from millpond.log.engine import Ack, EncodeRows, LogStatus, Part, RowAppender, SegmentInfo, Standing, StreamAppend, Told
from millpond.log.live import truncated
from millpond.model.definition import Durability, StreamDefinition
from millpond.model.evaluate import filter_batch
from millpond.model.ingested import ingested_since
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Compare, Predicate
from millpond.model.rows import codec_of
from millpond.model.schema import INGEST_TIME, OFFSET, SYSTEM_FIELDS, stored_schema


@dataclass
class _Streamlet:
    """Records `start` to `start + len(rows)`, each with its system columns."""

    start: int = 0
    rows: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def head(self) -> int:
        return self.start + len(self.rows)

    def between(self, offsets: OffsetRange) -> list[pa.RecordBatch]:
        return self.rows[offsets.start - self.start : offsets.stop - self.start]


@dataclass
class _Stream:
    definition: StreamDefinition
    streamlets: dict[int, _Streamlet]
    appended: dict[tuple[str, int], Ack] = field(default_factory=dict)
    appended_bytes: int = 0


class SimpleLog:
    """A `LogEngine` in lists. Thread-safe. `batch_rows`: how many records a read hands out at a time."""

    def __init__(self, *, batch_rows: int = 1_000, segment_rows: int = 1_000) -> None:
        self._batch_rows = batch_rows
        self._segment_rows = segment_rows
        self._streams: dict[int, _Stream] = {}
        self._clock = SystemClock()
        self._closed = False
        self._grown = threading.Condition()

    @property
    def dense(self) -> bool:
        return True

    def add_stream(self, definition: StreamDefinition, boundary: Mapping[int, int] = MappingProxyType({})) -> None:
        with self._grown:
            self._refuse_closed()
            empty = {streamlet: _Streamlet(boundary.get(streamlet, 0)) for streamlet in range(definition.streamlets)}
            self._streams.setdefault(definition.id, _Stream(definition, empty))

    def alter_stream(self, definition: StreamDefinition) -> None:
        with self._grown:
            self._stream(definition.id).definition = definition

    def truncate_stream(self, definition: StreamDefinition) -> None:
        with self._grown:
            stream = self._stream(definition.id)
            if definition.generation <= stream.definition.generation:
                raise InvalidValue(f"generation {definition.generation} again", hint="a truncation raises it")
            stream.definition = definition
            stream.streamlets = {streamlet: _Streamlet() for streamlet in range(definition.streamlets)}
            stream.appended = {sent: Ack({}, answer.durability) for sent, answer in stream.appended.items()}
            self._grown.notify_all()

    def drop_stream(self, stream_id: int) -> None:
        with self._grown:
            self._stream(stream_id)
            del self._streams[stream_id]

    def append(
        self,
        stream_id: int,
        parts: Sequence[Part],
        *,
        ingest_micros: int,
        durability: Durability,
        producer: str = "",
        sequence: int = 0,
        schema_version: int | None = None,
    ) -> Ack:
        one = StreamAppend(stream_id, parts, ingest_micros, schema_version)
        (answer,) = self.append_together([one], durability=durability, producer=producer, sequence=sequence)
        return answer

    def append_together(
        self, appends: Sequence[StreamAppend], *, durability: Durability, producer: str = "", sequence: int = 0
    ) -> list[Ack]:
        with self._grown:
            ready = [(each, self._batches(each)) for each in appends]
            if not any(batches for _, batches in ready):
                return [Ack({}, durability) for _ in appends]
            if producer:
                if not ready[0][1]:
                    raise InvalidValue("nothing is appended to the first stream", hint="it remembers the producer")
                earlier = self.known(appends[0].stream_id, producer, sequence)
                if earlier is not None:
                    return [earlier, *(Ack({}, durability, duplicate=True) for _ in appends[1:])]
            answers = [Ack(self._show(each, batches), durability) for each, batches in ready]
            if producer:
                self._stream(appends[0].stream_id).appended[producer, sequence] = answers[0]
            self._grown.notify_all()
            return answers

    def _batches(self, append: StreamAppend) -> list[tuple[Part, pa.RecordBatch]]:
        schemas = self._stream(append.stream_id).definition.schemas
        schema = schemas[-1 if append.schema_version is None else append.schema_version]
        for part in append.parts:
            self._streamlet(append.stream_id, part.streamlet)
        return [(part, _batch_of(schema, part)) for part in append.parts]

    def _show(self, append: StreamAppend, batches: Sequence[tuple[Part, pa.RecordBatch]]) -> dict[int, OffsetRange]:
        ranges: dict[int, OffsetRange] = {}
        for part, batch in batches:
            streamlet = self._streamlet(append.stream_id, part.streamlet)
            first = streamlet.head
            streamlet.rows += _with_system_columns(batch, part.streamlet, first, append.ingest_micros)
            begun = ranges.get(part.streamlet, OffsetRange(first, first)).start
            ranges[part.streamlet] = OffsetRange(begun, streamlet.head)
        self._stream(append.stream_id).appended_bytes += sum(batch.nbytes for _, batch in batches)
        return ranges

    def known(self, stream_id: int, producer: str, sequence: int) -> Ack | None:
        with self._grown:
            found = self._stream(stream_id).appended.get((producer, sequence))
            return None if found is None else Ack(found.ranges, found.durability, duplicate=True)

    def submit(
        self,
        stream_id: int,
        parts: Sequence[Part],
        told: Told,
        *,
        ingest_micros: int,
        durability: Durability,
        producer: str = "",
        sequence: int = 0,
        schema_version: int | None = None,
        after: object = None,
    ) -> object:
        # It never fails after it was taken, so there is nothing to come after.
        answer = self.append(
            stream_id,
            parts,
            ingest_micros=ingest_micros,
            durability=durability,
            producer=producer,
            sequence=sequence,
            schema_version=schema_version,
        )
        told(answer, None)
        return answer

    def row_appender(self, stream_id: int, encode: EncodeRows, schema_version: int) -> RowAppender:
        return _SimpleRows(self, stream_id, encode, schema_version)

    def append_row(
        self, stream_id: int, row: Any, durability: Durability, encode: EncodeRows, schema_version: int
    ) -> Ack:
        """What the row appender does."""
        now = self._clock.now_micros()
        parts, (place,) = encode([row], now)
        if isinstance(place, Exception):
            raise place
        if place is None:
            return Ack({}, durability, filtered=1)
        return self.append(stream_id, parts, ingest_micros=now, durability=durability, schema_version=schema_version)

    def appended_bytes(self, stream_id: int) -> int:
        with self._grown:
            return self._stream(stream_id).appended_bytes

    def heads(self, stream_id: int) -> dict[int, int]:
        with self._grown:
            return {number: streamlet.head for number, streamlet in self._stream(stream_id).streamlets.items()}

    def standing(self, stream_id: int) -> Standing:
        with self._grown:
            return Standing(self._stream(stream_id).definition.generation, self.heads(stream_id))

    def starts(self, stream_id: int) -> dict[int, int]:
        with self._grown:
            return {number: streamlet.start for number, streamlet in self._stream(stream_id).streamlets.items()}

    def read(
        self,
        stream_id: int,
        streamlet: int,
        offsets: OffsetRange,
        *,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        loose: bool = False,
        generation: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        at = offsets.start
        while at < offsets.stop:
            piece = OffsetRange(at, min(at + self._batch_rows, offsets.stop))
            batch = self._piece(stream_id, streamlet, piece, generation)
            if predicate is not None:
                batch = filter_batch(batch, predicate, loose=loose)
            if batch.num_rows:
                yield batch if columns is None else batch.select(list(columns))
            at = piece.stop

    def _piece(self, stream_id: int, number: int, piece: OffsetRange, generation: int | None) -> pa.RecordBatch:
        with self._grown:
            streamlet = self._streamlet(stream_id, number)
            definition = self._stream(stream_id).definition
            if generation is not None and generation != definition.generation:
                raise truncated(definition.name, generation, definition.generation)
            if piece.start < streamlet.start or piece.stop > streamlet.head:
                held = OffsetRange(streamlet.start, streamlet.head)
                raise OffsetGone(f"streamlet {number} holds {held}, not {piece}", hint="read what is held")
            schema = stored_schema(self._stream(stream_id).definition.schema)
            return _combine(streamlet.between(piece), schema)

    def find(
        self,
        stream_id: int,
        column: str,
        value: Any,
        *,
        streamlet: int | None,
        limit: int,
        below: Mapping[int, int],
        since_micros: int | None = None,
    ) -> list[pa.RecordBatch]:
        found = []
        with self._grown:
            stream = self._stream(stream_id)
            schema = stored_schema(stream.definition.schema)
            for number, held in stream.streamlets.items():
                if streamlet not in (None, number):
                    continue
                stop = max(held.start, min(held.head, below.get(number, held.head)))
                rows = _combine(held.between(OffsetRange(held.start, stop)), schema)
                rows = filter_batch(rows, Compare("=", column, value))
                if since_micros is not None:
                    rows = filter_batch(rows, ingested_since(since_micros))
                if rows.num_rows:
                    found.append(rows.sort_by([(OFFSET, "descending")]).slice(0, limit))
        return found

    def segments(self, stream_id: int) -> list[SegmentInfo]:
        with self._grown:
            return [
                self._segment(number, held, at)
                for number, held in self._stream(stream_id).streamlets.items()
                for at in range(0, len(held.rows), self._segment_rows)
            ]

    def _segment(self, number: int, held: _Streamlet, at: int) -> SegmentInfo:
        rows = held.rows[at : at + self._segment_rows]
        offsets = OffsetRange(held.start + at, held.start + at + len(rows))
        times = [row.column(INGEST_TIME).cast(pa.int64())[0].as_py() for row in rows]
        state = "sealed" if len(rows) == self._segment_rows else "active"
        name = f"s{number:03d}-{offsets.start:012d}"
        return SegmentInfo(number, offsets, sum(row.nbytes for row in rows), state, min(times), max(times), name)

    def bytes_live(self, stream_id: int) -> int:
        with self._grown:
            return sum(row.nbytes for held in self._stream(stream_id).streamlets.values() for row in held.rows)

    def sync(self) -> None:
        with self._grown:
            self._refuse_closed()

    def release(self, stream_id: int, boundary: Mapping[int, int], *, generation: int | None = None) -> None:
        with self._grown:
            if generation not in (None, self._stream(stream_id).definition.generation):
                return
            for number, held in self._stream(stream_id).streamlets.items():
                stop = boundary.get(number, 0)
                gone = max(0, min(stop, held.head) - held.start)
                del held.rows[:gone]
                held.start += gone

    def wait(self, stream_id: int, beyond: Mapping[int, int], timeout_seconds: float) -> bool:
        def ahead() -> bool:
            streamlets = self._stream(stream_id).streamlets
            return any(held.head > beyond.get(number, 0) for number, held in streamlets.items())

        with self._grown:
            self._refuse_closed()
            stream = self._stream(stream_id)
            generation = stream.definition.generation
            self._grown.wait_for(
                lambda: self._closed or stream.definition.generation != generation or ahead(), timeout_seconds
            )
            return not self._closed and ahead()

    def status(self) -> LogStatus:
        with self._grown:
            self._refuse_closed()
            held = sum(self.bytes_live(stream_id) for stream_id in self._streams)
        return LogStatus(held, 0, 0, 0, 0, held, 0, 0, 0, 0)

    def close(self) -> None:
        with self._grown:
            self._closed = True
            self._grown.notify_all()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise PondClosed("the log was closed", hint="open it again")

    def _stream(self, stream_id: int) -> _Stream:
        self._refuse_closed()
        if stream_id not in self._streams:
            raise StreamNotFound(f"no stream with id {stream_id}", hint="add_stream comes first")
        return self._streams[stream_id]

    def _streamlet(self, stream_id: int, number: int) -> _Streamlet:
        streamlets = self._stream(stream_id).streamlets
        if number not in streamlets:
            raise InvalidValue(f"no streamlet {number}", hint=f"0 to {len(streamlets) - 1}")
        return streamlets[number]


def _batch_of(schema: pa.Schema, part: Part) -> pa.RecordBatch:
    if part.batch is not None:
        return part.batch
    if part.encoded is None:
        raise InvalidValue("a part without rows", hint="give it a batch or encoded rows")
    return codec_of(schema).decode([part.encoded])


def _with_system_columns(batch: pa.RecordBatch, streamlet: int, first: int, micros: int) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([*batch.schema, *SYSTEM_FIELDS])
    for at in range(batch.num_rows):
        system = [pa.array([v], f.type) for v, f in zip((streamlet, first + at, micros), SYSTEM_FIELDS, strict=True)]
        yield pa.RecordBatch.from_arrays([*batch.slice(at, 1).columns, *system], schema=schema)


def _combine(rows: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch of the newest schema: a row written before a column was added has a null there."""
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=schema)
    whole = [
        row
        if len(row.schema) == len(schema)
        else pa.RecordBatch.from_arrays(
            [row.column(f.name) if row.schema.get_field_index(f.name) >= 0 else pa.nulls(1, f.type) for f in schema],
            schema=schema,
        )
        for row in rows
    ]
    (batch,) = pa.Table.from_batches(whole, schema=schema).combine_chunks().to_batches()
    return batch


class _SimpleRows:
    def __init__(self, log: SimpleLog, stream_id: int, encode: EncodeRows, schema_version: int) -> None:
        self._log, self._stream_id, self._encode, self._version = log, stream_id, encode, schema_version

    def __call__(self, row: Any, durability: Durability) -> Ack:
        return self._log.append_row(self._stream_id, row, durability, self._encode, self._version)

    def submit(self, row: Any, durability: Durability, told: Told) -> None:
        try:
            answer = self(row, durability)
        except (PondClosed, Backpressure):
            raise
        except Exception as error:
            told(None, error)
        else:
            told(answer, None)
