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
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from millpond.archive.checksums import checksum
from millpond.archive.index.entries import DIRECTORY
from millpond.archive.index.view import Place
from millpond.errors import InvalidInput
from millpond.storage.protocol import Storage

# Blobs that were read and are kept, of one stream.
CACHE_BYTES = 32 << 20
# Blobs that lie together are read together, up to so much; what lies between is read in vain.
_READ_BYTES = 1 << 20
# No kind makes larger ones: an entry that says so is not one of ours.
_BLOB_BYTES_MAX = 1 << 30
NAME = re.compile(r"\d{12}-[0-9a-f]{8}\.blobs\Z")


class BlobFiles:
    """The blobs of one stream, for reading. Thread-safe."""

    def __init__(self, storage: Storage, root: str, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._storage, self._directory, self._room = storage, posixpath.join(root, DIRECTORY), cache_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0

    def read(self, places: Sequence[Place]) -> list[bytes | None]:
        """The bytes at each place; None if they are not there, or not what was written."""
        found: list[bytes | None] = [None] * len(places)
        missing: dict[str, list[int]] = {}
        with self._lock:
            for at, place in enumerate(places):
                if place.file is not None:
                    found[at] = self._kept.get((place.file, place.position))
                    if found[at] is None:
                        missing.setdefault(place.file, []).append(at)
        for name, wanted in missing.items():
            if NAME.match(name):  # an entry is only ever about a file of this directory
                self._fetch(name, sorted(wanted, key=lambda at: places[at].position), places, found)
        return found

    def _fetch(self, name: str, wanted: list[int], places: Sequence[Place], into: list[bytes | None]) -> None:
        """Those of one file, in the order of their positions: neighbours with one read."""
        run: list[int] = []
        for at in wanted:
            place = places[at]
            if place.position < 0 or not 0 <= place.bytes <= _BLOB_BYTES_MAX:
                continue
            if run and place.position + place.bytes - places[run[0]].position > _READ_BYTES:
                self._read_run(name, run, places, into)
                run = []
            run.append(at)
        if run:
            self._read_run(name, run, places, into)

    def _read_run(self, name: str, run: list[int], places: Sequence[Place], into: list[bytes | None]) -> None:
        start = places[run[0]].position
        stop = max(places[at].position + places[at].bytes for at in run)
        try:
            data = self._storage.read(posixpath.join(self._directory, name), start, stop - start)
        except OSError:
            return
        for at in run:
            place = places[at]
            begin = place.position - start
            blob = data[begin : begin + place.bytes]
            if len(blob) == place.bytes and checksum(blob) == place.crc32:
                into[at] = blob
                self._keep((name, place.position), blob)

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

    @classmethod
    def given(cls, name: str, data: bytes) -> BlobWriter:
        """Those that somebody else has gathered, to be put under the name that their entries say."""
        if not NAME.match(name):
            raise InvalidInput(f"{name!r} is no name of blobs", hint="send the name that the entries have")
        made = cls(0)
        made.name, made._data = name, bytearray(data)
        return made

    @cached_property
    def name(self) -> str:
        return f"{self._block:012d}-{secrets.token_hex(4)}.blobs"

    def __len__(self) -> int:
        return len(self._data)

    @property
    def data(self) -> bytes:
        """All of them, one after the other."""
        return bytes(self._data)

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
