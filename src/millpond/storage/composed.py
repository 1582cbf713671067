"""The operations of a byte layer that are made of several steps on the disk, each written once, out of single steps.

A crash falls between steps. By taking these from here, a wrapper that injects faults into single steps has them
injected inside `put`, `replace`, `make_directory` and `remove_tree` too, in the very code that production runs.
"""

from __future__ import annotations

import errno
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence

from millpond.storage.protocol import AppendFile, Buffer


class ComposedAppendFile(ABC):
    """The composed half of `AppendFile`."""

    @abstractmethod
    def write(self, buffers: Sequence[Buffer]) -> int: ...

    @abstractmethod
    def sync(self) -> None: ...

    def write_synced(self, buffers: Sequence[Buffer]) -> int:
        """See `AppendFile`."""
        written = self.write(buffers)
        try:
            self.sync()
        except OSError as error:
            raise OSError(errno.EIO, f"a sync failed: {error}") from error
        return written


class ComposedStorage(ABC):
    """The composed half of `Storage`; the single steps are the subclass's."""

    def __init__(self) -> None:
        # Directories whose names this process knows to be durable, see `make_directory`.
        self._durable_directories: set[str] = set()

    @abstractmethod
    def create_append(self, path: str) -> AppendFile: ...

    @abstractmethod
    def remove(self, path: str) -> None: ...

    @abstractmethod
    def rename(self, source: str, target: str) -> None: ...

    @abstractmethod
    def sync_directory(self, path: str) -> None: ...

    @abstractmethod
    def add_directory(self, path: str) -> None:
        """One directory in a parent that is there; not synced. Nothing if another thread was first."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """One empty directory; not synced."""

    def put(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self.make_directory(os.path.dirname(path))
        file = self.create_append(path)
        try:
            file.write([data])
            if sync:
                file.sync()
        finally:
            file.close()

    def replace(self, path: str, data: Buffer) -> None:
        staged = f"{path}.{secrets.token_hex(4)}.tmp"
        self.put(staged, data)
        self.rename(staged, path)
        self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        """A directory that is there already may have been made by a process that was killed before its name was safe.
        So below a directory that this process has made or asked for, the name of each one found is synced once."""
        chain: list[str] = []
        at = path
        while at and at not in self._durable_directories and os.path.dirname(at) != at:
            chain.append(at)
            at = os.path.dirname(at)
        ours = at in self._durable_directories
        for directory in reversed(chain):
            there = os.path.isdir(directory)
            if not there:
                self.add_directory(directory)
            if ours or not there:
                self.sync_directory(os.path.dirname(directory))
                self._durable_directories.add(directory)
        self._durable_directories.add(path)

    def remove_tree(self, directory: str) -> None:
        for parent, directories, files in os.walk(directory, topdown=False):
            for name in sorted(files):
                self.remove(os.path.join(parent, name))
            for name in sorted(directories):
                self._remove_directory(os.path.join(parent, name))
        if os.path.isdir(directory):
            self._remove_directory(directory)

    def _remove_directory(self, path: str) -> None:
        self._durable_directories.discard(path)
        self.remove_directory(path)
