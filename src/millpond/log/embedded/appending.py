"""Appending, as far as the caller's thread does it: check, serialise, checksum, and wait for room; then the queue.

What is refused here has changed nothing, and nobody else waited for it. What is queued gets an answer or an error from
the committer, once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from millpond.clock import Clock
from millpond.errors import MemoryFull, PondClosed, StreamNotFound
from millpond.log.embedded.append import Append, SingleRows, Submitted, check_bytes, checked_producer, draft_parts
from millpond.log.embedded.committer import Committer
from millpond.log.embedded.published import Published
from millpond.log.embedded.together import Together
from millpond.log.engine import Ack, EncodeRows, Part, RowAppender, StreamAppend, Told
from millpond.log.keeper import Keeper
from millpond.log.live import LiveStream
from millpond.model.definition import Durability, check_durability
from millpond.settings import Settings


class LogAppending:
    """The part of `EmbeddedLog` that takes appends. The committer and the keeper come with the end of recovery."""

    _committer: Committer
    _keeper: Keeper

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock, self._settings = clock, settings
        self._lock = threading.Lock()
        self._published = Published(self._lock)
        self._closed = False

    def _refuse_closed(self) -> None:
        if self._closed:
            raise PondClosed("the pond is closed", hint="open it again")

    def _stream(self, stream_id: int) -> LiveStream:
        self._refuse_closed()
        found = self._published.streams.get(stream_id)
        if found is None:
            raise StreamNotFound(f"no stream with id {stream_id}", hint="it may have been dropped")
        return found

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
        stream = self._stream(stream_id)
        if not parts:
            return Ack({}, durability)
        append = Append(check_durability(durability), stream)
        self._make_ready(append, parts, ingest_micros, producer, sequence, schema_version)
        self._committer.queue.put(append)
        if append.error is not None:
            raise append.error
        assert append.answer is not None
        return append.answer

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
        stream = self._stream(stream_id)
        append = Submitted(check_durability(durability), stream, told)
        if not parts:
            append.answer = Ack({}, durability)
            append.finish()
            return append if after is None else after  # what comes next still comes after that
        self._make_ready(append, parts, ingest_micros, producer, sequence, schema_version)
        if after is not None:
            assert isinstance(after, Submitted)
            append.after = after
        self._committer.queue.submit(append)
        return append

    def _make_ready(
        self,
        append: Append,
        parts: Sequence[Part],
        ingest_micros: int,
        producer: str,
        sequence: int,
        schema_version: int | None,
    ) -> None:
        """Everything up to the queue: checked, serialised, and with room for it."""
        stream, name = append.stream, b""
        if producer or sequence:
            name, append.sequence = checked_producer(producer, sequence)
            append.producer = producer
        version = stream.definition.schema_version if schema_version is None else schema_version
        draft_parts(append, parts, ingest_micros, version, name)
        check_bytes(append.bytes, self._settings.append_bytes_max)
        if self._keeper.tight:
            self._wait_for_memory(stream)

    def append_together(
        self, appends: Sequence[StreamAppend], *, durability: Durability, producer: str = "", sequence: int = 0
    ) -> list[Ack]:
        members: list[Append] = []
        for index, each in enumerate(appends):
            member = Append(check_durability(durability), self._stream(each.stream_id))
            who = (producer, sequence) if index == 0 else ("", 0)
            self._make_ready(member, each.parts, each.ingest_micros, *who, each.schema_version)
            members.append(member)
        if not any(member.drafts for member in members):
            return [Ack({}, durability) for _ in members]
        together = Together(check_durability(durability), members)
        most = self._settings.transaction_bytes_max
        check_bytes(together.bytes, most, what="a transaction", setting="transaction_bytes_max")
        self._committer.queue.put(together)
        if together.error is not None:
            raise together.error
        return together.answers()

    def known(self, stream_id: int, producer: str, sequence: int) -> Ack | None:
        self._stream(stream_id)
        return self._committer.known(stream_id, producer, sequence)

    def row_appender(self, stream_id: int, encode: EncodeRows, schema_version: int) -> RowAppender:
        return SingleRows(
            self._stream(stream_id),
            encode,
            schema_version,
            self._clock,
            self._keeper,
            self._wait_for_memory,
            self._committer.queue,
        )

    def _wait_for_memory(self, stream: LiveStream, seconds: float | None = None) -> None:
        if not self._keeper.full(stream):
            return
        with self._lock:
            fits = self._keeper.room.wait_for(
                lambda: self._closed or not self._keeper.full(stream),
                self._settings.memory_wait_seconds if seconds is None else seconds,
            )
        if not fits:
            raise MemoryFull(
                f"{self._keeper.memory_bytes:,} bytes of live records are in memory and cannot be spilled"
                + (f" ({self._keeper.failure})" if self._keeper.failure else ""),
                hint="wait and append again; make room on the disk, or raise memory_bytes",
            )
