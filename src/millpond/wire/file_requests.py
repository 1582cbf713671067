"""Requests about streams that are read and written as files (see `millpond.files`)."""

from __future__ import annotations

from typing import ClassVar

from millpond.wire.access import Right
from millpond.wire.request_base import Count, StreamRequest, Units


class FindPlace(StreamRequest, frozen=True, tag="file-place"):
    """-> `FilePlace`: where a byte of a file is; without a position, its end."""

    right: ClassVar[Right | None] = "read"

    position: Count | None = None


class FindEnd(StreamRequest, frozen=True, tag="file-end"):
    """-> `FileEnd`: the position behind the event at an offset of a file; without one, behind the last."""

    right: ClassVar[Right | None] = "write"

    offset: Count | None = None


class LockFile(StreamRequest, frozen=True, tag="file-lock"):
    """-> `FileLock`: the file is held alone, for as long as a lease without a sign of life. With the epoch of a lock
    that is held: a sign of life."""

    right: ClassVar[Right | None] = "write"

    lease: Units = "10s"
    epoch: Count | None = None


class UnlockFile(StreamRequest, frozen=True, tag="file-unlock"):
    """-> null. Nothing happens if the lock was lost before."""

    right: ClassVar[Right | None] = "write"

    epoch: Count = 0


FileCall = FindPlace | FindEnd | LockFile | UnlockFile
