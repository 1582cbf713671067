"""Which faults are to happen, and when: the half of `FaultyStorage` that a test talks to."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from millpond.testing.steps import GROWING_KINDS, Step


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where the process dies: at a durable step, before it, after it or, in a write, after some of its bytes."""

    durable_number: int
    after: bool
    tear_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Failure:
    at: int | None
    kind: str | None
    path: re.Pattern[str]
    code: int
    sticky: bool

    def hits(self, step: Step) -> bool:
        if self.at is not None and not (step.number == self.at or (self.sticky and step.number > self.at)):
            return False
        return (self.kind is None or step.kind == self.kind) and self.path.search(step.path) is not None


@dataclass(frozen=True, slots=True)
class _Flip:
    path: re.Pattern[str]
    position: int
    bit: int


class FaultPlan:
    """Faults by the number, kind and path of a step. Called under the storage's lock, or before it is used."""

    def __init__(self) -> None:
        self.failed: list[Step] = []
        self._crash_point: CrashPoint | None = None
        self._failures: list[_Failure] = []
        self._flips: list[_Flip] = []
        self._room: int | None = None
        self._room_under = ""

    # What a test asks for.

    def crash_at(self, durable_number: int, *, after: bool = False, tear_bytes: int | None = None) -> None:
        """Die before (or after) the durable step of that number, counted from 1; with `tear_bytes`, which needs a
        write, in the middle of it: so many bytes reach the file."""
        self._crash_point = CrashPoint(durable_number, after, tear_bytes)

    def fail(
        self,
        *,
        at: int | None = None,
        kind: str | None = None,
        path: str = "",
        code: int = errno.EIO,
        sticky: bool = False,
    ) -> None:
        """Raise `OSError(code)` in the step of number `at` (or the first one) whose kind is `kind` and whose path
        contains the expression `path`; with `sticky` in every such step from then on."""
        self._failures.append(_Failure(at, kind, re.compile(path), code, sticky))

    def limit_room(self, bytes_left: int, under: str = "") -> None:
        """From now on only so many bytes more can be written to paths under `under`."""
        self._room, self._room_under = bytes_left, under

    def flip_when_read(self, path: str, position: int, bit: int = 0) -> None:
        """Whoever reads the byte at `position` of a file whose path contains the expression gets one bit wrong."""
        self._flips.append(_Flip(re.compile(path), position, bit))

    def heal(self) -> None:
        """No more faults: room is back, failures and flips are over. A crash stays one."""
        self._crash_point, self._room = None, None
        self._failures.clear()
        self._flips.clear()

    # What the storage asks.

    def crash_point_of(self, step: Step) -> CrashPoint | None:
        """The crash planned for this step."""
        point = self._crash_point
        return point if point is not None and step.durable and point.durable_number == step.durable_number else None

    def error_of(self, step: Step) -> int:
        """The error planned for this step, or 0."""
        for failure in self._failures:
            if failure.hits(step):
                if not failure.sticky:
                    self._failures.remove(failure)
                self.failed.append(step)
                return failure.code
        return 0

    def room_for(self, step: Step, size: int) -> int | None:
        """Takes room for a step; None if there is enough, else how many of its bytes still fit."""
        if self._room is None or step.kind not in GROWING_KINDS or not step.path.startswith(self._room_under):
            return None
        if 0 < self._room >= size:
            self._room -= size
            return None
        fitting, self._room = self._room, 0
        self.failed.append(step)
        return fitting

    def give_room(self, path: str, size: int) -> None:
        """A file shrank or is gone."""
        if self._room is not None and path.startswith(self._room_under):
            self._room += size

    def room_left(self, path: str, free: int) -> int:
        """What `free_bytes` may say."""
        limited = self._room is not None and path.startswith(self._room_under)
        return min(free, self._room or 0) if limited else free

    def flips(self, path: str) -> bool:
        """Whether reads of this file are to be wrong somewhere."""
        return any(flip.path.search(path) for flip in self._flips)

    def flipped(self, path: str, start: int, data: bytes) -> bytes:
        """`data`, read from `start` on, with the planned bits wrong."""
        changed = bytearray(data)
        for flip in self._flips:
            if flip.path.search(path) and start <= flip.position < start + len(data):
                changed[flip.position - start] ^= 1 << flip.bit
        return bytes(changed)
