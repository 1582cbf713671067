"""Reading a streamlet a little at a time: what was decoded and not yet taken stays for the next take.

A cursor stands at an offset and gives the rows behind it, in order, as far as the stream reaches now. It reads through
`Halves.read_range`, so it does not notice whether records are live or settled. Rows may be chosen by a `Select`; a take
covers a range of offsets all the same, with the rows that are not chosen, or are no longer there.

Records that expired are passed over and counted (`missed`). Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.consume.positions import SLOTS, Marks
from millpond.errors import OffsetGone
from millpond.model.hashing import hash_column
from millpond.model.offsets import OffsetRange
from millpond.model.schema import OFFSET
from millpond.model.sizes import about_bytes
from millpond.query import Halves
from millpond.query.positions import resolve
from millpond.query.projection import Projection

Offsets = npt.NDArray[np.int64]
# Where streamlets end now, asked for when everything that is decoded was taken.
Heads = Callable[[], Mapping[int, int]]


@dataclass(frozen=True)
class Select:
    """The rows of some slots, from each slot's own offset on. `by`: the column whose hash decides the slot; None: the
    offset does."""

    by: str | None
    owned: npt.NDArray[np.bool_]
    start: Marks

    def keep(self, batch: pa.RecordBatch, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Which rows are meant."""
        if self.by is None:
            slots = offsets % SLOTS
        else:
            slots = (hash_column(batch.column(self.by)) % np.uint64(SLOTS)).astype(np.int64)
        kept: npt.NDArray[np.bool_] = self.owned[slots]
        if offsets[0] < self.start[self.owned].max(initial=0):
            kept = kept & (offsets >= self.start[slots])
        return kept


class Taken(NamedTuple):
    """Rows, and the range of offsets that they are all the chosen rows of. No rows: there are none in it."""

    batch: pa.RecordBatch | None
    start: int
    stop: int
    missed: int


class _Decoded:
    """A batch that was read, and how far of it was taken."""

    __slots__ = ("at", "batch", "offsets", "row_bytes", "stop")

    def __init__(self, batch: pa.RecordBatch, offsets: Offsets, stop: int) -> None:
        self.batch, self.offsets, self.stop, self.at = batch, offsets, stop, 0
        self.row_bytes = about_bytes(batch) / batch.num_rows

    @property
    def left(self) -> int:
        return len(self.offsets) - self.at

    def under(self, offset: int) -> int:
        """How many of what is left lie under an offset."""
        return int(np.searchsorted(self.offsets[self.at :], offset))

    def take(self, rows: int) -> tuple[pa.RecordBatch, int]:
        """So many rows, and behind which offset they end."""
        at, self.at = self.at, self.at + rows
        if rows == len(self.offsets):
            return self.batch, self.stop
        stop = self.stop if self.at == len(self.offsets) else int(self.offsets[self.at - 1]) + 1
        return self.batch.slice(at, rows), stop


class Cursor:
    """At one place of one streamlet. `end`: where it ends; None: wherever the stream does."""

    def __init__(
        self,
        halves: Halves,
        generation: int,
        streamlet: int,
        at: int,
        *,
        select: Select | None = None,
        end: int | None = None,
    ) -> None:
        self._halves, self._generation, self._streamlet = halves, generation, streamlet
        self.at = at
        self.select, self._end = select, end
        self._covered = at  # everything before was decoded
        self._missed = 0
        self._decoded: _Decoded | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._reading_to = at
        self._projection: Projection | None = None
        self._cutoff: int | None = None  # what was ingested before has expired for the batches that are open

    def take(self, rows_max: int, bytes_max: int, heads: Heads, before: int | None = None) -> Taken | None:
        """The next rows, at least one where there is one, in one batch, and none from `before` on; None at the end of
        what is there now. The cursor stands behind them then."""
        found: list[pa.RecordBatch] = []
        start, stop, bytes_left = self.at, self.at, float(bytes_max)
        while rows_max > 0 and (bytes_left > 0 or not found):
            decoded = self._decoded
            if decoded is None:
                if not self._decode(heads):
                    break
                continue
            if found and not decoded.batch.schema.equals(found[0].schema):
                break
            fitting = max(int(bytes_left / decoded.row_bytes) if decoded.row_bytes else rows_max, 0 if found else 1)
            rows = min(rows_max, decoded.left, fitting)
            if before is not None:
                rows = min(rows, decoded.under(before))
            if rows == 0:
                break
            batch, stop = decoded.take(rows)
            found.append(batch)
            rows_max -= rows
            bytes_left -= rows * decoded.row_bytes
            if not decoded.left:
                self._decoded = None
        if not found:
            stop = self._covered if before is None or self._decoded is None else before
        if stop == start:
            return None
        self.at, missed, self._missed = stop, self._missed, 0
        return Taken(_joined(found), start, stop, missed)

    def _decode(self, heads: Heads) -> bool:
        """Read on; False at the end. Afterwards there are rows, or more is covered."""
        if self._batches is None:
            self._reading_to = heads().get(self._streamlet, 0) if self._end is None else self._end
            if self._covered >= self._reading_to:
                return False
            self._open()
        assert self._batches is not None
        try:
            batch = next(self._batches, None)
        except OffsetGone:
            self._batches = None
            self._pass_over()
            return True
        if batch is None:
            self._batches = None
            self._cover(self._reading_to, 0)
            return True
        offsets = batch.column(OFFSET).to_numpy()
        stop = int(offsets[-1]) + 1
        self._cover(stop, len(offsets))
        if self.select is not None:
            kept = self.select.keep(batch, offsets)
            if not kept.all():
                batch, offsets = batch.filter(pa.array(kept)), offsets[kept]
        if len(offsets):
            assert self._projection is not None
            self._decoded = _Decoded(self._projection.apply(batch), offsets, stop)
        return True

    def _open(self) -> None:
        definition = self._halves.definition
        self._projection = Projection.of(definition, None, system=True)
        names = list(self._projection.schema.names)
        offsets = OffsetRange(self._covered, self._reading_to)
        self._cutoff = self._halves.cutoff_micros()
        self._batches = self._halves.read_range(
            self._generation, self._streamlet, offsets, names, cutoff_micros=self._cutoff
        )

    def _cover(self, stop: int, rows: int) -> None:
        # Where offsets have no gaps, what is not there was there once. Loads into the archive leave gaps by design.
        if self._streamlet < self._halves.definition.streamlets:
            self._missed += stop - self._covered - rows
        self._covered = stop

    def _pass_over(self) -> None:
        """What comes next is gone: go on where the stream begins now."""
        self._halves.check_generation(self._generation)
        if self._cutoff is not None and self._cutoff != self._halves.cutoff_micros():
            return  # it has expired since, and is passed over by a read that begins now
        first = resolve(self._halves, self._halves.snapshot(), "earliest").get(self._streamlet, 0)
        first = min(first, self._reading_to)
        if first <= self._covered:
            raise OffsetGone(
                f"offset {self._covered} of streamlet {self._streamlet} of {self._halves.definition.name} is neither "
                "live nor settled",
                hint="millpond verify says what is wrong with the pond",
            )
        self._cover(first, 0)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    if len(batches) > 1:
        return pa.concat_batches(batches)
    return batches[0] if batches else None
