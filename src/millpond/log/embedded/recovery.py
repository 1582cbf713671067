"""What the journal remembers: recovered frames, sorted out by stream, decoded only when somebody reads them.

A frame may be there twice (copied forward, then a crash before the old file was removed): the later one counts.
Under the boundary frames may be missing (their file was let go of); above it they must be dense, or the journal is
damaged. A stream that is never archived has no boundary elsewhere: where it begins is its floor, which the journal
itself states before it lets go of anything under it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from millpond.errors import Damaged
from millpond.log.embedded import frame as frames
from millpond.log.embedded.frame import Frame
from millpond.log.embedded.journal import Journal, JournalFile, note_recovered
from millpond.log.embedded.journal_file import RESTORE
from millpond.log.live import LiveStream
from millpond.log.piece import ARROW, COPIED, ROWS, Piece, Place, copied_times
from millpond.log.producers import Producers
from millpond.log.segment import State
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange

KINDS = {frames.ARROW: ARROW, frames.ROWS: ROWS, frames.COPIED: COPIED}


class StreamState(msgspec.Struct):
    """What outlives a stream's frames: the next free offsets and its producers."""

    generation: int
    heads: list[int]
    producers: list[tuple[str, int, list[tuple[int, int, int]]]]


# Of streams that are never archived: the generation, and per streamlet the first offset that was not let go of.
Floors = dict[int, tuple[int, list[int]]]


class JournalState(msgspec.Struct):
    """The payload of a state frame. One that begins a file tells of all streams, one in the middle of what changed."""

    streams: dict[int, StreamState]
    floors: Floors = {}


def encode_state(state: JournalState) -> bytes:
    return msgspec.msgpack.encode(state)


@dataclass(slots=True)
class Recovered:
    """Everything the journal said, by stream."""

    frames: dict[int, dict[int, list[tuple[Frame, JournalFile]]]] = field(default_factory=dict)
    states: dict[int, StreamState] = field(default_factory=dict)
    floors: Floors = field(default_factory=dict)
    records: int = 0


def recover(journal: Journal, progress: Callable[[int, int], None]) -> Recovered:
    """Scan the journal. `Damaged` if anything that had been synced cannot be read."""
    found = Recovered()
    decoder = msgspec.msgpack.Decoder(JournalState)
    for file, scanned in journal.recover(progress):
        for frame in scanned.frames:
            if frame.kind in frames.DATA_KINDS:
                found.frames.setdefault(frame.stream, {}).setdefault(frame.streamlet, []).append((frame, file))
                found.records += frame.rows
                note_recovered(file, frame)
            elif frame.kind == frames.STATE:
                payload = file.view(frame.payload_at, frame.payload_bytes, frame.payload_crc)
                state = decoder.decode(payload)
                found.states.update(state.streams)
                found.floors.update(state.floors)
    return found


def restore_stream(recovered: Recovered, stream: LiveStream, producers: Producers, boundary: Mapping[int, int]) -> None:
    """Give a stream back its live half: everything from the boundary on, to be read in place from the journal."""
    definition = stream.definition
    state = recovered.states.pop(definition.id, None)
    by_streamlet = recovered.frames.pop(definition.id, {})
    floors = _floors(recovered, definition)
    if state is not None:
        producers.restore(state.producers)
        if state.generation != definition.generation:  # truncated since: what it knows of offsets is over
            state = None
            producers.truncated()
    _record_producers(producers, by_streamlet, definition.generation)
    for streamlet in stream.streamlets:
        number = streamlet.number
        found = [(f, file) for f, file in by_streamlet.get(number, ()) if f.generation == definition.generation]
        settled = max(boundary.get(number, 0), floors[number] if number < len(floors) else 0)
        known = state.heads[number] if state is not None and number < len(state.heads) else 0
        pieces = _dense(stream, number, _newest(found, settled), settled)
        if not pieces and known > settled:
            raise _missing(stream, number, settled, known, "the journal's first files")
        streamlet.start = streamlet.head = pieces[0].base if pieces else settled
        for piece in pieces:
            streamlet.publish(piece)
        if streamlet.head < known:
            raise _missing(stream, number, streamlet.head, known, "the journal ends too early")
        streamlet.close_active()
        for segment in streamlet.segments:
            segment.state = State.SPILLED
        streamlet.release(settled)
        stream.appended_bytes += sum(segment.bytes for segment in streamlet.segments)


def _floors(recovered: Recovered, definition: StreamDefinition) -> list[int]:
    """What was let go of for good. Of an archived stream the archive alone knows what it has."""
    generation, floors = recovered.floors.get(definition.id, (0, []))
    return floors if definition.settle is None and generation == definition.generation else []


def _record_producers(
    producers: Producers, by_streamlet: Mapping[int, list[tuple[Frame, JournalFile]]], generation: int
) -> None:
    """Appends that can be retried, in the order in which they were made: only the last few of each producer stay."""
    sent = [
        (file.number, frame.position, frame)
        for found in by_streamlet.values()
        for frame, file in found
        if frame.sequence and frame.producer
    ]
    for _, _, frame in sorted(sent, key=lambda each: each[:2]):
        here = frame.generation == generation  # of an earlier one only that it was sent is known
        ranges = {frame.streamlet: OffsetRange(frame.base, frame.base + frame.rows)} if here else {}
        producers.record(frame.producer.decode(), frame.sequence - 1, ranges)


def _newest(found: list[tuple[Frame, JournalFile]], settled: int) -> list[tuple[Frame, JournalFile]]:
    """The frames that reach over the boundary, in order of offset, each offset once: what was copied forward counts
    where it is newest."""
    above = [(frame, file) for frame, file in found if frame.base + frame.rows > settled]
    if not any(frame.kind == frames.COPIED for frame, _ in above):
        return above
    kept: list[tuple[Frame, JournalFile]] = []
    starts: list[int] = []  # what newer frames cover, as stretches that do not meet, in order
    stops: list[int] = []
    for frame, file in reversed(above):
        low, high = max(frame.base, settled), frame.base + frame.rows
        at = bisect_right(starts, low)
        if at and stops[at - 1] >= high:
            continue
        kept.append((frame, file))
        first, past = bisect_left(stops, low), bisect_right(starts, high)
        merged = min([low, *starts[first:past]]), max([high, *stops[first:past]])
        starts[first:past], stops[first:past] = [merged[0]], [merged[1]]
    return sorted(kept, key=lambda each: each[0].base)


def _dense(stream: LiveStream, streamlet: int, found: list[tuple[Frame, JournalFile]], settled: int) -> list[Piece]:
    """Frames as pieces, checked to follow one another without a gap."""
    pieces: list[Piece] = []
    for frame, file in found:
        expected = pieces[-1].end if pieces else min(frame.base, settled)
        if frame.base != expected:
            raise _missing(stream, streamlet, expected, frame.base, file.path)
        piece = Piece(
            frame.base,
            frame.rows,
            frame.payload_bytes,
            frame.ingest_micros,
            frame.schema_version,
            place=Place(file, frame.payload_at, frame.payload_bytes, frame.payload_crc, KINDS[frame.kind]),
        )
        if frame.kind == frames.COPIED:
            piece.ingest = copied_times(piece, stream.definition)
        pieces.append(piece)
    return pieces


def _missing(stream: LiveStream, streamlet: int, start: int, stop: int, where: str) -> Damaged:
    return Damaged(
        f"{where}: stream {stream.definition.name!r}, streamlet {streamlet}: offsets [{start}, {stop}) are missing",
        hint=RESTORE,
    )
