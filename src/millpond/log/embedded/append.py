"""An append on its way into the log: from parts, or from a single record that is yet to be encoded, to drafts.

Parts are serialised and checksummed by the caller's thread: for large batches that is the heavy work, and it runs
beside other callers'. Single records are the other way round. Waking up a caller's thread costs far more than encoding
its record, and everything that thread touches was last in another core's cache; so it only queues the record, and the
committer encodes those of a whole group in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import InvalidValue, StreamNotFound, TooLarge
from millpond.log.embedded import frame as frames
from millpond.log.embedded.commit_queue import Request
from millpond.log.embedded.frame import Draft, crc32
from millpond.log.engine import Ack, EncodeRows, Part
from millpond.log.live import LiveStream
from millpond.log.piece import Piece
from millpond.model.definition import Durability


class Append(Request):
    """Of one stream. `batches` are its parts as Arrow (none: encoded rows); `pieces` what of it was published before it
    was written, by part, to be told its place in the journal."""

    row: Any = None
    batches: Sequence[pa.RecordBatch | None] = ()
    pieces: Sequence[tuple[int, Piece]] = ()

    def __init__(self, stream: LiveStream, durability: Durability) -> None:
        super().__init__(durability)
        self.stream = stream


def draft_parts(append: Append, parts: Sequence[Part], now_micros: int, version: int, producer: bytes) -> None:
    """Give an append its drafts: serialise and checksum its parts."""
    stream = append.stream
    definition, streamlets = stream.definition, len(stream.streamlets)
    sequence = append.sequence + 1 if producer else 0
    drafts: list[Draft] = []
    batches: list[pa.RecordBatch | None] = []
    for part in parts:
        if not 0 <= part.streamlet < streamlets:
            raise InvalidValue(f"no streamlet {part.streamlet}", hint=f"0 to {streamlets - 1}")
        if part.rows < 1:
            raise InvalidValue("a part without rows", hint="leave it out")
        payload, batch = _own(part)
        batches.append(batch)
        drafts.append(Draft(
            frames.ROWS if batch is None else frames.ARROW, definition.id, definition.generation, part.streamlet,
            part.rows, now_micros, version, payload, crc32(payload), producer, sequence,
        ))  # fmt: skip
    append.batches, append.drafts, append.bytes = batches, drafts, sum(len(d.payload) for d in drafts)


def _own(part: Part) -> tuple[bytes | memoryview, pa.RecordBatch | None]:
    """A part's payload for the journal, and its rows as readers will see them: read from that payload, so that memory
    and journal hold the same bytes, whatever the caller does with its arrays afterwards."""
    if part.batch is None:
        assert part.encoded is not None
        return part.encoded, None
    payload = part.batch.serialize()
    return memoryview(payload), pa.ipc.read_record_batch(payload, part.batch.schema)


def check_bytes(size: int, bytes_max: int) -> None:
    """`TooLarge` if an append has too many bytes."""
    if size > bytes_max:
        raise TooLarge(
            f"an append of {size:,} bytes is over the bound of {bytes_max:,}",
            hint="split it, or raise the setting append_bytes_max",
        )


class SingleRows:
    """The `RowAppender` of one stream, and the maker of its appends' drafts. `submit` may block."""

    def __init__(
        self,
        stream: LiveStream,
        encode: EncodeRows,
        version: int,
        clock: Clock,
        bytes_max: int,
        submit: Callable[[Append], Ack],
    ) -> None:
        self._stream, self._encode, self._version = stream, encode, version
        self._clock, self._bytes_max, self._submit = clock, bytes_max, submit

    def __call__(self, row: Any, durability: Durability) -> Ack:
        append = Append(self._stream, durability)
        append.row, append.maker = row, self
        return self._submit(append)

    def make(self, requests: list[Append]) -> None:
        """In the committer's thread."""
        if self._stream.dropped:
            raise StreamNotFound(f"stream {self._stream.definition.name!r} was dropped", hint="create it again")
        now, version = self._clock.now_micros(), self._version
        definition = self._stream.definition
        stream_id, generation = definition.id, definition.generation
        for append, part in zip(requests, self._encode([r.row for r in requests], now), strict=True):
            if isinstance(part, Exception):
                append.fail(part)
                continue
            payload = part.encoded
            assert payload is not None
            append.bytes = len(payload)
            append.drafts = (Draft(
                frames.ROWS, stream_id, generation, part.streamlet, part.rows, now, version, payload, crc32(payload),
            ),)  # fmt: skip
