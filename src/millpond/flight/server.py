"""The Flight service: each verb becomes a request, and the desk answers it.

Who calls is found out before anything else, on every call, by middleware, so that no handler can forget it; whether
they may is decided by the desk, for every request and every door alike. This module decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from millpond.errors import Forbidden, MillpondError, PondClosed, StreamNotFound, TooManyRequests
from millpond.flight.errors import as_flight_error, told_to_caller
from millpond.flight.following import Following
from millpond.flight.limits import Limits
from millpond.flight.messages import (
    action_names,
    decode_action,
    decode_followed,
    decode_got,
    decode_named,
    decode_put,
)
from millpond.flight.metering import METER, CallMeters, meter_of, turned_away
from millpond.flight.putting import Putting
from millpond.model.offsets import OffsetRange
from millpond.telemetry import DoorCounters
from millpond.wire import requests as ask
from millpond.wire.access import Caller
from millpond.wire.desk import Batches, Desk
from millpond.wire.ticket import LiveTicket, encode_ticket
from millpond.wire.tls import Tls

_PREFIX = "Bearer "
_CALLER = "caller"
# How often followers are looked at: whether they take what they are sent.
_LOOK_SECONDS = 1.0


class FlightServer(flight.FlightServerBase):
    """Serves from its making on. Handlers run in threads of gRPC's."""

    def __init__(self, desk: Desk, location: str, tls: Tls | None, limits: Limits, counters: DoorCounters) -> None:
        self._desk, self._limits = desk, limits
        self.closing = threading.Event()
        self._streams = _Places(limits.streams_max, "puts, gets and followers")
        self._calls = _Places(limits.calls_max, "calls")
        self._followings: set[Following] = set()
        self._followings_lock = threading.Lock()
        super().__init__(
            location,
            tls_certificates=None if tls is None else [(tls.certificate, tls.key)],
            verify_client=tls is not None and tls.client_roots is not None,
            root_certificates=None if tls is None else tls.client_roots,
            middleware={METER: CallMeters(counters), _CALLER: _CallerCheck(desk, counters)},
        )
        threading.Thread(target=self._look_after, name="millpond-followers", daemon=True).start()

    # Batches in, batches out.

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with told_to_caller(), self._streams.taken():
            self._refuse_closing()
            request = decode_put(descriptor, self._limits.request_bytes_max)
            caller = _caller(context)
            Putting(self._desk, caller, request, context, reader, writer, self._limits, self.closing).run()

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with told_to_caller():
            self._refuse_closing()
            request = decode_got(ticket.ticket, self._limits.request_bytes_max)
            release = self._streams.take()
            try:
                schema, batches = self._fetch(_caller(context), request)
            except BaseException:
                release()
                raise
            return flight.GeneratorStream(schema, _Served(batches, context, self.closing, release))

    def _fetch(self, caller: Caller, request: ask.Fetch | ask.Read | LiveTicket) -> Batches:
        if isinstance(request, LiveTicket):
            return self._desk.live(caller, request)
        if isinstance(request, ask.Read):
            reader = self._desk.read(caller, request)
            return Batches(reader.schema, iter(reader.poll, None))
        return self._desk.fetch(caller, request)

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        with told_to_caller(), self._streams.taken():
            self._refuse_closing()
            request = decode_followed(descriptor, self._limits.request_bytes_max)
            source = self._desk.read(_caller(context), request)
            following = Following(context, source, reader, writer, self._limits, self.closing)
            with self._looked_after(following):
                following.run()

    @contextmanager
    def _looked_after(self, following: Following) -> Iterator[None]:
        with self._followings_lock:
            self._followings.add(following)
        try:
            yield
        finally:
            with self._followings_lock:
                self._followings.discard(following)

    def _look_after(self) -> None:
        while not self.closing.wait(_LOOK_SECONDS):
            with self._followings_lock:
                followings = list(self._followings)
            for each in followings:
                each.rest_if_slow()

    # What is there.

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The streams that the caller may read; `criteria` is the beginning of their names."""
        with self._answering():
            caller = _caller(context)
            prefix = criteria.decode(errors="replace")
            streams = [s.name for s in self._desk.call(caller, ask.ListStreams()) if s.name.startswith(prefix)]
            found = [info for name in streams if (info := self._readable(caller, name)) is not None]
        return iter(found)

    def _readable(self, caller: Caller, name: str) -> flight.FlightInfo | None:
        try:
            return self._info(caller, name)
        except (Forbidden, StreamNotFound):  # not theirs to read, or dropped meanwhile
            return None

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with self._answering():
            return self._info(_caller(context), decode_named(descriptor, self._limits.request_bytes_max))

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        try:
            with self._answering():
                name = decode_named(descriptor, self._limits.request_bytes_max)
                return flight.SchemaResult(self._desk.definition(_caller(context), ask.Describe(name)).schema)
        except flight.FlightError as error:
            # Of this verb alone, pyarrow sends the traceback of an error: it is kept as short as can be.
            raise error.with_traceback(None) from None

    def _info(self, caller: Caller, name: str) -> flight.FlightInfo:
        """A stream with an endpoint per streamlet, each for all that is there of it now, settled and live."""
        status = self._desk.call(caller, ask.StreamStatus(name))
        schema = self._desk.definition(caller, ask.Describe(name)).schema
        endpoints = []
        for streamlet, head in sorted(status.head.items()):
            ticket = LiveTicket(status.id, status.generation, {streamlet: OffsetRange(0, head)}, tuple(schema.names))
            endpoints.append(flight.FlightEndpoint(encode_ticket(ticket), []))
        return flight.FlightInfo(
            schema,
            flight.FlightDescriptor.for_path(name),
            endpoints,
            status.rows_live + status.rows_settled,
            status.bytes_live + status.bytes_settled,
        )

    # The rest.

    def list_actions(self, context: flight.ServerCallContext) -> list[flight.ActionType]:
        return [flight.ActionType(name, text) for name, text in action_names()]

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[flight.Result]:
        with self._answering():
            request = decode_action(action.type, action.body.to_pybytes(), self._limits.request_bytes_max)
            answer = self._desk.call(_caller(context), request)
            return [flight.Result(pa.py_buffer(msgspec.json.encode(answer)))]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        with told_to_caller(), self._calls.taken():
            self._refuse_closing()
            yield

    def _refuse_closing(self) -> None:
        if self.closing.is_set():
            raise PondClosed("the node is closing", hint="try again when it is back")


class _Places:
    """So many at once, and no more."""

    def __init__(self, count: int, what: str) -> None:
        self._count, self._what = count, what
        self._free = threading.BoundedSemaphore(count)

    def take(self) -> Callable[[], None]:
        """A place; the answer gives it back."""
        if not self._free.acquire(blocking=False):
            raise TooManyRequests(f"{self._count} {self._what} are being served already", hint="try again in a moment")
        return self._free.release

    @contextmanager
    def taken(self) -> Iterator[None]:
        release = self.take()
        try:
            yield
        finally:
            release()


class _Served(Iterator[pa.RecordBatch]):
    """The batches of a get, for as long as somebody wants them. An object and no generator: one that nobody has begun
    to read is let go of without a word, and its place must be given back then as well."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        context: flight.ServerCallContext,
        closing: threading.Event,
        release: Callable[[], None],
    ) -> None:
        self._batches, self._context, self._closing = batches, context, closing
        self._meter = meter_of(context)
        self._release: Callable[[], None] | None = release

    def __next__(self) -> pa.RecordBatch:
        try:
            if self._closing.is_set():
                raise PondClosed("the pond was closed while this was read", hint="open it and query again")
            if self._context.is_cancelled():
                raise StopIteration
            batch = next(self._batches)
            self._meter.bytes_out += batch.nbytes
            return batch
        except StopIteration:
            self._end()
            raise
        except Exception as error:
            self._end()
            raise as_flight_error(error) from error

    def _end(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            close: Any = getattr(self._batches, "close", None)
            if close is not None:
                close()
            release()

    def __del__(self) -> None:
        self._end()


class _Known(flight.ServerMiddleware):
    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class _CallerCheck(flight.ServerMiddlewareFactory):
    """Finds out who calls, before any handler is."""

    def __init__(self, desk: Desk, counters: DoorCounters) -> None:
        self._desk, self._counters = desk, counters

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Known:
        shown = next((values for name, values in headers.items() if name.lower() == "authorization"), [""])[0]
        with told_to_caller():
            try:
                return _Known(self._desk.authenticate(shown[len(_PREFIX) :] if shown.startswith(_PREFIX) else None))
            except MillpondError as error:
                turned_away(self._counters, info, error)
                raise


def _caller(context: flight.ServerCallContext) -> Caller:
    known = context.get_middleware(_CALLER)
    assert isinstance(known, _Known)
    return known.caller
