"""The two halves of one stream, live and settled, read as one. Only this room knows both.

A snapshot takes the boundary B from the archive first and the heads from the log second: what lies in [B, head) is then
live, or was when the heads were taken. A settle that finishes later moves records under its own, higher boundary
and the log lets go of them; they are in the newest objects then, under the same offsets. So a range is read from the
log for as long as the log has it, and from newer objects where it no longer has. Records that were loaded straight into
the archive are a streamlet of their own, whose head is its boundary; the log is never asked for it. Its offsets have
gaps, which may be wide: `skip_gap` goes over them, `rows_between` counts.

What has expired (the stream's ttl) is never given out: a snapshot fixes the cutoff. Where expired records were dropped
before they settled, no half has them; a reader passes over them, unless its own cutoff is an older one: it is told.

Invariant: `read_range` gives every kept record of the range exactly once, in the order of offsets, whatever settles
meanwhile, or raises `OffsetGone`. It goes on at the offset after the last one it gave out. Rows are counted only where
all of a range is read from a log whose offsets have no gaps (`LogEngine.dense`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from millpond.archive.stream_archive import StreamArchive
from millpond.clock import Clock, SystemClock
from millpond.errors import OffsetGone, Truncated
from millpond.log.engine import LogEngine
from millpond.log.live import truncated
from millpond.model.definition import StreamDefinition
from millpond.model.ingested import ingested_since
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Predicate
from millpond.model.query_note import QueryNote
from millpond.model.schema import OFFSET
from millpond.query.loads import loaded
from millpond.query.ordered import Pace, read_in_order
from millpond.query.snapshot import Snapshot
from millpond.query.terms import both, is_never


class Halves:
    """One stream's log and archive. Thread-safe: it holds no state of its own."""

    def __init__(
        self,
        definition: Callable[[], StreamDefinition],
        log: LogEngine,
        archive: StreamArchive,
        clock: Clock | None = None,
        note_query: Callable[[QueryNote], None] | None = None,
    ) -> None:
        """`note_query`: is told of each scan; it neither waits nor raises."""
        self._definition = definition
        self.log = log
        self.archive = archive
        self._clock = clock or SystemClock()
        self.note_query = note_query
        # Per generation and streamlet what was dropped live in this process, and by which cutoff.
        self._dropped: dict[tuple[int, int], tuple[OffsetRange, int]] = {}

    @property
    def definition(self) -> StreamDefinition:
        """The stream as it is now; an error if it was dropped."""
        return self._definition()

    def snapshot(self) -> Snapshot:
        """What is there now. The order matters: see above. The log says which generation it is."""
        while True:
            definition = self.definition
            settled = self.archive.snapshot()
            floor = self.log.starts(definition.id) if definition.settle is None else {}
            generation, heads = self.log.standing(definition.id)
            if settled.generation == generation:
                fixed = {s: max(heads.get(s, 0), settled.boundary.get(s, 0)) for s in range(definition.streamlets)}
                fixed |= loaded(settled, definition)
                return Snapshot(settled, fixed, generation, self.cutoff_micros(), floor)
            # Truncated a moment ago: nothing of the new generation has settled yet.
            self.archive.begin_generation(generation)

    @property
    def generation(self) -> int:
        """The stream's generation now."""
        return self.log.standing(self.definition.id).generation

    def heads(self, generation: int | None = None) -> dict[int, int]:
        """Where each streamlet ends now, without a snapshot of what has settled. Quick. `Truncated` if `generation` is
        given and not the stream's any more."""
        definition = self.definition
        settled = self.archive.snapshot()
        now, heads = self.log.standing(definition.id)
        if generation is not None and (generation != now or generation != settled.generation):
            raise truncated(definition.name, generation, now)
        return heads | loaded(settled, definition)

    def wait(self, beyond: Mapping[int, int], timeout_seconds: float) -> bool:
        """Whether there is something past the offsets given, at once or before the time is up. A load is noticed at the
        end of that time at the latest."""
        definition = self.definition

        def more_loaded() -> bool:
            now = loaded(self.archive.snapshot(), definition)
            return any(head > beyond.get(streamlet, 0) for streamlet, head in now.items())

        return more_loaded() or self.log.wait(definition.id, beyond, timeout_seconds) or more_loaded()

    def cutoff_micros(self) -> int | None:
        """What was ingested before this has expired by now; None if the stream keeps its records for good."""
        return self.definition.cutoff_micros(self._clock.now_micros())

    def note_dropped(self, ranges: Mapping[int, OffsetRange], cutoff_micros: int) -> None:
        """These live records, ingested before the cutoff, are about to be let go of without having settled."""
        generation = self.generation
        dropped = {key: known for key, known in self._dropped.items() if key[0] == generation}
        for streamlet, offsets in ranges.items():
            known, before = dropped.get((generation, streamlet), (offsets, cutoff_micros))
            hull = OffsetRange(min(known.start, offsets.start), max(known.stop, offsets.stop))
            dropped[generation, streamlet] = (hull, max(before, cutoff_micros))
        self._dropped = dropped

    def read_range(
        self,
        generation: int,
        streamlet: int,
        offsets: OffsetRange,
        columns: Sequence[str],
        predicate: Predicate | None = None,
        pace: Pace | None = None,
        *,
        cutoff_micros: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range that match a ready predicate, in order; `columns` are in them, and may be others.
        `cutoff_micros` is the snapshot's: what was ingested before is left out."""
        if is_never(predicate):
            return
        if cutoff_micros is not None:
            predicate = both(predicate, ingested_since(cutoff_micros))
        # Offsets are derived for those who want them: whole segments without them leave as they are.
        live = streamlet != self.definition.load_streamlet
        counted = OFFSET not in columns and predicate is None and self.log.dense and live
        reading = [*columns, *(() if OFFSET in columns or counted else (OFFSET,))]
        at = offsets.start
        while at < offsets.stop:
            held = True
            for batch in self._while_live(generation, streamlet, OffsetRange(at, offsets.stop), reading, predicate):
                if batch is None:
                    held = False
                else:
                    at = at + batch.num_rows if counted else batch.column(OFFSET)[-1].as_py() + 1
                    yield batch
            if held:
                return
            settled = self.archive.snapshot()
            if settled.generation != generation:
                raise truncated(self.definition.name, generation, self.generation)
            self._check_dropped(generation, streamlet, OffsetRange(at, offsets.stop), cutoff_micros)
            reached = min(settled.boundary.get(streamlet, 0), offsets.stop)
            if reached <= at:
                at = self._past_floor(streamlet, OffsetRange(at, offsets.stop))
                continue
            for _, batch in read_in_order(settled, {streamlet: OffsetRange(at, reached)}, reading, predicate, pace):
                yield batch
            at = reached

    def _while_live(
        self,
        generation: int,
        streamlet: int,
        offsets: OffsetRange,
        columns: Sequence[str],
        predicate: Predicate | None,
    ) -> Iterator[pa.RecordBatch | None]:
        """The range for as long as the log has it; None at the end if it let go of the rest."""
        if streamlet == self.definition.load_streamlet:
            yield None
            return
        try:
            stream_id = self.definition.id
            for batch in self.log.read(
                stream_id, streamlet, offsets, columns=columns, predicate=predicate, generation=generation
            ):
                if batch.num_rows:
                    yield batch
        except Truncated:
            raise
        except OffsetGone:
            yield None

    def check_generation(self, generation: int) -> None:
        """`Truncated` if the stream was since: its offsets mean other records now."""
        now = self.generation
        if now != generation:
            raise truncated(self.definition.name, generation, now)

    def _check_dropped(self, generation: int, streamlet: int, offsets: OffsetRange, cutoff_micros: int | None) -> None:
        """`OffsetGone` if of these records some were dropped that had not expired by this cutoff."""
        dropped, cutoff = self._dropped.get((generation, streamlet), (OffsetRange(0, 0), 0))
        if len(dropped.intersect(offsets)) and (cutoff_micros is None or cutoff > cutoff_micros):
            raise OffsetGone(
                f"offsets {dropped.intersect(offsets)} of streamlet {streamlet} of {self.definition.name} have expired "
                "since this read began",
                hint="read again: what is left is given then",
            )

    def _past_floor(self, streamlet: int, offsets: OffsetRange) -> int:
        """Where a stream that is never archived begins by now: what lies before has expired."""
        definition = self.definition
        floor = self.log.starts(definition.id).get(streamlet, 0)
        if definition.settle is not None or floor <= offsets.start:
            raise self._gone(streamlet, offsets)
        return floor

    def _gone(self, streamlet: int, offsets: OffsetRange) -> OffsetGone:
        return OffsetGone(
            f"offsets {offsets} of streamlet {streamlet} of {self.definition.name} are neither live nor settled",
            hint='start="earliest" begins at the first record that is still there',
        )
