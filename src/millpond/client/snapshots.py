"""Snapshots of a served stream: objects are listed by the node, once per version, and read where they lie.

A question to the node tells version and heads. Only if the version is not the one that is known are the objects fetched
(a row per object, with everything that skipping needs), together with the mark that they belong to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pyarrow as pa

from millpond.archive.index.blobs import BlobFiles
from millpond.archive.index.filters import Filter
from millpond.archive.index.stream_indexes import indexes_of
from millpond.archive.object_index import ObjectIndex
from millpond.archive.snapshot import SettledSnapshot
from millpond.client.connection import Connection
from millpond.errors import Unavailable
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema
from millpond.model.stored_definition import decode_definition
from millpond.query.snapshot import Snapshot
from millpond.storage import LocalStorage
from millpond.wire.answers import MARK, SnapshotMark
from millpond.wire.requests import Objects, TakeSnapshot


class Snapshots:
    """Thread-safe. Of one stream."""

    def __init__(self, connection: Connection, name: str, stream_id: int) -> None:
        self._connection, self._name, self._id = connection, name, stream_id
        self._lock = threading.Lock()
        self._known: tuple[tuple[str, int], SettledSnapshot] | None = None
        self._filters: tuple[Filter, ...] = ()

    def add_filter(self, filter: Filter) -> Callable[[], None]:
        """Ask this filter, too, when queries are planned here. Returns how to stop that."""
        with self._lock:
            self._filters = (*self._filters, filter)

        def remove() -> None:
            with self._lock:
                self._filters = tuple(one for one in self._filters if one is not filter)

        return remove

    def mark(self) -> tuple[StreamDefinition, SnapshotMark]:
        """What the node says now, without the objects."""
        mark: SnapshotMark = self._connection.ask(TakeSnapshot(self._name, id=self._id), SnapshotMark)
        return decode_definition(mark.definition), mark

    def take(self) -> tuple[StreamDefinition, Snapshot]:
        """What is there now, and the stream it is of."""
        definition, mark = self.mark()
        with self._lock:
            known = self._known
        if known is None or known[0] != _state(mark):
            entries = self._connection.table(Objects(self._name, id=self._id))
            definition, mark = _marked(entries)
            known = (_state(mark), _settled(definition, mark, entries))
            with self._lock:
                self._known = known
        settled = replace(known[1], filters=self._filters)
        return definition, Snapshot(settled, mark.heads, definition.generation, mark.cutoff_micros, mark.floor)


def _state(mark: SnapshotMark) -> tuple[str, int]:
    # The definition tells the generation, the columns, and one stream from another of the same name.
    return mark.definition, mark.version


def _marked(entries: pa.Table) -> tuple[StreamDefinition, SnapshotMark]:
    try:
        mark = msgspec.json.decode((entries.schema.metadata or {})[MARK], type=SnapshotMark)
    except (KeyError, msgspec.MsgspecError) as error:
        raise Unavailable(
            "the node sent objects without their snapshot", hint="are both ends of the same version?"
        ) from error
    return decode_definition(mark.definition), mark


def _settled(definition: StreamDefinition, mark: SnapshotMark, entries: pa.Table) -> SettledSnapshot:
    schema = stored_schema(definition.schema)
    storage, indexes = LocalStorage(), indexes_of(definition)
    objects = ObjectIndex(entries.replace_schema_metadata(None), schema, indexes, BlobFiles(storage, mark.root))
    warnings = (*mark.warnings, *(one for one in indexes.warnings if one not in mark.warnings))
    return SettledSnapshot(
        mark.version, mark.boundary, objects, mark.root, schema, storage, warnings, definition.generation
    )
