"""Model files: the models of a stream, small JSON files beside its objects.

    _layout/000000000003-9f3c2e51.json        number - attempt

    {"crc32": 123456789, "at_micros": 1401408000000000, "layout": "kdtree:lat,lon,buckets=128", "model": {...}}

The readable one with the highest number counts, if it is of the stream's layout; a model never decides what is read, so
one that is lost or damaged is only warned of. Writers put a new one beside the others and change none.
"""

from __future__ import annotations

import logging
import posixpath
import re
import secrets
from dataclasses import dataclass
from zlib import crc32

import msgspec

from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.registry import decode_model
from millpond.storage.protocol import Storage

DIRECTORY = "_layout"
# Older ones are of no use to anybody: objects say themselves what they hold.
KEPT = 32

_NAME = re.compile(r"(\d{12})-[0-9a-f]{8}\.json\Z")
_LOG = logging.getLogger(__name__)


class _Stored(msgspec.Struct, frozen=True):
    crc32: int
    at_micros: int
    layout: str
    model: msgspec.Raw


@dataclass(frozen=True)
class StoredModel:
    """A model with its number, the time at which it was put, and the layout (as text) that it is of."""

    number: int
    at_micros: int
    layout: str
    model: Model


class ModelFiles:
    """The `_layout` directory of one stream. Not thread-safe: used under the archive's writer lock."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._directory = posixpath.join(root, DIRECTORY)
        self._found: dict[str, StoredModel | None] = {}  # by file; None: not readable, and said so

    def newest(self, layout: Layout) -> StoredModel | None:
        """The model that counts for this layout; None if there is none."""
        for name in reversed(self._names()):
            if name not in self._found:
                self._found[name] = self._read(name)
            found = self._found[name]
            if found is not None and found.layout == str(layout.spec):
                return found
        return None

    def put(self, layout: Layout, model: Model, at_micros: int) -> StoredModel:
        """From here on this one counts. Durable when it returns."""
        names = self._names()
        number = int(names[-1][:12]) + 1 if names else 0
        body = model.encode()
        name = f"{number:012d}-{secrets.token_hex(4)}.json"
        self._storage.make_directory(self._directory)
        stored = _Stored(crc32(body), at_micros, str(layout.spec), msgspec.Raw(body))
        self._storage.put(posixpath.join(self._directory, name), memoryview(msgspec.json.encode(stored)))
        self._storage.sync_directory(self._directory)
        for old in names[: max(0, len(names) + 1 - KEPT)]:
            self._storage.remove(posixpath.join(self._directory, old))
            self._found.pop(old, None)
        found = StoredModel(number, at_micros, str(layout.spec), model)
        self._found[name] = found
        return found

    def _names(self) -> list[str]:
        """Oldest first."""
        if not self._storage.exists(self._directory):
            return []
        return sorted(name for name in self._storage.list(self._directory) if _NAME.match(name))

    def _read(self, name: str) -> StoredModel | None:
        try:
            data = self._storage.read(posixpath.join(self._directory, name))
            stored = msgspec.json.decode(data, type=_Stored)
            if crc32(bytes(stored.model)) != stored.crc32:
                raise ValueError("checksum mismatch")
            model = decode_model(bytes(stored.model))
            return StoredModel(int(name[:12]), stored.at_micros, stored.layout, model)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            _LOG.warning("%s/%s is left out: %s", self._directory, name, error)
            return None
