"""Data sets of a served pond: Spark lists, describes and reads their files from here, and the node keeps what is known.

Paths are as this process and its Spark see them. Whoever uses the data set must find the files under the same path or
URL; the node itself never looks at them. Bloom filters are read from the pond's directory, if this machine has it under
the node's path, as objects of streams are; where it has not, files are not ruled out by them.
"""

from __future__ import annotations

import base64
import importlib
import os
import secrets
import threading
from types import ModuleType

import msgspec
import pyarrow as pa

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.index.blobs import BlobFiles, BlobWriter
from millpond.archive.index.view import Blobs
from millpond.client.bulk import report_parts
from millpond.client.connection import Connection
from millpond.clock import Clock
from millpond.errors import DatasetExists, DatasetNotFound, Unavailable
from millpond.storage import LocalStorage
from millpond.wire import dataset_requests as ask
from millpond.wire.dataset import Dataset
from millpond.wire.dataset_face import Made

# What a piece of blobs takes on the wire, before base64.
_PIECE_BYTES = 1_000_000


class RemoteKeeper:
    """A `DatasetKeeper`: one data set, at its node."""

    def __init__(self, connection: Connection, mark: ask.DatasetMark) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._definition = _definition(mark)
        self._warnings = mark.warnings
        self._loaded: tuple[DatasetDefinition, pa.Table] | None = None
        self._blobs = BlobFiles(LocalStorage(), mark.directory)

    @property
    def definition(self) -> DatasetDefinition:
        return self._definition

    @property
    def blobs(self) -> Blobs:
        return self._blobs

    def renew(self) -> None:
        """Ask the node."""
        self._saw(self._connection.ask(ask.DescribeDataset(*self._which), ask.DatasetMark))

    def entries(self) -> tuple[DatasetDefinition, pa.Table]:
        """They are fetched anew if the node has another version."""
        self.renew()
        with self._lock:
            loaded = self._loaded
            if loaded is not None and loaded[0].version == self._definition.version:
                return loaded
        table = self._connection.table(ask.DatasetEntries(*self._which))
        self._saw(_marked(table))
        with self._lock:
            self._loaded = (self._definition, table.replace_schema_metadata(None))
            return self._loaded

    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def add(self, entries: pa.Table, blobs: BlobWriter, changed_micros: int) -> None:
        self._change(entries, blobs, None, whole=False)

    def rewrite(
        self, entries: pa.Table, blobs: BlobWriter, changed_micros: int, definition: DatasetDefinition | None = None
    ) -> None:
        self._change(entries, blobs, definition, whole=True)

    def drop(self) -> None:
        self._connection.ask(ask.DropDataset(*self._which), None)

    @property
    def _which(self) -> tuple[str, str]:
        return self._definition.name, self._definition.id

    def _saw(self, mark: ask.DatasetMark) -> None:
        with self._lock:
            self._definition, self._warnings = _definition(mark), mark.warnings

    def _change(
        self, entries: pa.Table, blobs: BlobWriter, definition: DatasetDefinition | None, *, whole: bool
    ) -> None:
        """In pieces, and one step at the node."""
        data = blobs.data
        held = [(blobs.name, _text(data[at : at + _PIECE_BYTES])) for at in range(0, len(data), _PIECE_BYTES)]
        pieces = held + [("", text) for text in report_parts(entries)]
        version, change = self._definition.version, secrets.token_hex(8)
        text = "" if definition is None else msgspec.json.encode(definition).decode()
        done: ask.DatasetMark | None = None
        for number, (name, piece) in enumerate(pieces):
            last = text if number == len(pieces) - 1 else ""
            request = ask.ChangeDataset(
                *self._which, version, change, number, len(pieces), piece, name, whole=whole, definition=last
            )
            done = self._connection.ask(request, ask.DatasetMark | None)
        if done is None:
            raise Unavailable(
                "the node did not say what became of a data set", hint="are both ends of the same version?"
            )
        self._saw(done)


class RemoteShelf:
    """A `Shelf`: the data sets of a served pond. Thread-safe."""

    def __init__(self, connection: Connection, clock: Clock, pond_id: str) -> None:
        self._connection, self._clock, self._pond_id = connection, clock, pond_id
        self._lock = threading.Lock()
        self._known: dict[str, Dataset] = {}

    def all(self) -> list[Dataset]:
        """By name."""
        marks: list[ask.DatasetMark] = self._connection.ask(ask.ListDatasets(), list[ask.DatasetMark])
        keepers = [RemoteKeeper(self._connection, mark) for mark in marks]
        with self._lock:
            known, self._known = self._known, {}
            for keeper in keepers:
                id = keeper.definition.id
                self._known[id] = known.get(id) or Dataset(keeper, self._clock, self._pond_id, dataset_jobs)
            return sorted(self._known.values(), key=lambda each: each.name)

    def get(self, wanted: str) -> Dataset:
        """By name, or by the path that was indexed."""
        found = self.all()
        for each in found:
            if each.name == wanted:
                return each
        for each in found:
            if each.path in (wanted, os.path.abspath(wanted)):
                return each
        names = ", ".join(each.name for each in found[:8]) or "none yet"
        raise DatasetNotFound(f"no data set {wanted!r}", hint=f"data sets: {names}")

    def create(self, name: str, made: Made) -> Dataset:
        """A new one. It is there, for others too, before its files are described: until then they are all read."""
        if any(each.name == name for each in self.all()):
            raise DatasetExists(
                f"data set {name!r} is there already",
                hint="pond.dataset(name).refresh() brings it up to date; pond.drop_dataset(name) drops it",
            )
        found = Dataset(made(self._make), self._clock, self._pond_id, dataset_jobs)
        with self._lock:
            return self._known.setdefault(found.id, found)

    def drop(self, name: str) -> str:
        """The name of the one that was dropped."""
        found = self.get(name)
        kept = found.name
        found.drop()
        return kept

    def _make(self, definition: DatasetDefinition) -> RemoteKeeper:
        text = msgspec.json.encode(definition).decode()
        return RemoteKeeper(self._connection, self._connection.ask(ask.CreateDataset(text), ask.DatasetMark))


def dataset_jobs() -> ModuleType:
    """What Spark does for data sets."""
    return importlib.import_module("millpond.spark.datasets")


def _definition(mark: ask.DatasetMark) -> DatasetDefinition:
    try:
        return msgspec.json.decode(mark.definition, type=DatasetDefinition)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            f"the node sent a data set that is not understood: {error}", hint="are both ends of the same version?"
        ) from error


def _marked(entries: pa.Table) -> ask.DatasetMark:
    try:
        return msgspec.json.decode((entries.schema.metadata or {})[ask.MARK], type=ask.DatasetMark)
    except (KeyError, msgspec.MsgspecError) as error:
        raise Unavailable(
            "the node sent entries without their data set", hint="are both ends of the same version?"
        ) from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
