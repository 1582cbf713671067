"""A streamlet's live half: its segments in order, from the first offset still held to the head.

Threads: changes are made under the log's lock; readers take `held` under it and go on without.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.log.piece import Piece
from millpond.log.segment import Segment, State
from millpond.model.offsets import OffsetRange


@dataclass(slots=True)
class Streamlet:
    """`start`: the first offset held. `head`: one past the last acknowledged."""

    number: int
    segment_bytes: int
    start: int = 0
    head: int = 0
    segments: list[Segment] = field(default_factory=list)

    def publish(self, piece: Piece) -> Segment | None:
        """Let readers see a piece. Returns a segment that this closed, for the keeper to seal."""
        assert piece.base == self.head, f"offset {piece.base} after {self.head}: not dense"
        active = self.segments[-1] if self.segments else None
        if active is None or active.state is not State.ACTIVE:
            active = Segment(self.number, self.head)
            self.segments.append(active)
        active.add(piece)
        self.head = piece.end
        return self.close_active() if active.bytes >= self.segment_bytes else None

    def close_active(self) -> Segment | None:
        """Close the growing segment, if there is one."""
        if self.segments and self.segments[-1].state is State.ACTIVE:
            self.segments[-1].state = State.CLOSED
            return self.segments[-1]
        return None

    def held(self, offsets: OffsetRange) -> list[Segment] | None:
        """The segments that cover a range, or None if it is not held whole."""
        if offsets.start < self.start or offsets.stop > self.head:
            return None
        return [s for s in self.segments if s.base < offsets.stop and s.end > offsets.start]

    def release(self, boundary: int) -> list[Segment]:
        """Let go of what lies under the boundary: the segments that are gone."""
        self.start = max(self.start, boundary)
        self.head = max(self.head, self.start)
        gone = [s for s in self.segments if s.end <= self.start]
        self.segments = [s for s in self.segments if s.end > self.start]
        return gone
