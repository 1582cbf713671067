"""A pond that is served elsewhere, as users hold it: the methods of `millpond.Pond`, each a request to its node."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable, Sequence
from decimal import Decimal
from types import EllipsisType, TracebackType
from typing import Any

import msgspec
import pyarrow as pa

from millpond.archive.specs import given_indexes, given_layout
from millpond.client.connection import Connection
from millpond.client.datasets import RemoteShelf, dataset_jobs
from millpond.client.files import ServedFile
from millpond.client.groups import RemoteGroupDesk
from millpond.client.pipelines import RemoteBoard
from millpond.client.served import StreamForSpark
from millpond.client.stream import RemoteStream
from millpond.client.tokens import RemoteTokens
from millpond.client.watch import Listing, Watch
from millpond.clock import SystemClock
from millpond.consume.face import ConsumerFace
from millpond.consume.protocol import GroupDesk
from millpond.errors import Forbidden, MillpondError
from millpond.files import WithFiles
from millpond.ingest.producer import Producer
from millpond.model.definition import Durability, Settle, new_definition, parse_ttl
from millpond.model.names import check_name
from millpond.model.schema import check_schema, encode_schema
from millpond.model.schema_text import GivenSchema, given_schema
from millpond.model.spec import GivenSpec
from millpond.model.units import Duration, Size
from millpond.wire import requests as ask
from millpond.wire.answers import DropPlan, Node, StreamInfo
from millpond.wire.dataset import Dataset
from millpond.wire.dataset_face import WithDatasets
from millpond.wire.served import Change
from millpond.wire.status import PondStatus, VerifyReport

DEFAULT_SETTLE = Settle()
# What is being looked at, how far, of how much.
Progress = Callable[[str, int, int], None]


class RemotePond(ConsumerFace, WithFiles, WithDatasets):
    """Made by `millpond.connect`. Thread-safe; a context manager that closes it."""

    _jobs = staticmethod(dataset_jobs)

    def __init__(self, connection: Connection, node: Node) -> None:
        self._connection, self._node = connection, node
        self._lock = threading.Lock()
        self._streams: dict[str, RemoteStream] = {}
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self.pipelines = RemoteBoard(connection)
        self._watch = Watch(self._listing)
        self._groups = RemoteGroupDesk(connection, self.stream)
        self._clock = SystemClock()
        self._datasets = RemoteShelf(connection, self._clock, node.pond)

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
    ) -> RemoteStream:
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
        wanted = new_definition(
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
            only=only,
            indexes=given_indexes(indexes),
            layout=None if layout is None else given_layout(layout),
        )
        when = None if settle is None else ask.SettleSpec(_seconds(settle.every_seconds), f"{settle.bytes_live}B")
        request = ask.Create(
            wanted.name,
            schema_arrow=None if schema is None else encode_schema(wanted.sent_schema),
            keys=wanted.keys,
            event_time=wanted.event_time,
            streamlets=wanted.streamlets,
            durability=wanted.durability,
            settle=when,
            partition=_seconds(wanted.partition_seconds),
            memory=None if wanted.memory_bytes is None else f"{wanted.memory_bytes}B",
            file=file,
            ttl=None if wanted.ttl_seconds is None else _seconds(wanted.ttl_seconds),
            keep=keep,
            only=None if only is None else tuple(only),
            indexes=tuple(spec.plain() for spec in wanted.indexes),
            layout=None if wanted.layout is None else wanted.layout.plain(),
            exist_ok=exist_ok,
        )
        made = self._stream_of(self._connection.ask(request, StreamInfo))
        self._watch.look()
        return made

    def stream(self, name: str) -> RemoteStream:
        """The stream of that name; `StreamNotFound` if there is none."""
        check_name(name)
        try:
            return self._stream_of(self._connection.ask(ask.Describe(name), StreamInfo))
        except Forbidden:  # who may only write is told what a listing tells
            for stream in self.streams():
                if stream.name == name:
                    return stream
            raise

    def streams(self) -> list[RemoteStream]:
        """All streams, by name."""
        return sorted(map(self._stream_of, self._infos()), key=lambda stream: stream.name)

    def alter_stream(
        self,
        name: str,
        schema: GivenSchema | None = None,
        *,
        ttl: Duration | EllipsisType | None = ...,
        indexes: Sequence[GivenSpec] | EllipsisType = ...,
        layout: GivenSpec | EllipsisType | None = ...,
    ) -> RemoteStream:
        """Add nullable columns: `schema` is the old one with more at the end; anything else is refused.

        `ttl`: how long a record is kept from now on, also those that are there; None: for good. A shorter one takes
        effect at once: what is older is not given out any more, and dropped soon after. `indexes`: all that there are
        from now on; `stream.rebuild_indexes()` makes their entries for what has settled before. `layout`: that of what
        settles from now on; None: none."""
        schema = given_schema(schema)
        request = ask.Alter(
            check_name(name),
            schema_arrow=None if schema is None else encode_schema(check_schema(schema)),
            ttl=msgspec.UNSET if isinstance(ttl, EllipsisType) else _ttl(ttl),
            indexes=msgspec.UNSET
            if isinstance(indexes, EllipsisType)
            else tuple(spec.plain() for spec in given_indexes(indexes)),
            layout=msgspec.UNSET
            if isinstance(layout, EllipsisType)
            else None
            if layout is None
            else given_layout(layout).plain(),
        )
        altered = self._stream_of(self._connection.ask(request, StreamInfo))
        self._watch.look()
        return altered

    def drop_stream(self, name: str) -> None:
        """Drop a stream and everything it holds, live and settled. What was dropped is on record in `_pond/audit`."""
        self._connection.ask(ask.Drop(check_name(name)), DropPlan)
        with self._lock:
            gone = self._streams.pop(name, None)
        if gone is not None:
            gone.forget()
        self._watch.look()

    def _file_desk(self, name: str, lease_seconds: float) -> ServedFile:
        stream = self.stream(name)
        return ServedFile(self._connection, stream, stream.info(), _seconds(lease_seconds))

    def _file_names(self) -> list[str]:
        return sorted(info.name for info in self._infos() if info.file)

    def audit(self) -> pa.Table:
        """What was discarded, when and why: the records of `_pond/audit`."""
        return self._connection.table(ask.Audit())

    def queries(self, stream: str) -> pa.Table:
        """What was asked of a stream, oldest first: the records of `_pond/queries`. Predicates are JSON, literals in
        them; objects and bytes are those of its archive that the query had to read, and all there were."""
        return self._connection.table(ask.Queries(check_name(stream)))

    def _infos(self) -> list[StreamInfo]:
        infos: list[StreamInfo] = self._connection.ask(ask.ListStreams(), list[StreamInfo])
        return infos

    def _stream_of(self, info: StreamInfo) -> RemoteStream:
        """The one object for a stream; another one if there is another stream under its name."""
        with self._lock:
            known = self._streams.get(info.name)
            if known is None or known.id != info.id:
                if known is not None:
                    known.forget()
                known = RemoteStream(self._connection, self.id, info.name, info.id, self._producers.add)
                self._streams[info.name] = known
            return known

    def group_desk(self) -> GroupDesk:
        """Where consumer groups are kept."""
        return self._groups

    # For Spark.

    def attach(self, spark: Any) -> Any:
        """Every stream as a view in this Spark session: `grid/meters` as `grid_meters`, also those made later."""
        return importlib.import_module("millpond.spark").attach(self, spark)

    def served_streams(self) -> list[StreamForSpark]:
        """The streams in the order of their ids."""
        return [StreamForSpark(stream) for stream in sorted(self.streams(), key=lambda stream: stream.id)]

    def served_datasets(self) -> list[Dataset]:
        """For Spark's views: none for who may not read the pond as a whole."""
        try:
            return self.datasets()
        except Forbidden:
            return []

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` after each stream is created, altered or dropped, which is looked for once a second. Returns
        how to stop it."""
        return self._watch.add(callback)

    def _listing(self) -> Listing:
        streams = {info.name: (info.id, info.schema_version) for info in self._infos()}
        return streams | {f"data set {each.name}": (int(each.id, 16), each.types) for each in self.served_datasets()}

    def _check_open(self) -> None:
        _ = self._connection.link

    def _tell(self, change: Change) -> None:
        self._watch.look()

    # Looking after it.

    @property
    def path(self) -> str:
        """Where it is: the address that was connected to."""
        return self._connection.shown

    @property
    def id(self) -> str:
        return self._node.pond

    def node(self) -> Node:
        """The node that serves the pond: its version, its doors, and what the caller may do."""
        node: Node = self._connection.ask(ask.AboutNode(), Node)
        return node

    @property
    def tokens(self) -> RemoteTokens:
        """The tokens that the node asks for."""
        return RemoteTokens(self._connection)

    def status(self) -> PondStatus:
        """How the pond does: every stream, the log, and how much was written for what was appended."""
        status: PondStatus = self._connection.ask(ask.PondStatus(), PondStatus)
        return status

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Check every checksum and every count. `progress(what, done, total)` is called at the end only: the node does
        not tell how far it is."""
        report: VerifyReport = self._connection.ask(ask.Verify(), VerifyReport)
        if progress is not None:
            total = report.journal_bytes + report.archive_bytes
            progress("pond", total, total)
        return report

    def close(self, *, settle: bool | None = None) -> None:
        """Finish what producers made here have to send, settle if asked, and let go of the connection. The served pond
        goes on. May be called twice."""
        if self._connection.closed:
            return
        failures: list[MillpondError] = []
        try:
            for producer in list(self._producers):
                try:
                    producer.close()
                except MillpondError as error:  # one that fails does not keep the others from it
                    failures.append(error)
            if settle:
                self._settle_all()
        finally:
            self._watch.close()
            self._connection.close()
        if failures:
            raise failures[0]

    def _settle_all(self) -> None:
        for stream in self.streams():
            if stream.definition.settle is not None:
                stream.settle()

    def __enter__(self) -> RemotePond:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millpond pond at {self._connection.shown}{', closed' if self._connection.closed else ''}>"


def _ttl(ttl: Duration | None) -> str | None:
    seconds = parse_ttl(ttl)
    return None if seconds is None else _seconds(seconds)


def _seconds(number: float) -> str:
    """A duration with its unit, without an exponent."""
    return f"{Decimal(repr(float(number))):f}s"
