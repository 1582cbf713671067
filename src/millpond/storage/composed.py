"""The operations of a byte layer that are made of several steps on the disk, each written once, out of single steps.

A crash falls between steps. By taking these from here, a wrapper that injects faults into single steps has them
injected inside `put`, `replace`, `make_directory` and `remove_tree` too, in the very code that production runs.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod

from millpond.storage.protocol import AppendFile, Buffer


class ComposedStorage(ABC):
    """The composed half of `Storage`; the single steps are the subclass's."""

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
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            self.add_directory(directory)
            self.sync_directory(os.path.dirname(directory))

    def remove_tree(self, directory: str) -> None:
        for parent, directories, files in os.walk(directory, topdown=False):
            for name in sorted(files):
                self.remove(os.path.join(parent, name))
            for name in sorted(directories):
                self.remove_directory(os.path.join(parent, name))
        if os.path.isdir(directory):
            self.remove_directory(directory)
