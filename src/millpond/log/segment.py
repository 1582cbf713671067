"""A segment: consecutive records of one streamlet, about 8 MB of them.

It grows as *active* (a list of pieces), is *closed* when large enough, and *sealed* by the keeper: small pieces joined,
the range of every ordered column, and a key index. *Spilled*, it holds no rows in memory: they are read in
place from the journal where its pieces are large, or from an Arrow file of the same structure (anti-caching).

Threads: whoever changes a segment holds the log's lock. `contents` is replaced as a whole and what it refers to never
changes (the list of an active segment only grows), so a reader takes it once and needs no lock while it reads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond.log.piece import Chunk, Codecs, Micros, Piece, load
from millpond.log.sealed import Sealed
from millpond.log.spill import SpillFile
from millpond.model.cut import comparable
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Predicate, columns_of
from millpond.model.prune import may_match
from millpond.model.stats import ColumnRange, Stats, collect_stats


class State(StrEnum):
    """How far a segment has come."""

    ACTIVE = "active"
    CLOSED = "closed"
    SEALED = "sealed"
    SPILLED = "spilled"
    RELEASED = "released"  # gone from its streamlet; somebody may still be reading or tending it


Contents = list[Piece] | Sealed | SpillFile


@dataclass(slots=True, eq=False)
class Segment:
    """Records `base` to `end` of one streamlet of one stream."""

    streamlet: int
    base: int
    contents: Contents = field(default_factory=list)
    state: State = State.ACTIVE
    rows: int = 0
    bytes: int = 0  # of the records, wherever they are
    memory_bytes: int = 0
    first_ingest: int = 0
    last_ingest: int = 0
    tail: int = 0  # small appends since the keeper last joined them
    places: list[Piece] | None = None  # the pieces without their memory, if the journal can serve them
    _known: Known | None = None  # once sealed; replaced as a whole

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def released(self) -> bool:
        return self.state is State.RELEASED

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.base, self.end)

    @property
    def ranges(self) -> Mapping[str, ColumnRange] | None:
        """What is known of the columns; None before it was sealed."""
        return self._known.ranges if self._known is not None else None

    def seal(self, whole: Sealed, ranges: Mapping[str, ColumnRange]) -> None:
        """Only while closed."""
        assert self.state is State.CLOSED, self.state
        self.contents, self.state, self._known = whole, State.SEALED, Known(ranges, None)

    def add(self, piece: Piece) -> None:
        """Take in the next piece. Only while active."""
        assert self.state is State.ACTIVE, self.state
        assert piece.base == self.end, (piece.base, self.end)
        assert isinstance(self.contents, list)
        self.contents.append(piece)
        first, last = _time_range(piece.ingest)
        self.first_ingest = min(self.first_ingest, first) if self.rows else first
        self.last_ingest = max(self.last_ingest, last) if self.rows else last
        self.rows += piece.rows
        self.bytes += piece.bytes
        if piece.in_memory:
            self.memory_bytes += piece.bytes

    def chunks(self, offsets: OffsetRange, definition: StreamDefinition, codecs: Codecs) -> Iterator[Chunk]:
        """The rows of this segment that lie in `offsets`, as Arrow in the newest schema."""
        contents = self.contents
        if isinstance(contents, list):
            # Whoever follows a stream wants the last of many. Others may come meanwhile, behind what is asked for.
            newest = contents[-1] if contents else None
            if newest is not None and offsets.start >= newest.base:
                pieces = [newest]
            else:
                first = bisect_right(contents, offsets.start, key=_end)
                pieces = contents[first : bisect_left(contents, offsets.stop, first, key=_base)]
            chunks = load(pieces, definition, codecs)
        else:
            chunks = contents.chunks(definition)
        for chunk in chunks:
            yield chunk.slice(offsets.start, offsets.stop)

    def ingest_micros_at(self, offset: int) -> int:
        """When a record of this segment was ingested, for as long as that is in memory; else when its first was."""
        contents = self.contents
        if isinstance(contents, Sealed):
            return int(contents.times[np.searchsorted(contents.starts, offset - contents.base, side="right") - 1])
        if isinstance(contents, list):
            at = bisect_right(contents, offset, key=lambda piece: piece.base) - 1
            if at >= 0:
                piece = contents[at]
                if isinstance(piece.ingest, int):
                    return piece.ingest
                return int(piece.ingest[offset - piece.base] if len(piece.ingest) == piece.rows else piece.ingest[0])
        return self.first_ingest

    def may_match(self, predicate: Predicate, schema: pa.Schema) -> bool:
        """Whether any record here could satisfy the predicate; yes when nothing is known. `schema`: as stored."""
        self.find_text_ranges(columns_of(predicate))
        known = self._known
        if known is None:
            return True
        if known.stats is None:
            # Whoever comes at the same moment makes the same.
            self._known = known = Known(known.ranges, Stats.gather(schema, [known.ranges], [self.rows]))
        assert known.stats is not None
        return bool(may_match(predicate, known.stats).keep[0])

    def find_text_ranges(self, columns: Iterable[str]) -> None:
        """Text costs most to find the range of, ten times as much as numbers, and few queries compare it: it is done
        when somebody asks, for as long as the rows are in memory."""
        contents, known = self.contents, self._known
        if isinstance(contents, Sealed) and known is not None:
            schema = contents.batches[0].schema
            wanted = [c for c in columns if c not in known.ranges and c in schema.names]
            wanted = [c for c in wanted if comparable(schema.field(c).type)]
            if wanted:
                self._known = Known({**known.ranges, **collect_stats(contents.table(wanted))}, None)


class Known(NamedTuple):
    """The ranges of a segment's columns, and the same as pruning wants them, once it has wanted them."""

    ranges: Mapping[str, ColumnRange]
    stats: Stats | None


def _base(piece: Piece) -> int:
    return piece.base


def _end(piece: Piece) -> int:
    return piece.end


def _time_range(ingest: int | Micros) -> tuple[int, int]:
    return (ingest, ingest) if isinstance(ingest, int) else (int(ingest.min()), int(ingest.max()))
