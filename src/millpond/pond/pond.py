"""A pond: the streams of one directory. Small on purpose: what can be done with a stream is on `Stream`."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.archive.specs import check_kinds, checked_indexes, checked_layout
from millpond.archive.stream_archive import StreamArchive
from millpond.clock import Clock
from millpond.consume.coordinator import Coordinator
from millpond.consume.face import ConsumerFace
from millpond.consume.protocol import GroupDesk
from millpond.errors import Damaged, MillpondError, PondClosed, StreamExists, StreamNotFound, TooLarge
from millpond.files import WithFiles
from millpond.ingest.producer import Producer
from millpond.log.embedded.engine import EmbeddedLog
from millpond.model.definition import Durability, Settle, StreamDefinition, altered_definition, new_definition
from millpond.model.names import check_name
from millpond.model.schema_text import GivenSchema, given_schema
from millpond.model.spec import GivenSpec
from millpond.model.stored_definition import encode_definition
from millpond.model.units import Duration, Size
from millpond.pond.background import Background
from millpond.pond.catalog import AUDIT, CATALOG, OWN_STREAMS, Catalog
from millpond.pond.consumed import PondStreams
from millpond.pond.datasets import Datasets, PondDatasets
from millpond.pond.desk import PondDesk
from millpond.pond.directory import PondDirectory
from millpond.pond.file_calls import HereFile
from millpond.pond.gate import SecretGate
from millpond.pond.history import QueryHistory
from millpond.pond.own_records import OwnRecords
from millpond.pond.pipelines import Board
from millpond.pond.staging import Staging
from millpond.pond.stream import Stream
from millpond.pond.truncating import truncate
from millpond.pond.upkeep import Upkeep
from millpond.pond.verify import Progress, verify_pond
from millpond.query.terms import sifting
from millpond.settings import Settings
from millpond.storage import Storage
from millpond.telemetry import Telemetry
from millpond.wire.access import Grant, new_secret
from millpond.wire.answers import TruncatePlan
from millpond.wire.served import Change
from millpond.wire.status import PondStatus, StreamStatus, VerifyReport

if TYPE_CHECKING:
    from millpond.flight import FlightDoor

DEFAULT_SETTLE = Settle()


class Pond(ConsumerFace, WithFiles, PondDatasets):
    """Made by `millpond.open`. Thread-safe; a context manager that closes it."""

    def __init__(
        self,
        directory: PondDirectory,
        log: EmbeddedLog,
        storage: Storage,
        clock: Clock,
        settings: Settings,
        *,
        background: bool,
        settle_on_close: bool,
    ) -> None:
        self._directory, self._log = directory, log
        self.telemetry = Telemetry(log.telemetry)
        self._storage, self._clock, self._settings = storage, clock, settings
        self._settle_on_close = settle_on_close
        self._lock = threading.RLock()
        self._closed = False
        self._upkeep = Upkeep(directory.path)
        self.pipelines = Board(clock)
        self._datasets = Datasets(storage, directory.path, clock, directory.id.hex())
        self._listeners: list[Callable[[Change], None]] = []
        self._door: FlightDoor | None = None
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self.staging = Staging(storage, os.path.join(directory.path, "spill"), clock, settings)
        for definition in OWN_STREAMS:
            log.add_stream(definition)
        self._own = OwnRecords(log, clock)
        self.history = QueryHistory(log, clock, settings)
        self._catalog = Catalog.replay(self._own.read(CATALOG))
        self._finish_drops()
        self._streams = {name: self._open_stream(d) for name, d in self._catalog.streams.items()}
        log.forget_unclaimed()
        self.coordinator = Coordinator(log, PondStreams(self), clock, self._stream_list())
        self._background = Background(self._stream_list, self.history.write) if background else None

    # Streams.

    def create_stream(
        self,
        name: str,
        schema: GivenSchema | None = None,
        *,
        keys: Sequence[str] = (),
        event_time: str | None = None,
        streamlets: int = 1,
        durability: Durability = "disk",
        settle: Settle | None = DEFAULT_SETTLE,
        partition: Duration = "1d",
        memory: Size | None = None,
        file: bool = False,
        ttl: Duration | None = None,
        keep: str | None = None,
        only: Sequence[str] | None = None,
        indexes: Sequence[GivenSpec] = (),
        layout: GivenSpec | None = None,
        exist_ok: bool = False,
    ) -> Stream:
        """Create a stream. Without a schema it takes raw events: time, headers, body.

        `schema`: Arrow's, or as text: "vid string NOT NULL, temp double".
        `keys`: columns to look records up by, the first one primary (it decides the streamlet). `settle`: when it
        moves to the archive by itself; None means never. `partition`: the time that one directory of objects covers,
        by `event_time` where given, else by time of ingestion. `memory`: how much of it may be held in memory.
        `file`: bytes by position, for `open_file`.
        `ttl`: how long a record is kept after its ingestion ("30d"); None means for good. `keep`: a condition over the
        columns of `schema` ("temp > -50"); records that do not meet it are not stored. `only`: the columns that are.
        `indexes`: what is known of settled objects besides the range of every ordered column, so that queries leave
        objects out: `[Values("city")]`, or "values:city". `layout`: which rows share an object: `KdTree("lat", "lon")`.
        """
        schema = given_schema(schema)
        definition = new_definition(
            name,
            schema,
            keys=keys,
            event_time=event_time,
            streamlets=streamlets,
            durability=durability,
            settle=settle,
            partition=partition,
            memory=memory,
            file=file,
            ttl=ttl,
            keep=keep,
            keep_terms=None if keep is None else sifting(keep, schema),
            only=only,
            indexes=checked_indexes(indexes),
            layout=None if layout is None else checked_layout(layout),
        )
        check_kinds(definition)
        with self._changing():
            if name in self._streams:
                if exist_ok:
                    return _of_schema(self._streams[name], definition)
                raise StreamExists(f"stream {name!r} is there already", hint="pond.stream(name) opens it")
            if len(self._streams) >= self._settings.streams_max:
                raise TooLarge(f"the pond has {len(self._streams)} streams", hint="raise the setting streams_max")
            definition = replace(definition, id=self._catalog.next_id)
            self._record("create", definition)
            stream = self._streams[name] = self._open_stream(definition)
            self._tell(Change("created", name))
            return stream

    def stream(self, name: str) -> Stream:
        """The stream of that name; `StreamNotFound` if there is none."""
        self._check_open()
        found = self._streams.get(name)
        if found is None:
            check_name(name)
            known = ", ".join(sorted(self._streams)[:8]) or "none yet"
            raise StreamNotFound(f"no stream {name!r}", hint=f"streams: {known}")
        return found

    def streams(self) -> list[Stream]:
        """All streams, by name."""
        self._check_open()
        return sorted(self._stream_list(), key=lambda stream: stream.name)

    def alter_stream(
        self,
        name: str,
        schema: GivenSchema | None = None,
        *,
        ttl: Duration | EllipsisType | None = ...,
        indexes: Sequence[GivenSpec] | EllipsisType = ...,
        layout: GivenSpec | EllipsisType | None = ...,
    ) -> Stream:
        """Add nullable columns: `schema` is the old one with more at the end; anything else is refused.

        `ttl`: how long a record is kept from now on, also those that are there; None: for good. A shorter one takes
        effect at once: what is older is not given out any more, and dropped soon after. `indexes`: all that there are
        from now on; `stream.rebuild_indexes()` makes their entries for what has settled before. `layout`: that of what
        settles from now on; None: none."""
        with self._changing():
            stream = self.stream(name)
            definition = altered_definition(
                stream.definition,
                given_schema(schema),
                ttl,
                indexes if isinstance(indexes, EllipsisType) else checked_indexes(indexes),
                layout if layout is None or isinstance(layout, EllipsisType) else checked_layout(layout),
            )
            check_kinds(definition, stream.definition)
            if definition == stream.definition:
                return stream
            self._record("alter", definition)
            self._log.alter_stream(definition)
            stream.archive.alter(definition)
            stream.redefine(definition)
            self._tell(Change("altered", name))
            return stream

    def drop_stream(self, name: str) -> None:
        """Drop a stream and everything it holds, live and settled. What was dropped is on record in `_pond/audit`."""
        with self._changing():
            stream = self.stream(name)
            definition, status = stream.definition, stream.status()
            detail = f"rows_live={status.rows_live} rows_settled={status.rows_settled} id={definition.id}"
            self._record("drop", definition, detail)
            del self._streams[name]
            stream.redefine(None)
            self.coordinator.forget(definition.id)
            self._log.drop_stream(definition.id)
            try:
                stream.archive.delete()
            finally:  # it is dropped whatever is left of it, which the next open removes
                self._tell(Change("dropped", name))

    def _file_desk(self, name: str, lease_seconds: float) -> HereFile:
        return HereFile(self.stream(name))

    def _file_names(self) -> list[str]:
        return [stream.name for stream in self.streams() if stream.definition.file]

    def audit(self) -> pa.Table:
        """What was discarded, when and why: the records of `_pond/audit`."""
        self._check_open()
        schema = AUDIT.schema
        return pa.Table.from_batches([b.select(schema.names) for b in self._own.read(AUDIT)], schema)

    def queries(self, stream: str) -> pa.Table:
        """What was asked of a stream, oldest first: the records of `_pond/queries`. Predicates are JSON, literals in
        them; objects and bytes are those of its archive that the query had to read, and all there were."""
        return self.history.read(self.stream(stream).definition.id)

    def _open_stream(self, definition: StreamDefinition) -> Stream:
        root = os.path.join(self._directory.archive, definition.directory)
        archive = StreamArchive.open(self._storage, root, definition, self._directory.id.hex(), self._clock)
        try:
            self._log.add_stream(definition, archive.snapshot().boundary)
        except Damaged as error:
            torn = archive.torn_commits()
            if not torn:
                raise
            hint = (
                f"the archive's newest commit could not be read and lies in {', '.join(torn)}: if it settled these "
                "offsets, restore it to _delta_log under its own name from a copy"
            )
            raise Damaged(error.message, hint=hint) from error
        return Stream(
            definition,
            self._log,
            archive,
            self._clock,
            self._settings,
            self._open_door,
            self.telemetry,
            self.id,
            self._producers.add,
            self._truncate,
            self.staging,
            self._audit,
            self._processed,
            lambda *asked: self.coordinator.processed(*asked),
            self.history,
            self._upkeep,
        )

    def _finish_drops(self) -> None:
        """Finish what a crash in the middle of a drop left behind."""
        for definition in self._catalog.dropped.values():
            directory = os.path.join(self._directory.archive, definition.directory)
            if self._storage.exists(directory):
                self._storage.remove_tree(directory)

    def _truncate(self, stream: Stream) -> TruncatePlan:
        """See `Stream.truncate`."""
        with self._changing():
            gone = truncate(stream, self._log, lambda definition, detail: self._record("truncate", definition, detail))
            self._tell(Change("truncated", stream.name))
            return gone

    def _audit(self, action: str, stream: str, detail: str) -> None:
        """Put a discard on record, durably, before it happens (I6)."""
        self._own.append((AUDIT, {"action": action, "stream": stream, "detail": detail}))

    def _processed(self, stream_id: int) -> Mapping[int, int] | None:
        """What every consumer group of a stream has processed; None if it has no groups."""
        return self.coordinator.pins(stream_id) or None

    def _record(self, op: str, definition: StreamDefinition, discarded: str = "") -> None:
        """Put a change on record, durably, with what it discards, and let it take effect in the catalog."""
        records = [(CATALOG, {"op": op, "stream": definition.id, "body": encode_definition(definition)})]
        if discarded:
            records.append((AUDIT, {"action": op, "stream": definition.name, "detail": discarded}))
        self._own.append(*records)
        self._catalog.apply(op, definition)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            self._check_open()
            yield

    # For doors and Spark.

    def attach(self, spark: Any) -> Any:
        """Every stream as a view in this Spark session: `grid/meters` as `grid_meters`, also those made later."""
        return importlib.import_module("millpond.spark").attach(self, spark)

    def served_streams(self) -> list[Stream]:
        """The streams in the order of their ids."""
        self._check_open()
        return sorted(self._stream_list(), key=lambda stream: stream.definition.id)

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` after each stream is created, altered or dropped, and after the pond is closed. Returns how
        to stop it."""
        with self._lock:
            self._listeners.append(callback)
        return lambda: self._forget(callback)

    def _forget(self, callback: Callable[[Change], None]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(callback)

    def _tell(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(change)

    def group_desk(self) -> GroupDesk:
        """Where consumer groups are kept."""
        self._check_open()
        return self.coordinator

    def _open_door(self) -> FlightDoor:
        with self._changing():
            if self._door is None:
                from millpond.flight import FlightDoor  # a tenth of a second that only Spark's users pay

                token = new_secret()
                gate = SecretGate(token, Grant("", frozenset(("read", "write"))))
                self._door = FlightDoor(PondDesk(self, gate), token=token)
            return self._door

    # Looking after it.

    @property
    def path(self) -> str:
        return self._directory.path

    @property
    def id(self) -> str:
        return self._directory.id.hex()

    def status(self) -> PondStatus:
        """How the pond does: every stream, the log, and how much was written for what was appended."""
        streams = tuple(self._statuses())
        log = self._log.status()
        archived = sum(s.settling.bytes_written + s.settling.compacted_bytes for s in streams)
        written = log.journal_written_bytes + log.spill_written_bytes + archived
        ratio = written / log.appended_bytes if log.appended_bytes else None
        return PondStatus(self.path, self.id, streams, log, ratio, log.warnings)

    def _statuses(self) -> Iterator[StreamStatus]:
        for stream in self.streams():
            with contextlib.suppress(StreamNotFound):  # dropped meanwhile
                yield stream.status()

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Check every checksum and every count. `progress(what, done, total)` is called on the way."""
        return verify_pond(self._log, self.streams(), progress)

    @property
    def log(self) -> EmbeddedLog:
        """The log engine, for those who look after the pond."""
        return self._log

    def _stream_list(self) -> list[Stream]:
        return list(self._streams.values())

    def _check_open(self) -> None:
        if self._closed:
            raise PondClosed(f"the pond {self.path} is closed", hint="open it again")

    def close(self, *, settle: bool | None = None) -> None:
        """Finish what producers have to send and what goes on behind, settle if asked, sync, and let go of the
        directory. Relayouts, rebuilds and vacuums are given up after the step that they are at. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        failures: list[MillpondError] = []
        try:
            self._upkeep.close()
            for producer in list(self._producers):
                try:
                    producer.close()
                except MillpondError as error:  # one that fails does not keep the others from it
                    failures.append(error)
            if self._background is not None:
                self._background.stop()
            self.history.write()
            if settle if settle is not None else self._settle_on_close:
                self._settle_all()
        finally:
            try:
                if self._door is not None:
                    self._door.close()
                self.staging.close()
                self._log.close()
            finally:
                self._directory.lock.release()
                self._tell(Change("closed", ""))
        if failures:
            raise failures[0]

    def _settle_all(self) -> None:
        """Settle every stream that is archived; one that fails does not keep the others from it."""
        failures: list[MillpondError] = []
        for stream in self._stream_list():
            if stream.definition.settle is not None:
                try:
                    stream.settle()
                except MillpondError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def __enter__(self) -> Pond:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millpond pond {self.path!r}, {len(self._streams)} streams{', closed' if self._closed else ''}>"


def _of_schema(stream: Stream, wanted: StreamDefinition) -> Stream:
    """The stream, if it has the columns that are wanted; more may have been added since."""
    there = stream.schema
    for index, field in enumerate(() if wanted.raw else wanted.schema):
        if index >= len(there) or not there.field(index).equals(field):
            found = f"{there.field(index).name} {there.field(index).type}" if index < len(there) else "not there"
            raise StreamExists(
                f"stream {stream.name!r} is there with another schema: column {index} is {found}, not "
                f"{field.name} {field.type}",
                hint="pond.stream(name) opens it as it is; pond.alter_stream(name, schema) adds columns",
            )
    return stream
