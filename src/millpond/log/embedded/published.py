"""What the log has published: its streams and their producers, and how a committed group becomes visible to readers.

One lock covers all that readers see, so a group appears at once; it is held for microseconds. Small appends of a group
to one streamlet become one piece: a piece each would cost more than the append itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from millpond.log.embedded import frame as frames
from millpond.log.embedded.append import Append
from millpond.log.embedded.frame import Draft
from millpond.log.embedded.journal import JournalFile, Written
from millpond.log.embedded.recovery import KINDS, Floors, JournalState, StreamState, encode_state
from millpond.log.embedded.together import Together
from millpond.log.keeper import PLACE_BYTES_MIN, Keeper
from millpond.log.live import LiveStream
from millpond.log.piece import Piece, Place
from millpond.log.producers import Producers, Ranges
from millpond.log.spill import SpillFile
from millpond.log.streamlet import Streamlet
from millpond.model.definition import StreamDefinition


class _Run:
    """Small appends to one streamlet, one after another."""

    __slots__ = ("base", "blobs", "bytes", "rows", "streamlet", "times", "version")

    def __init__(self, streamlet: Streamlet, base: int, version: int) -> None:
        self.streamlet, self.base, self.version = streamlet, base, version
        self.blobs: list[bytes] = []
        self.times: list[int] = []
        self.rows: list[int] = []
        self.bytes = 0

    def piece(self) -> Piece:
        first = self.times[0]
        same = self.times.count(first) == len(self.times)
        ingest = first if same else np.repeat(np.array(self.times, np.int64), self.rows)
        return Piece(self.base, sum(self.rows), self.bytes, ingest, self.version, encoded=self.blobs)


class Published:
    """The committer's target; see `Target`. `lock` is the log's. Streams are replaced as a whole, never changed."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.streams: Mapping[int, LiveStream] = {}
        self.producers: dict[int, Producers] = {}
        self.truncated: Mapping[int, int] = {}  # the generation of streams that were, since the log was opened
        self.unclaimed: Mapping[int, StreamState] = {}  # of streams that recovery found and nobody has added yet
        self.floors: Floors = {}  # as the journal has them
        self.keeper: Keeper

    # The lock is held.

    def add(self, stream: LiveStream, producers: Producers) -> None:
        """Take in a stream."""
        self.streams = {**self.streams, stream.definition.id: stream}
        self.producers[stream.definition.id] = producers

    def truncate(self, stream: LiveStream, definition: StreamDefinition) -> list[SpillFile]:
        """Begin a new generation of a stream, empty: the files that the old one leaves behind."""
        files = self.keeper.forget(stream, stream.truncate(definition))
        self.producers[definition.id].truncated()
        self.truncated = {**self.truncated, definition.id: definition.generation}
        return files

    def drop(self, stream_id: int) -> None:
        """Let go of a stream."""
        self.streams = {key: value for key, value in self.streams.items() if key != stream_id}
        self.floors = {key: value for key, value in self.floors.items() if key != stream_id}
        self.producers.pop(stream_id, None)

    # The committer's thread.

    def known(self, stream: int, producer: str, sequence: int) -> Ranges | None:
        producers = self.producers.get(stream)
        return producers.find(producer, sequence) if producers is not None else None

    def head(self, stream: int, streamlet: int) -> int:
        live = self.streams.get(stream)
        return live.streamlets[streamlet].head if live is not None else 0

    def publish(self, requests: Sequence[Append | Together], written: Written | None) -> None:
        grown: dict[LiveStream, dict[int, _Run]] = {}
        with self._lock:
            for index, request in enumerate(requests):
                file, places = (written.file, written.places[index]) if written is not None else (None, ())
                if isinstance(request, Together):
                    for member, share in request.shares():
                        self._publish(member, file, places[share], grown)
                else:
                    self._publish(request, file, places, grown)
            for stream, runs in grown.items():
                for streamlet in list(runs):
                    self._end_run(stream, runs, streamlet)
                stream.grown.notify_all()

    def _publish(
        self, append: Append, file: JournalFile | None, places: Sequence[int], grown: dict[LiveStream, dict[int, _Run]]
    ) -> None:
        stream, bases = append.stream, append.bases
        if stream.definition.id not in self.streams:
            return  # dropped while the append was on its way
        runs = grown.get(stream)
        if runs is None:
            runs = grown[stream] = {}
        stream.appends += append.appends
        for at, draft in enumerate(append.drafts):
            rows = draft.kind == frames.ROWS
            if rows and len(draft.payload) < PLACE_BYTES_MIN:
                self._add_small(stream, runs, draft, bases[at])
                continue
            self._end_run(stream, runs, draft.streamlet)
            piece = Piece(
                bases[at], draft.rows, len(draft.payload), draft.ingest_micros, draft.schema_version,
                payload=None if rows else draft.payload, encoded=(bytes(draft.payload),) if rows else None,
            )  # fmt: skip
            if file is not None:
                piece.place = _place(file, places[at], draft)
            else:
                append.pieces = [*append.pieces, (at, piece)]
            self._show(stream, stream.streamlets[draft.streamlet], piece)
        if append.producer:
            self.producers[stream.definition.id].record(append.producer, append.sequence, append.ranges())

    def _add_small(self, stream: LiveStream, runs: dict[int, _Run], draft: Draft, base: int) -> None:
        run = runs.get(draft.streamlet)
        if run is None or run.version != draft.schema_version:
            if run is not None:
                self._end_run(stream, runs, draft.streamlet)
            run = runs[draft.streamlet] = _Run(stream.streamlets[draft.streamlet], base, draft.schema_version)
        run.blobs.append(bytes(draft.payload))
        run.times.append(draft.ingest_micros)
        run.rows.append(draft.rows)
        run.bytes += len(draft.payload)

    def _end_run(self, stream: LiveStream, runs: dict[int, _Run], streamlet: int) -> None:
        run = runs.pop(streamlet, None)
        if run is not None:
            self._show(stream, run.streamlet, run.piece())

    def _show(self, stream: LiveStream, streamlet: Streamlet, piece: Piece) -> None:
        stream.appended_bytes += piece.bytes
        closed = streamlet.publish(piece)
        self.keeper.published(stream, streamlet.segments[-1], piece, closed)

    def placed_later(self, request: Append | Together, file: JournalFile, places: Sequence[int]) -> None:
        if isinstance(request, Together):
            for member, share in request.shares():
                self.placed_later(member, file, places[share])
            return
        for at, piece in request.pieces:
            piece.place = _place(file, places[at], request.drafts[at])

    def state(self, unwritten: Sequence[Append | Together]) -> bytes:
        with self._lock:  # streams may be dropped meanwhile
            known_streams = [(stream, self.producers[i]) for i, stream in self.streams.items()]
        heads = {stream.definition.id: [x.head for x in stream.streamlets] for stream, _ in known_streams}
        generations = {stream.definition.id: stream.definition.generation for stream, _ in known_streams}
        for request in unwritten:
            for draft, base in zip(request.drafts, request.bases, strict=True):
                if generations.get(draft.stream) == draft.generation:
                    known = heads[draft.stream]
                    known[draft.streamlet] = min(known[draft.streamlet], base)
        # Their retries must be appends again after a crash, so what is written down must not know them either.
        owed = {(r.drafts[0].stream, r.producer, r.sequence) for r in unwritten if r.producer}
        streams = {
            (i := stream.definition.id): StreamState(
                stream.definition.generation,
                heads[i],
                [each for each in producers.state() if (i, each[0], each[1]) not in owed],
            )
            for stream, producers in known_streams
        }
        return encode_state(JournalState({**self.unclaimed, **streams}, self.floors | self.floors_now(unwritten)))

    def floors_now(self, unwritten: Sequence[Append | Together]) -> Floors:
        """Where streams that are never archived begin, as far as they are written."""
        with self._lock:
            own = [stream for stream in self.streams.values() if stream.definition.settle is None]
            floors = {x.definition.id: (x.definition.generation, [s.start for s in x.streamlets]) for x in own}
        for request in unwritten:
            for draft, base in zip(request.drafts, request.bases, strict=True):
                generation, starts = floors.get(draft.stream, (0, []))
                if generation == draft.generation:
                    starts[draft.streamlet] = min(starts[draft.streamlet], base)
        return {i: known for i, known in floors.items() if any(known[1])}


def _place(file: JournalFile, at: int, draft: Draft) -> Place:
    return Place(file, at, len(draft.payload), draft.payload_crc, KINDS[draft.kind])
