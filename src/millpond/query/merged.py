"""Reading all streamlets as one, in the order of time: the event time, or that of ingestion where there is none.

Records are held back until no earlier one is to be expected. With a bound B (`merge_within`) a record goes out

- when every streamlet has come to a record that is B later than it, or
- when every streamlet has been read up to B after its ingestion, as far as its head once that is in the past, or
- when one goes out that is later than it.

So a record comes behind a later one only if it was late itself: by more than B in the time of ingestion, or by more
than B against its own streamlet. Nothing is ever lost or given twice by one read, however late. What is held is
bounded: over `HELD_BYTES_MAX` the earlier half goes out, in order among itself.

The position never goes past a record that is held back: reading on from it gives every record that was not handed out,
and again those that had overtaken a held one of their own streamlet (none where each streamlet is in order by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.clock import Clock
from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.schema import INGEST_TIME, OFFSET, STREAMLET, TIMESTAMP
from millpond.model.sizes import about_bytes
from millpond.model.units import Duration, parse_seconds
from millpond.query.halves import Halves
from millpond.query.overtaken import Numbers, Overtaken, places_of
from millpond.query.positions import Start
from millpond.query.projection import pieces
from millpond.query.reader import StreamReader, read
from millpond.query.snapshot import Snapshot

# What is held back at most, whatever the bound is.
HELD_BYTES_MAX = 128_000_000
# Whether something may go out is looked at when so many records have come, or half as many as are held.
_LOOK_ROWS = 65_536
# Followers would wait for longer than anybody does.
WITHIN_SECONDS_MAX = 3_600.0
# The raw events' own time.
_RAW_TIME = "time"

# Before and after every time.
_BEFORE, _AFTER = -(2**63), 2**63 - 1


@dataclass
class _Lane:
    """One streamlet: the next offset to read, up to which head, the latest time seen, and the time of ingestion up to
    which everything is known."""

    streamlet: int
    at: int
    stop: int
    latest: int = _BEFORE
    known_to: int = _BEFORE
    batches: Iterator[pa.RecordBatch] | None = None


class _Held:
    """Records that wait, with their times."""

    def __init__(self, schema: pa.Schema) -> None:
        self.batch = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        self.times = self.ingested = np.empty(0, np.int64)
        self._new: list[tuple[pa.RecordBatch, Numbers, Numbers]] = []
        self.bytes = self._new_rows = 0

    def add(self, batch: pa.RecordBatch, times: Numbers, ingested: Numbers) -> None:
        self._new.append((batch, times, ingested))
        self._new_rows += batch.num_rows
        self.bytes += about_bytes(batch)

    def __len__(self) -> int:
        return int(self.batch.num_rows) + self._new_rows

    @property
    def worth_a_look(self) -> bool:
        return self._new_rows >= max(_LOOK_ROWS, self.batch.num_rows // 2) or self.bytes > HELD_BYTES_MAX

    def gather(self) -> None:
        """What has come is with the rest."""
        if not self._new:
            return
        batches, times, ingested = zip(*self._new, strict=True)
        self._new, self._new_rows = [], 0
        self.batch = pa.concat_batches([self.batch, *batches])
        self.times = np.concatenate((self.times, *times))
        self.ingested = np.concatenate((self.ingested, *ingested))

    def take_to(self, time: int) -> pa.RecordBatch:
        """Those up to a time, in order."""
        out = self.times <= time
        streamlets, offsets = places_of(self.batch)
        chosen = np.flatnonzero(out)
        order = chosen[np.lexsort((offsets[chosen], streamlets[chosen], self.times[chosen]))]
        taken = self.batch.take(pa.array(order))
        self.batch = self.batch.filter(pa.array(~out))
        self.times, self.ingested = self.times[~out], self.ingested[~out]
        self.bytes = self.batch.nbytes
        return taken


class MergedReader(StreamReader):
    """A `StreamReader` whose batches hold records of all streamlets in the order of time, within a bound."""

    def __init__(
        self, *given: Any, bound_seconds: float, now_micros: Callable[[], int], known_at: int, **more: Any
    ) -> None:
        self._bound = round(bound_seconds * 1e6)
        self._now = now_micros
        self._known_at = known_at
        self._overtaken = Overtaken()
        self._went_out = _BEFORE
        super().__init__(*given, **more)
        definition = self._halves.definition
        self._time = _time_column(definition)
        self._reading = self._projection.reading(STREAMLET, OFFSET, INGEST_TIME, *((self._time,) if self._time else ()))

    # The rounds of a `StreamReader`, with everything read by streamlet.

    def _take_snapshot(self) -> Snapshot:
        self._known_at = self._now()  # before the heads are taken: up to here they are complete
        return super()._take_snapshot()

    def _go_over(self) -> Snapshot:
        self._overtaken, self._went_out = Overtaken(), _BEFORE
        return super()._go_over()

    def _take_heads(self) -> Mapping[int, int]:
        self._known_at = self._now()
        return super()._take_heads()

    def _read_settled(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        self._lanes: dict[int, _Lane] = {}
        self._held: _Held | None = None
        return iter(())  # read by streamlet, with the rest

    def _read_to(self) -> Mapping[int, int]:
        return {lane.streamlet: lane.at for lane in self._lanes.values()}

    @property
    def _holds_back(self) -> bool:
        return self._held is not None and len(self._held) > 0

    def _read_live(self, heads: Mapping[int, int], cutoff_micros: int | None) -> Iterator[pa.RecordBatch]:
        for streamlet, head in heads.items():
            lane = self._lanes.get(streamlet)
            if lane is None:
                lane = self._lanes[streamlet] = _Lane(streamlet, self._position.get(streamlet, 0), head)
            self._begin(lane, head, cutoff_micros)
        while self._left != 0:
            lane = min((each for each in self._lanes.values() if each.batches), key=_known_to, default=None)
            if lane is None:
                break
            self._read_on(lane)
            if self._held is not None and self._held.worth_a_look:
                yield from self._go_out(everything=False)
        yield from self._go_out(everything=not self._follow)
        if not self._holds_back and self._left != 0:
            self._position.update(self._read_to())

    def _begin(self, lane: _Lane, head: int, cutoff_micros: int | None) -> None:
        lane.stop = max(lane.at, head)
        if lane.at < head:
            offsets = OffsetRange(lane.at, head)
            lane.batches = self._halves.read_range(
                self._generation,
                lane.streamlet,
                offsets,
                self._reading,
                self._predicate,
                self._pace,
                cutoff_micros=cutoff_micros,
            )
        else:
            lane.known_to = self._known_at

    def _read_on(self, lane: _Lane) -> None:
        assert lane.batches is not None
        batch = next(lane.batches, None)
        if batch is None:
            lane.batches, lane.at, lane.known_to = None, lane.stop, self._known_at
            return
        lane.at = batch.column(OFFSET)[-1].as_py() + 1
        batch = self._overtaken.without(_only(batch, self._reading))
        if batch.num_rows:
            ingested = _micros(batch.column(INGEST_TIME))
            times = _times_of(batch, self._time, ingested)
            lane.latest = max(lane.latest, int(times.max()))
            lane.known_to = max(lane.known_to, int(ingested.max()))
            if self._held is None:
                self._held = _Held(batch.schema)
            self._held.add(batch, times, ingested)

    # What goes out.

    def _go_out(self, everything: bool) -> Iterator[pa.RecordBatch]:
        held = self._held
        if held is None or not len(held):
            return
        held.gather()
        self._went_out = _AFTER if everything else max(self._went_out, self._due(held))
        batch = held.take_to(self._went_out)
        if not batch.num_rows:
            return
        ahead = _Ahead(batch, held.batch, self._read_to())
        handed = 0
        for piece in pieces(batch, self._batch_rows, self.batch_bytes):
            if self._left is not None:
                piece = piece.slice(0, self._left)
                if not piece.num_rows:
                    return
                self._left -= piece.num_rows
            handed += piece.num_rows
            self._position.update(ahead.position_after(handed))
            self._overtaken.handed_out(piece, self._position)
            yield from self._give(piece)

    def _due(self, held: _Held) -> int:
        """The time up to which records go out now."""
        lanes = self._lanes.values()
        latest = min(lane.latest for lane in lanes)
        passed = latest - self._bound if latest > _BEFORE + self._bound else _BEFORE
        known_to = min(lane.known_to for lane in lanes)
        old = held.times[held.ingested <= known_to - self._bound] if known_to > _BEFORE + self._bound else ()
        due = max(passed, int(np.max(old)) if len(old) else _BEFORE)
        if held.bytes > HELD_BYTES_MAX:
            due = max(due, int(np.median(held.times)))
        return due


class _Ahead:
    """Where each streamlet goes on, for every number of records of a batch that were handed out."""

    def __init__(self, batch: pa.RecordBatch, held: pa.RecordBatch, read_to: Mapping[int, int]) -> None:
        streamlets, offsets = places_of(batch)
        held_streamlets, held_offsets = places_of(held)
        self._of: dict[int, tuple[Numbers, Numbers]] = {}
        for streamlet, beyond in read_to.items():
            mine = np.flatnonzero(streamlets == streamlet)
            behind = held_offsets[held_streamlets == streamlet]
            last = int(behind.min()) if len(behind) else beyond
            # The least offset of what is left, behind each of them and behind all.
            least = np.minimum.accumulate(np.append(offsets[mine], last)[::-1])[::-1]
            self._of[streamlet] = (mine, least)

    def position_after(self, handed: int) -> dict[int, int]:
        return {s: int(least[np.searchsorted(mine, handed)]) for s, (mine, least) in self._of.items()}


def read_merged(
    halves: Halves, start: Start = "earliest", *, within: Duration, clock: Clock, **options: Any
) -> StreamReader:
    """As `read`, with the records of all streamlets in the order of time, as far as they are late by less than
    `within`."""
    bound_seconds = check_within(within)
    known_at = clock.now_micros()  # before the heads are taken: up to here they are complete

    def make(*given: Any, **more: Any) -> MergedReader:
        return MergedReader(*given, bound_seconds=bound_seconds, now_micros=clock.now_micros, known_at=known_at, **more)

    return read(halves, start, make=make, **options)


def check_within(within: Duration) -> float:
    """A bound in seconds; `InvalidValue` if records would wait for too long or not at all."""
    seconds = parse_seconds(within)
    if not 0 < seconds <= WITHIN_SECONDS_MAX:
        raise InvalidValue(f"merge_within={within!r}", hint=f"more than 0, at most {WITHIN_SECONDS_MAX:g} s")
    return seconds


def _known_to(lane: _Lane) -> int:
    return lane.known_to


def _time_column(definition: StreamDefinition) -> str | None:
    return definition.event_time or (_RAW_TIME if definition.raw else None)


def _times_of(batch: pa.RecordBatch, column: str | None, ingested: Numbers) -> Numbers:
    if column is None:
        return ingested
    times = batch.column(column)
    if times.type != TIMESTAMP:
        times = times.cast(TIMESTAMP)
    return _micros(pc.coalesce(times, batch.column(INGEST_TIME)) if times.null_count else times)


def _micros(times: pa.Array) -> Numbers:
    return np.asarray(times.cast(pa.int64()))


def _only(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """These columns alone, in this order, so that batches of both halves go together."""
    return batch.select(names) if batch.schema.names != names else batch
