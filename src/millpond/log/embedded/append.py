"""An append on its way into the log: from parts, or from a single record that is yet to be encoded, to drafts.

Parts are serialised and checksummed by the caller's thread: for large batches that is the heavy work, and it runs
beside other callers'. Single records are the other way round. Waking up a caller's thread costs far more than encoding
its record, and everything that thread touches was last in another core's cache; so it only queues the record, and the
committer encodes those of a whole group in one go and writes them as one append.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

from millpond.clock import Clock
from millpond.errors import InvalidValue, StreamNotFound, TooLarge
from millpond.log.embedded import frame as frames
from millpond.log.embedded.commit_queue import CommitQueue, Request
from millpond.log.embedded.frame import PRODUCER_BYTES_MAX, Draft, crc32
from millpond.log.engine import Ack, EncodeRows, Part, Told
from millpond.log.keeper import Keeper
from millpond.log.live import LiveStream
from millpond.log.piece import Piece
from millpond.model.definition import Durability
from millpond.model.offsets import OffsetRange

logger = logging.getLogger(__name__)

# The largest sequence that fits the frame's field, which stores one more.
SEQUENCE_MAX = 2**63 - 2


class Append(Request):
    """Of one stream. `pieces` is what of it was published before it was written, by part, to be told its place in the
    journal."""

    stream: LiveStream
    row: Any = None
    pieces: Sequence[tuple[int, Piece]] = ()


def draft_parts(append: Append, parts: Sequence[Part], now_micros: int, version: int, producer: bytes) -> None:
    """Give an append its drafts: serialise and checksum its parts."""
    stream = append.stream
    definition, streamlets = stream.definition, len(stream.streamlets)
    sequence = append.sequence + 1 if producer else 0
    drafts: list[Draft] = []
    for part in parts:
        if not 0 <= part.streamlet < streamlets:
            raise InvalidValue(f"no streamlet {part.streamlet}", hint=f"0 to {streamlets - 1}")
        if part.rows < 1:
            raise InvalidValue("a part without rows", hint="leave it out")
        payload = _payload(part)
        drafts.append(Draft(
            frames.ROWS if part.batch is None else frames.ARROW, definition.id, definition.generation, part.streamlet,
            part.rows, now_micros, version, payload, crc32(payload), producer, sequence,
        ))  # fmt: skip
    append.drafts, append.bytes = drafts, sum(len(d.payload) for d in drafts)


def _payload(part: Part) -> bytes | memoryview:
    """A part's bytes for the journal. Readers are given what these say, so that memory and journal hold the same,
    whatever the caller does with its arrays afterwards."""
    if part.batch is None:
        assert part.encoded is not None
        return part.encoded
    return memoryview(part.batch.serialize())


def checked_producer(producer: str, sequence: int) -> tuple[bytes, int]:
    """A producer's name as frames have it, and its sequence as a plain number, whatever kind of one it came as: what
    the committer cannot write down would close the journal for everybody."""
    try:
        name, number = producer.encode(), operator.index(sequence)
    except (AttributeError, TypeError, UnicodeEncodeError):
        name, number = b"", -1
    if len(name) > PRODUCER_BYTES_MAX or not 0 <= number <= SEQUENCE_MAX:
        raise InvalidValue(
            f"producer {str(producer)[:40]!r} with sequence {sequence!r}",
            hint=f"a producer is text of at most {PRODUCER_BYTES_MAX} bytes, a sequence an int, 0 to {SEQUENCE_MAX}",
        )
    return name, number


def check_bytes(size: int, bytes_max: int, *, what: str = "an append", setting: str = "append_bytes_max") -> None:
    """`TooLarge` if an append has too many bytes."""
    if size > bytes_max:
        raise TooLarge(
            f"{what} of {size:,} bytes is over the bound of {bytes_max:,}",
            hint=f"split it, or raise the setting {setting}",
        )


class Submitted(Append):
    """An append that nobody waits for: whoever submitted it is told."""

    def __init__(self, durability: Durability, stream: LiveStream, told: Told) -> None:
        # No lock to wait on, hence not the base's.
        self.durability, self.stream, self._told = durability, stream, told

    def finish(self) -> None:
        assert not self.finished
        self.finished = True
        if self.error is not None:
            self.stream.refused.error(self.error)
        try:
            self._told(self.answer, self.error)
        except Exception:  # the committer and everybody else's appends go on
            logger.exception("whoever submitted an append failed when it was told")


class _TogetherRows(Append):
    """Single records of one stream, committed as one append: a frame for each would cost as much as the record."""

    members: Sequence[tuple[Append, int, int]] = ()  # each with the part and the row of it that it is

    def acknowledge(self) -> None:
        durability, drafts, bases = self.durability, self.drafts, self.bases
        for member, part, row in self.members:
            at = bases[part] + row
            member.answer = Ack({drafts[part].streamlet: OffsetRange(at, at + 1)}, durability)
        self.finished = True
        for member, _, _ in self.members:
            member.finish()

    def fail(self, error: BaseException) -> None:
        self.finished = True
        for member, _, _ in self.members:
            member.fail(error)


class SingleRows:
    """The `RowAppender` of one stream, and the maker of its appends' drafts."""

    def __init__(
        self,
        stream: LiveStream,
        encode: EncodeRows,
        version: int,
        clock: Clock,
        keeper: Keeper,
        wait: Callable[[LiveStream, float | None], None],
        queue: CommitQueue,
    ) -> None:
        """`wait` is called when memory may be full: for at most so many seconds, None for as long as is set."""
        self._stream, self._encode, self._version, self._clock = stream, encode, version, clock
        self._keeper, self._wait, self._queue, self._put = keeper, wait, queue, queue.put

    def __call__(self, row: Any, durability: Durability) -> Ack:
        # As few steps as can be: see above.
        append = Append(durability, self._stream)
        append.row, append.maker = row, self
        if self._keeper.tight:
            self._wait(self._stream, None)
        self._put(append)
        if append.error is not None:
            raise append.error
        assert append.answer is not None
        return append.answer

    def submit(self, row: Any, durability: Durability, told: Told) -> None:
        append = Submitted(durability, self._stream, told)
        append.row, append.maker = row, self
        if self._keeper.tight:
            self._wait(self._stream, 0)
        self._queue.submit(append)

    def make(self, requests: list[Append]) -> list[Append]:
        """In the committer's thread."""
        stream = self._stream
        if stream.dropped:
            raise StreamNotFound(f"stream {stream.definition.name!r} was dropped", hint="create it again")
        now = self._clock.now_micros()
        parts, places = self._encode([request.row for request in requests], now)
        members: list[tuple[Append, int, int]] = []
        for request, place in zip(requests, places, strict=True):
            if isinstance(place, Exception):
                request.fail(place)
            elif place is None:
                request.answer = Ack({}, request.durability, filtered=1)
                request.finish()
            else:
                members.append((request, *place))
        if not members:
            return []
        together = _TogetherRows(requests[0].durability, stream)
        together.members, together.appends = members, len(members)
        draft_parts(together, parts, now, self._version, b"")
        return [together]
