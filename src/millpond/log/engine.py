"""The log engine protocol: everything above the log is written against this, so that Kafka can take its place.

Invariants every engine keeps (the contract suite in `millpond.testing` checks them):
an append is all or nothing; it returns only once it is as durable as asked; what a reader sees was acknowledged;
offsets are unique, increasing and final per (stream, generation, streamlet); a retry with the same producer and
sequence gets the first one's offsets, also after a reopen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from millpond.model.definition import Durability, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Predicate


class Part(NamedTuple):
    """The rows of one append that go to one streamlet: an Arrow batch of the stream's newest schema, or, for a few
    rows, their encoded form (`encoded`, see `millpond.model.rows`), which becomes Arrow later and many at a time."""

    streamlet: int
    rows: int
    batch: pa.RecordBatch | None = None
    encoded: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """What an append got: offsets per streamlet, how safe they are, whether it was a retry of an earlier one, and how
    many of its records the stream's filter left out. Of an append that was left out whole there are no offsets."""

    ranges: dict[int, OffsetRange]
    durability: Durability
    duplicate: bool = False
    filtered: int = 0


class StreamAppend(NamedTuple):
    """One of several appends that are made together; see `LogEngine.append_together`."""

    stream_id: int
    parts: Sequence[Part]
    ingest_micros: int
    schema_version: int | None = None  # that of the parts; None means the newest


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A live segment, as `segments()` lists it."""

    streamlet: int
    offsets: OffsetRange
    bytes: int
    state: str  # "active", "sealed" or "spilled"
    first_ingest_micros: int
    last_ingest_micros: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How the log does. `refused` is "" or the reason why appends are refused."""

    memory_bytes: int
    memory_quota_bytes: int
    spilled_bytes: int
    journal_bytes: int
    journal_files: int
    appended_bytes: int
    journal_written_bytes: int
    spill_written_bytes: int
    syncs: int
    groups: int
    refused: str = ""
    warnings: tuple[str, ...] = field(default=())


class Standing(NamedTuple):
    """Where a stream stands: its generation, and the exclusive end per streamlet of what readers may see of it."""

    generation: int
    heads: dict[int, int]


class StreamFigures(NamedTuple):
    """A stream in numbers: what was appended since it was opened, and what is held of it."""

    appends: int
    rows: int
    bytes: int
    bytes_live: int
    memory_bytes: int
    oldest_micros: int | None  # when the oldest record that has not settled was ingested


class EncodedRows(NamedTuple):
    """Single records made ready together. `places` says of each in which part and which row of it it is, or what is
    wrong with it; None if it is not to be stored."""

    parts: Sequence[Part]
    places: Sequence[tuple[int, int] | Exception | None]


class EncodeRows(Protocol):
    """Checks, routes and encodes single records that are ingested at one time. Waiting threads depend on it, so it must
    be quick and run nobody else's code."""

    def __call__(self, rows: Sequence[Any], now_micros: int) -> EncodedRows: ...


# Told of one append: its answer, or what went wrong. Called once, in whatever thread; must be quick and not raise.
Told = Callable[[Ack | None, BaseException | None], None]


class RowAppender(Protocol):
    """Appends one record."""

    def __call__(self, row: Any, durability: Durability) -> Ack:
        """Blocks until the record is as durable as asked."""
        ...

    def submit(self, row: Any, durability: Durability, told: Told) -> None:
        """Does not wait: `told` is called when the record is as durable as asked. If there is no room, `Backpressure`
        is raised at once; `told` is not called for what was raised here."""
        ...


class LogEngine(Protocol):
    """Thread-safe. May block where it says so."""

    @property
    def dense(self) -> bool:
        """Whether offsets have no gaps, so that rows may be counted in place of looking at their offsets. A replicated
        log may leave some."""
        ...

    def add_stream(self, definition: StreamDefinition, boundary: Mapping[int, int] = MappingProxyType({})) -> None:
        """Make a stream known, with what of it has settled before: no offset under the boundary is given out again,
        whatever the engine remembers. Must be called before any other call names the stream. Boundaries may name a
        streamlet that only the archive has, here and elsewhere; it does not matter."""
        ...

    def alter_stream(self, definition: StreamDefinition) -> None:
        """Replace the definition (a schema version more). Appends after this may use the new schema."""
        ...

    def truncate_stream(self, definition: StreamDefinition) -> None:
        """Let go of all records of a stream: `definition` has a higher generation, whose offsets begin at 0. At one
        moment for everybody: readers of the old generation get `Truncated`, and an append lands before it, in the old
        one, or after it, in the new one. What producers sent stays known: a retry of what was in the old one is told
        that it is one, without offsets. The caller has the new generation on record before it calls this."""
        ...

    def drop_stream(self, stream_id: int) -> None:
        """Forget a stream and everything it holds."""
        ...

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
        """Blocks until all parts are as durable as asked. `Backpressure` errors leave nothing behind.
        `schema_version` is that of the parts; None means the newest."""
        ...

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
        """As `append`, without waiting for it: `told` is called when all parts are as durable as asked, or with what
        went wrong. Blocks as long as there is no room; what is raised here is not told. Submits of one thread to one
        stream at one durability are appended in their order.

        `after` is what an earlier submit returned: if that one fails, so does this one, with the same error and
        without a trace. Whoever has many under way never finds a hole among them that way."""
        ...

    def append_together(
        self, appends: Sequence[StreamAppend], *, durability: Durability, producer: str = "", sequence: int = 0
    ) -> list[Ack]:
        """As `append`, to any number of streams as one: readers see all of it at one moment, and after a crash all of
        it is there or none. The answers are in the order of the appends.

        The producer is remembered with the first stream named, which must be given records then. A retry is told that
        it is one, and the offsets in the first stream; those in the others are not kept, and their ranges are empty.
        `TooLarge` over the setting transaction_bytes_max."""
        ...

    def known(self, stream_id: int, producer: str, sequence: int) -> Ack | None:
        """What an append with this producer and sequence was answered, without appending: None if it is not known.
        What is known survives a power cut when this returns. Comes after all appends that were made before it.
        `StaleSequence` if it is too old for anyone to tell."""
        ...

    def row_appender(self, stream_id: int, encode: EncodeRows, schema_version: int) -> RowAppender:
        """The way for single records: the engine encodes them, in whatever thread it chooses and many at a time. What
        `encode` gives or raises for a record is raised from its append."""
        ...

    def appended_bytes(self, stream_id: int) -> int:
        """How many bytes were appended to a stream since it was added, with those that were live then."""
        ...

    def heads(self, stream_id: int) -> dict[int, int]:
        """The exclusive end per streamlet of what readers may see, all taken at one moment."""
        ...

    def standing(self, stream_id: int) -> Standing:
        """The generation and its heads, taken at one moment."""
        ...

    def starts(self, stream_id: int) -> dict[int, int]:
        """The first offset per streamlet that is still held here."""
        ...

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
        """The records of a range, in order, with system columns last; columns and predicate applied where the data
        is (`columns` may name system columns; None means all). `OffsetGone` if the range is no longer held whole.
        `loose`: terms of the predicate that are not understood count as true. `generation`: that of the offsets, where
        the stream may have been truncated since; `Truncated` if it was."""
        ...

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
        """Records whose key column equals `value`, newest first, at most `limit` per streamlet, with offsets at or
        above what is still held and under `below` per streamlet; of those ingested at `since_micros` or later."""
        ...

    def segments(self, stream_id: int) -> list[SegmentInfo]: ...

    def bytes_live(self, stream_id: int) -> int:
        """Bytes held and not yet released, in memory or spilled."""
        ...

    def sync(self) -> None:
        """Blocks until everything acknowledged so far survives a power cut."""
        ...

    def release(self, stream_id: int, boundary: Mapping[int, int], *, generation: int | None = None) -> None:
        """What lies under the boundary is safe elsewhere, or, of a stream that is never archived, no longer wanted:
        memory, spill and journal may let go of it. Where a stream of the second kind begins is remembered. Nothing
        happens if `generation` is given and not the stream's any more."""
        ...

    def wait(self, stream_id: int, beyond: Mapping[int, int], timeout_seconds: float) -> bool:
        """Blocks until some streamlet's head is past the one given, the stream is truncated or dropped, the log closes,
        or time is up; whether some head is past the one given."""
        ...

    def status(self) -> LogStatus: ...

    def close(self) -> None:
        """Sync, mark a clean end, let go. Afterwards every call raises `PondClosed`."""
        ...
