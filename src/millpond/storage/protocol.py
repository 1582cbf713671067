"""What a byte layer owes its callers.

Durability is explicit: nothing is safe from a power cut until the file *and* the directory that names it were synced.
Paths are absolute strings of the local file system. Errors are `OSError`s as the system gives them: what they mean
(a full disk, a lost file) is decided by the caller, who knows what was being done.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class AppendFile(Protocol):
    """A file that only grows. One owner at a time; not thread-safe."""

    @property
    def position(self) -> int:
        """Where the next write goes: the bytes in the file that were written whole."""
        ...

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append all buffers, or raise. After an error `position` is unchanged, but bytes may lie beyond it:
        the caller truncates or gives the file up."""
        ...

    def sync(self) -> None:
        """fdatasync. After an error nothing may be assumed of what was written since the last one that worked."""
        ...

    def write_synced(self, buffers: Sequence[Buffer]) -> int:
        """As `write` and `sync`, in one step where the system has one. What was written before must have been synced.
        An error of the sync is never one of a full disk: such an error says that nothing was written."""
        ...

    def truncate(self, position: int) -> None:
        """Cut the file at `position` and go on from there. Not durable until `sync`."""
        ...

    def close(self) -> None:
        """Close without syncing. May be called twice; may not be called at all (a crash)."""
        ...


class FileLock(Protocol):
    """Held until `release` or until the process ends, however it ends."""

    def release(self) -> None: ...


class Storage(Protocol):
    """Thread-safe."""

    def create_append(self, path: str) -> AppendFile:
        """A new, empty file; `FileExistsError` if there is one."""
        ...

    def open_append(self, path: str) -> AppendFile:
        """An existing file, positioned at its end."""
        ...

    def put(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """A whole new file, synced (its directory is not); `FileExistsError` if there is one. Directories that are
        missing are made, and each new one's entry is synced."""
        ...

    def replace(self, path: str, data: Buffer) -> None:
        """A whole file in one step: after a crash its content is the old or the new, never a mixture. Durable."""
        ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes: ...

    def map(self, path: str) -> mmap.mmap:
        """The file's content, memory-mapped and read-only; valid after the file's removal. Empty files cannot be."""
        ...

    def size(self, path: str) -> int: ...

    def modified_micros(self, path: str) -> int:
        """When the file was last written to, in microseconds since the Unix epoch."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. It may come back after a power cut until its directory is synced."""
        ...

    def remove_tree(self, directory: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """The directory and its parents, each new entry synced. One that is there already, below a directory that was
        asked for before, has its entry synced too, once: whoever made it may not have come to that."""
        ...

    def sync_file(self, path: str) -> None:
        """fsync a file that somebody else wrote."""
        ...

    def rewrite(self, path: str, start: int) -> None:
        """Write a file's bytes from `start` on once more, in place, and sync them. For bytes that an earlier process
        left: where a sync of theirs failed, reads still find them in the system's cache, but no later sync writes
        them, because the system has marked them as written."""
        ...

    def sync_directory(self, path: str) -> None:
        """fsync a directory: names made or removed in it are durable afterwards."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room left for us on the disk that holds `path`."""
        ...

    def lock(self, path: str) -> FileLock:
        """Take the lock file; `BlockingIOError` if another process (or another lock here) holds it."""
        ...
