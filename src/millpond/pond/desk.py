"""The desk over a pond: every request of every door is checked and answered here.

The check comes first and is the same for all: `_admit` looks at the request's own right and stream. A handler is found
by the request's class, so that a request without one cannot be served by accident.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from millpond import query
from millpond.errors import InvalidInput, InvalidValue, MillpondError, StreamNotFound
from millpond.ingest.arrow_stream import read_arrow_body
from millpond.log.engine import Ack, Told
from millpond.model import definition as model
from millpond.model import predicate as predicates
from millpond.model.definition import check_durability
from millpond.model.query_note import QueryNote
from millpond.model.stored_definition import encode_definition
from millpond.pond.bounds import Bounds
from millpond.pond.bulk_desk import bulk_calls, stage
from millpond.pond.dataset_desk import DatasetDesk
from millpond.pond.definition_calls import definition_calls
from millpond.pond.file_calls import file_calls
from millpond.pond.gate import Gate
from millpond.pond.group_desk import GroupRequests
from millpond.pond.pipelines import pipeline_calls
from millpond.pond.relayout_desk import relayout_calls, relayout_plan
from millpond.pond.watched import WatchedReader
from millpond.query import Where, parse_start, parse_value
from millpond.query.snapshot import Snapshot
from millpond.wire import requests as ask
from millpond.wire.access import Caller, check
from millpond.wire.answers import MARK, Counted, Node, SettlePlan, SnapshotMark, StreamInfo
from millpond.wire.dataset_requests import DatasetEntries
from millpond.wire.desk import Batches, Intake, PatientReader
from millpond.wire.group_requests import PollGroup
from millpond.wire.live import live_batches
from millpond.wire.relayout_requests import PlanRelayout
from millpond.wire.ticket import LiveTicket

if TYPE_CHECKING:
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream


_WIDEST = Bounds()
# A key in Arrow's form, decompressed.
_KEY_BYTES_MAX = 2_000_000


# What a follower is sent at once. A slow one keeps about as much of the node's memory as this, and there may be many.
FOLLOWED_BYTES = 256_000


class PondDesk:
    """Thread-safe. `flight` tells where the Flight door is (port, TLS), once there is one. `admit` is called with the
    id of each caller that was let in, and may raise: it bounds how often they come, whatever door they take."""

    def __init__(
        self, pond: Pond, gate: Gate, admit: Callable[[str], None] | None = None, bounds: Bounds = _WIDEST
    ) -> None:
        self._pond, self._gate, self._admit_often = pond, gate, admit
        self.flight: tuple[int, bool] | None = None
        self._calls: dict[type[ask.Request], Callable[[Caller, Any], Any]] = {
            ask.AboutNode: self._about_node,
            ask.ListStreams: self._list_streams,
            ask.Describe: lambda caller, request: self._stream(request).info(),
            ask.Truncate: lambda caller, request: self._stream(request).truncate(preview=request.preview),
            ask.Settle: self._settle,
            ask.StreamStatus: lambda caller, request: self._stream(request).status(),
            ask.PondStatus: lambda caller, request: pond.status(),
            ask.Segments: lambda caller, request: self._stream(request).segments(),
            ask.CountRows: lambda caller, request: Counted(self._stream(request).count(_where(request))),
            ask.DrawMap: lambda caller, request: self._stream(request).map(_where(request), request.axes),
            ask.Explain: lambda caller, request: self._stream(request).explain(_where(request)),
            ask.Verify: lambda caller, request: pond.verify(),
            ask.NoteQuery: lambda caller, request: self._stream(request).note_query(_note(request)),
            ask.TakeSnapshot: lambda caller, request: _mark(*_snapshot(self._stream(request))),
            **file_calls(self._stream),
            ask.CreateToken: lambda caller, request: gate.create(request),
            ask.ListTokens: lambda caller, request: gate.tokens(),
            ask.RevokeToken: lambda caller, request: gate.revoke(request.token),
        }
        groups = GroupRequests(pond, self._stream)
        datasets = DatasetDesk(pond, pond.clock)
        self._calls |= (
            definition_calls(pond, self._stream, bounds)
            | bulk_calls(self._stream)
            | relayout_calls(self._stream)
            | groups.calls()
            | datasets.calls()
            | pipeline_calls(pond.pipelines, _sees)
        )
        self._fetches: dict[type[ask.Request], Callable[[Any], Batches]] = {
            ask.Scan: self._scan,
            ask.Get: self._get,
            ask.ReadSegment: self._read_segment,
            ask.Objects: self._objects,
            ask.Audit: lambda request: _whole(pond.audit()),
            ask.Queries: lambda request: _whole(pond.queries(request.stream)),
            PlanRelayout: lambda request: relayout_plan(self._stream(request), request),
            PollGroup: groups.poll,
            DatasetEntries: datasets.entries,
        }

    # Who calls, and whether they may.

    def authenticate(self, token: str | None) -> Caller:
        caller = self._gate.authenticate(token)
        if self._admit_often is not None:
            self._admit_often(caller.id)
        return caller

    def _admit(self, caller: Caller, request: ask.Request) -> None:
        """The one check. A request that takes no right is answered with what the caller may see."""
        self._gate.check_still(caller)
        if request.right is not None:
            check(caller, request.right, request.stream)
        if request.stream and not isinstance(request, ask.Create):
            self._check_there(caller, request)

    def _check_there(self, caller: Caller, request: ask.Request) -> None:
        try:
            self._stream(request)
        except StreamNotFound as error:  # its hint names streams: only those that the caller may know of
            seen = [stream.name for stream in self._pond.streams() if _sees(caller, stream.name)]
            raise StreamNotFound(error.message, hint=f"streams: {', '.join(seen[:8]) or 'none yet'}") from None

    def _stream(self, request: ask.Request) -> Stream:
        """The stream that a request is about: that of its name, and of its id if it has one."""
        stream = self._pond.stream(request.stream)
        wanted = getattr(request, "id", None)
        if wanted is not None and stream.definition.id != wanted:
            raise StreamNotFound(
                f"stream {request.stream!r} was dropped",
                hint="another one has its name now; pond.stream(name) opens it",
            )
        return stream

    # Requests.

    def call(self, caller: Caller, request: ask.Call) -> Any:
        self._admit(caller, request)
        return self._calls[type(request)](caller, request)

    def fetch(self, caller: Caller, request: ask.Fetch) -> Batches:
        self._admit(caller, request)
        return self._fetches[type(request)](request)

    def live(self, caller: Caller, ticket: LiveTicket) -> Batches:
        for stream in self._pond.served_streams():
            if stream.settling.definition.id == ticket.stream:
                check(caller, "read", stream.name)
                return Batches(*live_batches(stream.halves, ticket))
        raise StreamNotFound(f"no stream with id {ticket.stream}", hint="it was dropped; make the DataFrame again")

    def read(self, caller: Caller, request: ask.Read) -> PatientReader:
        self._admit(caller, request)
        start = parse_start(request.start) if isinstance(request.start, str) else request.start
        reader = self._stream(request).read(
            start,
            follow=request.follow,
            columns=request.columns,
            where=_where(request),
            batch_rows=request.batch_rows,
            limit=request.limit,
            merge_within=request.merge_within,
        )
        if not request.follow:
            return reader
        reader.batch_bytes = FOLLOWED_BYTES
        return WatchedReader(reader, lambda: self._admit(caller, request))

    def append(self, caller: Caller, request: ask.Append, rows: Any) -> Ack:
        self._admit(caller, request)
        stream = self._stream(request)
        if request.stage is not None:
            return stage(stream, request, rows)
        how: dict[str, Any] = {
            "producer": request.producer,
            "sequence": request.sequence,
            "durability": None if request.durability is None else check_durability(request.durability),
        }
        if request.epoch is not None:
            return stream.file.append(rows, epoch=request.epoch, **how)
        return stream.append(rows, **how)

    def definition(self, caller: Caller, request: ask.StreamRequest) -> model.StreamDefinition:
        self._admit(caller, request)
        return self._stream(request).definition

    def intake(self, caller: Caller, request: ask.Append) -> Intake:
        self._admit(caller, request)
        return self._stream(request)

    def submit_batch(
        self, caller: Caller, request: ask.Append, batch: pa.RecordBatch | pa.Table, told: Told, after: object = None
    ) -> object:
        self._admit(caller, request)
        if request.stage is not None:
            told(stage(self._stream(request), request, batch), None)
            return after
        return self._stream(request).submit_batch(
            batch,
            told,
            producer=request.producer,
            sequence=request.sequence,
            durability=None if request.durability is None else check_durability(request.durability),
            after=after,
            epoch=request.epoch,
        )

    # Calls.

    def _about_node(self, caller: Caller, request: ask.AboutNode) -> Node:
        port, tls = self.flight or (None, False)
        grants = tuple((grant.prefix, tuple(sorted(grant.rights))) for grant in caller.grants)
        return Node(metadata.version("millpond"), self._pond.id, port, tls, caller.name, grants)

    def _list_streams(self, caller: Caller, request: ask.ListStreams) -> list[StreamInfo]:
        found = []
        for stream in self._pond.streams():
            if _sees(caller, stream.name):
                with contextlib.suppress(StreamNotFound):  # dropped since it was listed
                    found.append(stream.info())
        return found

    def _settle(self, caller: Caller, request: ask.Settle) -> Any:
        stream = self._stream(request)
        if not request.preview:
            return stream.settle()
        live = stream.snapshot().live
        return SettlePlan(stream.name, sum(map(len, live.values())), stream.status().bytes_live, live)

    # Fetches.

    def _scan(self, request: ask.Scan) -> Batches:
        return Batches(*self._stream(request).open_scan(_where(request), request.columns, request.limit))

    def _get(self, request: ask.Get) -> Batches:
        stream = self._stream(request)
        keys = stream.definition.keys
        column = request.by if request.by is not None else keys[0] if keys else ""
        value: Any = request.key
        if request.exact:
            value = _exact(request.key)
        elif column in keys:  # what is no key is refused by the lookup itself, which knows what to do instead
            value = parse_value(request.key, stream.schema, column)
        if request.by is None:
            return _whole(stream.get(value, limit=request.limit))
        # Not as a keyword: a column may be called as a parameter is.
        return _whole(query.get(stream.halves, None, limit=request.limit, secondary={request.by: value}))

    def _read_segment(self, request: ask.ReadSegment) -> Batches:
        stream = self._stream(request)
        batches = stream.read_segment(request.segment, columns=request.columns)
        return Batches(stream.read("latest", columns=request.columns).schema, batches)

    def _objects(self, request: ask.Objects) -> Batches:
        definition, snapshot, root = _snapshot(self._stream(request))
        entries = snapshot.settled.objects.entries
        mark = msgspec.json.encode(_mark(definition, snapshot, root))
        return _whole(entries.replace_schema_metadata({MARK: mark}))


def _sees(caller: Caller, stream: str) -> bool:
    return any(grant.covers(stream) for grant in caller.grants)


def _snapshot(stream: Stream) -> tuple[model.StreamDefinition, Snapshot, str]:
    definition, snapshot = stream.definition, stream.snapshot()
    # Of one generation, also if it is being truncated.
    return replace(definition, generation=snapshot.generation), snapshot, stream.archive.root


def _mark(definition: model.StreamDefinition, snapshot: Snapshot, root: str) -> SnapshotMark:
    return SnapshotMark(
        encode_definition(definition),
        snapshot.version,
        dict(snapshot.boundary),
        dict(snapshot.heads),
        root,
        tuple(snapshot.settled.warnings),
        snapshot.cutoff_micros,
        dict(snapshot.floor),
    )


def _whole(table: pa.Table) -> Batches:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()

    return Batches(table.schema, batches())


def _note(request: ask.NoteQuery) -> QueryNote:
    predicate = predicates.decode(request.predicate.encode())
    return QueryNote(predicate, request.objects_read, request.objects_total, request.bytes_read, request.bytes_total)


def _where(request: Any) -> Where:
    if request.predicate is None:
        where: str | None = request.where
        return where
    if request.where is not None:
        raise InvalidValue("both where and predicate are given", hint="give one of the two")
    return predicates.decode(request.predicate.encode())


def _exact(text: str) -> Any:
    try:
        _, (batch,) = read_arrow_body(
            base64.b64decode(text, validate=True), decoded_bytes_max=_KEY_BYTES_MAX, rows_max=1, columns_max=1
        )
        return batch.column(0)[0].as_py()
    except MillpondError as error:
        raise InvalidInput(f"not a key as Arrow serialises it: {error.message}", hint="send the key as text") from None
    except (ValueError, IndexError, pa.ArrowException) as error:
        raise InvalidInput(f"not a key as Arrow serialises it: {error}", hint="send the key as text") from None
