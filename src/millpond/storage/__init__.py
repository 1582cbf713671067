"""Bytes: the one way by which Millpond's own code reaches the disk, so that faults can be injected under all of it."""

from millpond.storage.local import LocalStorage
from millpond.storage.protocol import AppendFile, Buffer, FileLock, Storage

__all__ = ["AppendFile", "Buffer", "FileLock", "LocalStorage", "Storage"]
