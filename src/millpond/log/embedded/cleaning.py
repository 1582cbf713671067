"""Letting go of journal files: dead ones are removed; mostly dead ones are first emptied by copying forward.

All streams share the journal, so one idle stream with a few live records can pin a file full of settled ones. Its live
records are written again, as copied frames that carry their ingest times, at the journal's end; once those are synced
the file goes. A crash in between leaves records twice, which recovery sorts out by taking the newest.

Cleaning saves room and nothing else, so its errors (a full disk above all) never reach whoever released: they are kept
in `failure`, and the next release tries again.

Where a stream that is never archived begins is known to the journal alone: it is stated, and synced, before the file
goes that held what lies before it.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa

from millpond.log.embedded import frame as frames
from millpond.log.embedded.committer import Committer
from millpond.log.embedded.frame import Draft, crc32
from millpond.log.embedded.journal import Journal, JournalFile, Whose
from millpond.log.keeper import Keeper
from millpond.log.live import LiveStream
from millpond.log.piece import Chunk
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, TIMESTAMP

logger = logging.getLogger(__name__)

Live = dict[Whose, list[OffsetRange]]


class JournalCleaner:
    """Called after a release, by any thread; one pass at a time."""

    def __init__(
        self,
        journal: Journal,
        committer: Committer,
        keeper: Keeper,
        streams: Callable[[], Mapping[int, LiveStream]],
        ratio: float,
    ) -> None:
        self._journal, self._committer, self._keeper = journal, committer, keeper
        self._streams, self._ratio = streams, ratio
        self._one_at_a_time = threading.Lock()
        self.failure = ""

    def clean(self) -> None:
        """Remove what can go."""
        with self._one_at_a_time:
            try:
                files = self._journal.files[:-1]
                # Taken after the files: a stream that is made later has nothing in any of them.
                streams = self._streams()
                if not self._committer.refused:
                    self._committer.run_inside(self._committer.record_floors)
                for file in files:
                    if not self._committer.refused:
                        self._clean_file(file, streams)
                self.failure = ""
            except Exception as error:  # whatever it is: what was released is released
                self.failure = f"{type(error).__name__}: {error}"
                logger.warning("the journal cannot be cleaned: %s", self.failure, exc_info=True)

    def _clean_file(self, file: JournalFile, streams: Mapping[int, LiveStream]) -> None:
        live = _live(file, streams)
        if live and _share(file, live) < self._ratio:
            self._empty(file, live, streams)
            live = _live(file, streams)
        if not live:
            self._committer.run_inside(lambda: self._remove(file))

    def _remove(self, file: JournalFile) -> None:
        self._committer.record_floors()  # more may have been released since
        self._journal.remove(file)

    def _empty(self, file: JournalFile, live: Live, streams: Mapping[int, LiveStream]) -> None:
        """Copy a file's live records forward, and make segments that read from it read elsewhere."""
        drafts: list[tuple[Draft, int]] = []
        for (stream_id, _, streamlet), ranges in live.items():
            stream = streams[stream_id]
            definition = stream.definition
            segments = [s for s in stream.segments() if s.streamlet == streamlet]
            for segment in self._keeper.leave_file(segments, file.number):
                self._keeper.spill_to_file(stream, segment)
            for segment, offsets in itertools.product(segments, ranges):
                wanted = segment.offsets.intersect(offsets)
                if len(wanted):  # a spilled segment is read whole, whatever is wanted of it
                    for chunk in segment.chunks(wanted, definition, stream.codec):
                        drafts.append((_copy(definition, streamlet, chunk), chunk.base))
        self._committer.run_inside(lambda: self._write(file, drafts))

    def _write(self, file: JournalFile, drafts: list[tuple[Draft, int]]) -> None:
        self._committer.append_copies(drafts)
        file.references.clear()


def _live(file: JournalFile, streams: Mapping[int, LiveStream]) -> Live:
    """What a file holds that is still needed."""
    found: Live = {}
    for (stream_id, generation, streamlet), spans in list(file.references.items()):
        stream = streams.get(stream_id)
        if stream is not None and stream.definition.generation == generation:
            start = stream.streamlets[streamlet].start
            ranges = [OffsetRange(max(first, start), end) for first, end in spans if end > start]
            if ranges:
                found[stream_id, generation, streamlet] = ranges
    return found


def _share(file: JournalFile, live: Live) -> float:
    return sum(file.data_bytes[key] for key in live) / max(1, file.bytes)


def _copy(definition: StreamDefinition, streamlet: int, chunk: Chunk) -> Draft:
    schema = definition.schema.append(pa.field(INGEST_TIME, TIMESTAMP))
    times = pa.array(chunk.ingest).view(TIMESTAMP)
    payload = memoryview(pa.RecordBatch.from_arrays([*chunk.batch.columns, times], schema=schema).serialize())
    return Draft(
        frames.COPIED, definition.id, definition.generation, streamlet, chunk.batch.num_rows, int(chunk.ingest[0]),
        definition.schema_version, payload, crc32(payload),
    )  # fmt: skip
