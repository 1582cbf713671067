"""The desk's part of data sets whose files are described elsewhere: what is known of them is kept here.

A change may be larger than a request, and must be one step all the same. So its pieces wait in memory until the last
one is there, all changes together within a bound; what nobody goes on with is forgotten.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from millpond.archive.dataset.definition import DatasetDefinition
from millpond.archive.dataset.store import BASE, DatasetStore
from millpond.archive.index.blobs import BlobWriter
from millpond.clock import Clock
from millpond.errors import DatasetNotFound, Fenced, InvalidInput, TooLarge
from millpond.pond.bulk_desk import Calls, read_report
from millpond.wire import dataset_requests as ask
from millpond.wire.access import Caller
from millpond.wire.dataset import Dataset
from millpond.wire.desk import Batches

if TYPE_CHECKING:
    from millpond.pond.pond import Pond

# All that waits for its last piece: some hundred thousand entries.
WAITING_BYTES_MAX = 256_000_000
# A driver that is still there has sent the next piece by then.
_WAIT_SECONDS = 120.0


@dataclass
class _Change:
    id: str
    tables: list[pa.Table] = field(default_factory=list)
    blobs: bytearray = field(default_factory=bytearray)
    name: str = ""
    pieces: int = 0
    bytes: int = 0
    until_seconds: float = 0.0


class DatasetDesk:
    """Thread-safe."""

    def __init__(self, pond: Pond, clock: Clock) -> None:
        self._pond, self._clock = pond, clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Change] = {}

    def calls(self) -> Calls:
        """What answers each request."""
        return {
            ask.ListDatasets: lambda caller, request: [_mark(each) for each in self._pond.datasets()],
            ask.DescribeDataset: lambda caller, request: _mark(self._found(request.dataset, request.id)),
            ask.CreateDataset: lambda caller, request: _mark(self._pond.keep_dataset(_definition(request.definition))),
            ask.ChangeDataset: self._change,
            ask.DropDataset: self._drop,
        }

    def entries(self, request: ask.DatasetEntries) -> Batches:
        """Of one moment, with the definition that they belong to."""
        keeper = self._found(request.dataset, request.id).keeper
        definition, table = keeper.entries()
        mark = msgspec.json.encode(_mark_of(keeper, definition))
        schema = table.schema.with_metadata({ask.MARK: mark})

        def batches() -> Iterator[pa.RecordBatch]:
            yield from table.replace_schema_metadata(schema.metadata).to_batches()

        return Batches(schema, batches())

    def _found(self, name: str, id: str) -> Dataset:
        found = self._pond.dataset(name)
        if found.id != id:
            raise DatasetNotFound(f"data set {name!r} was dropped", hint="another one has its name now")
        return found

    def _drop(self, caller: Caller, request: ask.DropDataset) -> None:
        self._pond.drop_dataset(self._found(request.dataset, request.id).name)

    def _change(self, caller: Caller, request: ask.ChangeDataset) -> ask.DatasetMark | None:
        found = self._found(request.dataset, request.id)
        change = self._gathered(request)
        if change is None:
            return None
        entries = _checked(change.tables)
        blobs = BlobWriter.given(change.name, bytes(change.blobs)) if change.name else BlobWriter(0)
        definition = _definition(request.definition) if request.whole and request.definition else None
        if definition is not None and (definition.id, definition.name) != (found.id, found.name):
            raise InvalidInput(f"a definition of {definition.name!r}", hint=f"send the one of {found.name!r}")
        kept = found.change(request.version, entries, blobs, definition, whole=request.whole)
        return _mark_of(found.keeper, kept)

    def _gathered(self, request: ask.ChangeDataset) -> _Change | None:
        """The change with all of its pieces, once this was the last."""
        table = None if request.blobs else read_report(request.data)
        data = _bytes(request.data) if request.blobs else b""
        size = len(data) if table is None else table.nbytes
        now = self._clock.monotonic_seconds()
        with self._lock:
            for old in [key for key, each in self._waiting.items() if each.until_seconds < now]:
                del self._waiting[old]
            if request.piece == 0:
                self._waiting[request.id] = _Change(request.change)
            change = self._waiting.get(request.id)
            if change is None or change.id != request.change or change.pieces != request.piece:
                raise Fenced(
                    f"piece {request.piece} of a change of {request.dataset!r} that is not under way",
                    hint="somebody else changes the data set, or the pieces came too slowly; refresh it",
                )
            if sum(each.bytes for each in self._waiting.values()) + size > WAITING_BYTES_MAX:
                del self._waiting[request.id]
                raise TooLarge(
                    f"a change of {request.dataset!r} takes more than {WAITING_BYTES_MAX} bytes",
                    hint="fewer files in a data set, or smaller indexes",
                )
            change.pieces, change.bytes, change.until_seconds = (
                change.pieces + 1,
                change.bytes + size,
                now + _WAIT_SECONDS,
            )
            change.blobs += data
            change.name = request.blobs or change.name
            if table is not None:
                change.tables.append(table)
            return self._waiting.pop(request.id) if change.pieces == request.pieces else None


def _mark(found: Dataset) -> ask.DatasetMark:
    return _mark_of(found.keeper, found.definition)


def _mark_of(keeper: object, definition: DatasetDefinition) -> ask.DatasetMark:
    assert isinstance(keeper, DatasetStore), "an embedded pond keeps its data sets itself"
    return ask.DatasetMark(msgspec.json.encode(definition).decode(), keeper.directory, keeper.warnings())


def _definition(text: str) -> DatasetDefinition:
    try:
        return msgspec.json.decode(text, type=DatasetDefinition)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"not the definition of a data set: {error}", hint="send what pond.index made") from error


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"not base64: {error}", hint="send the bytes of blobs in base64") from None


def _checked(tables: list[pa.Table]) -> pa.Table:
    """The entries, if that is what they are."""
    for table in tables:
        if any(table.schema.get_field_index(each.name) < 0 for each in BASE) or not all(
            table.schema.field(each.name).type.equals(each.type) for each in BASE
        ):
            raise InvalidInput("not entries of files", hint=f"they have the columns {', '.join(BASE.names)}")
    try:
        return pa.concat_tables([BASE.empty_table(), *tables], promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(f"pieces of entries do not fit together: {error}", hint="send those of one table") from error
