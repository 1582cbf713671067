"""Blobs: what indexes know of objects and is too large to hold in memory for all of them.

    _index/000000000017-9f3c2e51.blobs       the blobs of one commit or of one task of a load, one after the other

An entry has the file's name, and a blob's position, length and checksum. A blob is read when a query asks for it, and
kept for the next one as long as there is room. The file stays for as long as some entry names it (`vacuum`).

Invariant (I4): a blob that is missing or not what was written is not known, and its object is read.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from millpond.archive.checksums import checksum
from millpond.archive.index.entries import DIRECTORY
from millpond.storage.protocol import Storage

# Blobs that were read and are kept, of one stream.
CACHE_BYTES = 32 << 20
NAME = re.compile(r"\d{12}-[0-9a-f]{8}\.blobs\Z")


class BlobFiles:
    """The blobs of one stream, for reading. Thread-safe."""

    def __init__(self, storage: Storage, root: str, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._storage, self._directory, self._room = storage, posixpath.join(root, DIRECTORY), cache_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0

    def read(self, place: Mapping[str, Any]) -> bytes | None:
        """The bytes at a place; None if they are not there, or not what was written."""
        name, position, length = place["file"], place["position"], place["bytes"]
        key = (name, position)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None:
            if not isinstance(name, str) or not NAME.match(name):
                return None  # an entry is only ever about a file of this directory
            try:
                found = self._storage.read(posixpath.join(self._directory, name), position, length)
            except (OSError, ValueError, TypeError, OverflowError):  # gone, or an entry that makes no sense
                return None
            if len(found) != length or checksum(found) != place["crc32"]:
                return None
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, int], data: bytes) -> None:
        with self._lock:
            if key not in self._kept and len(data) <= self._room:
                self._kept[key] = data
                self._bytes += len(data)
                while self._bytes > self._room:
                    self._bytes -= len(self._kept.popitem(last=False)[1])


class BlobWriter:
    """The blobs of one commit, gathered. For one thread."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._data = bytearray()

    @cached_property
    def name(self) -> str:
        return f"{self._block:012d}-{secrets.token_hex(4)}.blobs"

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes | bytearray | memoryview) -> dict[str, Any]:
        """Where the bytes will be."""
        place = {
            "file": self.name,
            "position": len(self._data),
            "bytes": len(data),
            "crc32": checksum(memoryview(data)),
        }
        self._data += data
        return place

    def put(self, storage: Storage, root: str) -> None:
        """Write them, durably."""
        directory = posixpath.join(root, DIRECTORY)
        storage.make_directory(directory)
        storage.put(posixpath.join(directory, self.name), memoryview(self._data))
        storage.sync_directory(directory)

    def remove(self, storage: Storage, root: str) -> None:
        storage.remove(posixpath.join(root, DIRECTORY, self.name))
