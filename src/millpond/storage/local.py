"""The local file system, with real syncs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

from millpond.storage.composed import ComposedAppendFile, ComposedStorage
from millpond.storage.protocol import AppendFile, Buffer, FileLock

# Linux accepts at most 1024 buffers (IOV_MAX) in one writev.
_BUFFERS_PER_WRITE = 1024
# Linux can write and sync in one call; others take two.
_WRITE_SYNCED: int | None = getattr(os, "RWF_DSYNC", None)
# A rewritten tail is usually less; a longer one does not take more memory.
_REWRITE_BYTES = 1 << 20


class LocalAppendFile(ComposedAppendFile):
    """An `AppendFile` on a file descriptor."""

    def __init__(self, descriptor: int, position: int) -> None:
        self._descriptor = descriptor
        self._position = position

    @property
    def position(self) -> int:
        return self._position

    def write(self, buffers: Sequence[Buffer]) -> int:
        written = 0
        for at in range(0, len(buffers), _BUFFERS_PER_WRITE):
            written += self._write_some(buffers[at : at + _BUFFERS_PER_WRITE], self._position + written)
        self._position += written
        return written

    def _write_some(self, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(len(b) for b in buffers)
        done = os.pwritev(self._descriptor, buffers, position)
        if done < total:  # a signal, a size over 2 GiB, or the disk filling up: finish one buffer at a time
            rest = memoryview(b"".join(buffers))[done:]
            while rest:
                count = os.pwrite(self._descriptor, rest, position + done)
                if count == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                done += count
                rest = rest[count:]
        return total

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def write_synced(self, buffers: Sequence[Buffer]) -> int:
        if _WRITE_SYNCED is None or len(buffers) > _BUFFERS_PER_WRITE:
            return super().write_synced(buffers)
        total = sum(len(b) for b in buffers)
        try:
            done = os.pwritev(self._descriptor, buffers, self._position, _WRITE_SYNCED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP):
                raise OSError(error.errno, f"a write or its sync failed: {error}") from error
            done = 0
        if done == total:
            self._position += total
            return total
        # Cut short, or of a full disk, which may be the sync's word as well: in two steps it is clear whose it is. What
        # is there is written again, so that a sync that failed is not simply asked a second time.
        return super().write_synced(buffers)

    def truncate(self, position: int) -> None:
        os.ftruncate(self._descriptor, position)
        self._position = position

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalLock:
    """flock on a file: the system gives it back when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalStorage(ComposedStorage):
    """`Storage` on the local file system."""

    def create_append(self, path: str) -> AppendFile:
        return LocalAppendFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640), 0)

    def open_append(self, path: str) -> AppendFile:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return LocalAppendFile(descriptor, os.fstat(descriptor).st_size)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def map(self, path: str) -> mmap.mmap:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def modified_micros(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        os.remove(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def add_directory(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_file(self, path: str) -> None:
        self._sync_path(path, os.O_RDWR)

    def rewrite(self, path: str, start: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            end = os.fstat(descriptor).st_size
            while start < end:
                piece = os.pread(descriptor, min(end - start, _REWRITE_BYTES), start)
                if not piece:
                    raise OSError(errno.EIO, f"{path} ends at {start} while it is written again")
                start += os.pwrite(descriptor, piece, start)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: str) -> None:
        self._sync_path(path, os.O_RDONLY | os.O_DIRECTORY)

    @staticmethod
    def _sync_path(path: str, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lock(self, path: str) -> FileLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return LocalLock(descriptor)
