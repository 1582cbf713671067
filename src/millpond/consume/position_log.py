"""The stream `_pond/positions`, as it is written: what groups have done, and which epochs were given out.

An epoch is never anybody else's, whatever is lost: so many at a time are reserved, by a synced record, before the first
of them is given. Records only grow in number until they are written together anew: then where all groups stand is
written first, and what came before is let go of after.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa

from millpond.clock import Clock
from millpond.consume.positions import POSITIONS, Fold, Key, epochs_row, position_parts
from millpond.log.engine import Ack, LogEngine, StreamAppend
from millpond.model.offsets import ranges_between

# Epochs are reserved so many at a time, with one synced record.
EPOCHS_AT_ONCE = 1_000
# Positions are written together again after so many records, or as many as there are groups, whichever is more.
COMPACT_RECORDS = 10_000

Row = tuple[str, Key, bytes]


class PositionLog:
    """Thread-safe, but for `compact`: nobody else writes meanwhile."""

    def __init__(self, log: LogEngine, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._epoch = self._reserved = 0
        self.written = sum(log.heads(POSITIONS.id).values()) - sum(log.starts(POSITIONS.id).values())
        self._failed = 0  # so many were written when writing them together failed last

    def replay(self) -> Fold:
        """What the records say; epochs go on from there."""
        fold = Fold.replay(self._records())
        self._epoch = self._reserved = fold.epochs
        return fold

    def _records(self) -> Iterable[pa.RecordBatch]:
        for streamlet, offsets in ranges_between(self._log.starts(POSITIONS.id), self._log.heads(POSITIONS.id)).items():
            yield from self._log.read(POSITIONS.id, streamlet, offsets)

    def next_epoch(self) -> int:
        """One that nobody had before."""
        with self._lock:
            if self._epoch >= self._reserved:
                # Durable before the first is given.
                self.write([epochs_row(self._reserved + EPOCHS_AT_ONCE)])
                self._reserved += EPOCHS_AT_ONCE
            self._epoch += 1
            return self._epoch - 1

    def append_of(self, row: Row, now_micros: int) -> StreamAppend:
        """A record, to be appended together with others: who does counts it in `written`."""
        return StreamAppend(POSITIONS.id, position_parts([row], now_micros), now_micros)

    def write(self, rows: Sequence[Row]) -> Ack:
        """What moves a group by hand is rare, and synced."""
        now = self._clock.now_micros()
        ack = self._log.append(POSITIONS.id, position_parts(rows, now), ingest_micros=now, durability="disk")
        self.written += len(rows)
        return ack

    def many(self, groups: int) -> bool:
        """Whether there are many more records than are needed for so many groups."""
        return self.written - self._failed > max(COMPACT_RECORDS, 2 * groups)

    def put_off(self) -> None:
        """To write them together has failed: not again before there are as many more."""
        self._failed = self.written

    def compact(self, rows: Sequence[Row]) -> None:
        """These rows say where all groups stand: let go of the records before."""
        with self._lock:  # no epochs are reserved meanwhile: that record would be let go of
            rows = [epochs_row(self._reserved), *rows]
            ack = self.write(rows)
            (start,) = (offsets.start for offsets in ack.ranges.values())
            self._log.release(POSITIONS.id, {0: start})
            self.written, self._failed = len(rows), 0
