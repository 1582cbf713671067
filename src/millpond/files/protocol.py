"""What a file handle asks for: of the pond in its own process, or of the node that serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from millpond.log.engine import Ack


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a byte is: the event at `offset` begins with byte `position`. The file holds the bytes `start` to `size`;
    at its end, or behind it, `offset` is that of the next event and `position` is `size`."""

    offset: int
    position: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The position behind the last byte, of the file or of one event."""

    position: int


@dataclass(frozen=True, slots=True)
class FileLock:
    """A file held alone. Every append of its holder names the epoch. It is kept for `lease_seconds` after each sign of
    life; None: until it is given back."""

    epoch: int
    lease_seconds: float | None


class EventReader(Protocol):
    """Events in order, as `stream.read` gives them."""

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> Mapping[int, int]: ...

    def poll(self) -> pa.RecordBatch | None:
        """The next batch; None at the end, or, where it follows, if nothing arrived for a moment."""
        ...

    def close(self) -> None: ...


class FileDesk(Protocol):
    """Of one file. Thread-safe; everything may block."""

    @property
    def name(self) -> str: ...

    def place(self, position: int | None) -> FilePlace:
        """Where a byte is; None: the end."""
        ...

    def read(self, offset: int, *, follow: bool) -> EventReader:
        """The events from an offset on."""
        ...

    def append(self, pieces: Sequence[bytes], writer: str, number: int, epoch: int | None) -> Ack:
        """Append bytes, all or nothing. `writer` and a `number` that goes upwards let a retry be recognised."""
        ...

    def end(self, offset: int | None) -> int:
        """The position behind the event at an offset; None: behind the last one."""
        ...

    def lock(self, epoch: int | None = None) -> FileLock:
        """Hold the file alone, or say that its holder (of that epoch) is still there."""
        ...

    def unlock(self, epoch: int) -> None:
        """Give the file back. Nothing if it was lost since."""
        ...
