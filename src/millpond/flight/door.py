"""The Flight door: live records by ticket, to whoever shows the token.

Only `DoGet` is there; every other verb is refused by Flight itself. The token is looked at before anything else, on
every call and in constant time, by middleware, so that no handler can forget it. Errors leave as Flight errors of the
kind nearest to them, with our code, message and hint in `extra_info` (see `wire.failures`).

Bounds: tickets by `wire.ticket`, streams served at once by `STREAMS_MAX`. A stream whose reader has gone, or whose door
is being closed, ends at its next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from millpond.errors import Backpressure, InvalidInput, MillpondError, PondClosed, Unauthenticated
from millpond.wire.access import Caller
from millpond.wire.desk import Desk
from millpond.wire.failures import encode_failure
from millpond.wire.ticket import decode_ticket

# Each stream holds a thread of the server and a batch or two. Far more than the tasks of a busy Spark.
STREAMS_MAX = 512
_PREFIX = "Bearer "
_CALLER = "caller"


class FlightDoor:
    """Open from its making until `close`. Thread-safe. `token`: for those who hand it on to whoever is to call."""

    def __init__(self, desk: Desk, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        self._host, self._token = host, token
        self._server = _Server(desk, f"grpc://{host}:{port}")

    @property
    def location(self) -> str:
        return f"grpc://{self._host}:{self._server.port}"

    @property
    def token(self) -> str:
        return self._token

    def close(self) -> None:
        """Refuse new calls, end the streams that are being served, and wait for them. Idempotent."""
        self._server.close()

    def __repr__(self) -> str:
        return f"FlightDoor({self.location})"


class _Server(flight.FlightServerBase):
    def __init__(self, desk: Desk, location: str) -> None:
        self._desk = desk
        self._closing = threading.Event()
        self._places = threading.BoundedSemaphore(STREAMS_MAX)
        super().__init__(location, middleware={_CALLER: _CallerCheck(desk)})

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        if not self._places.acquire(blocking=False):
            busy = Backpressure(f"{STREAMS_MAX} streams are being served already", hint="try again in a moment")
            raise _as_flight_error(busy)
        try:
            schema, batches = self._desk.live(_caller(context), decode_ticket(ticket.ticket))
        except Exception as error:
            self._places.release()
            raise _as_flight_error(error) from error
        return flight.GeneratorStream(schema, self._guarded(context, batches))

    def _guarded(self, context: flight.ServerCallContext, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        try:
            for batch in batches:
                if self._closing.is_set():
                    raise PondClosed("the pond was closed while this was read", hint="open it and query again")
                if context.is_cancelled():
                    return
                yield batch
        except Exception as error:
            raise _as_flight_error(error) from error
        finally:
            self._places.release()

    def close(self) -> None:
        if not self._closing.is_set():
            self._closing.set()
            self.shutdown()


class _Known(flight.ServerMiddleware):
    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class _CallerCheck(flight.ServerMiddlewareFactory):
    """Finds out who calls, before any handler is."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Known:
        shown = next((values for name, values in headers.items() if name.lower() == "authorization"), [""])[0]
        try:
            return _Known(self._desk.authenticate(shown[len(_PREFIX) :] if shown.startswith(_PREFIX) else None))
        except Unauthenticated as error:
            raise flight.FlightUnauthenticatedError(error.message) from None


def _caller(context: flight.ServerCallContext) -> Caller:
    known = context.get_middleware(_CALLER)
    assert isinstance(known, _Known)
    return known.caller


def _as_flight_error(error: Exception) -> flight.FlightError:
    kind = flight.FlightServerError
    if isinstance(error, Backpressure | PondClosed):
        kind = flight.FlightUnavailableError
    elif not isinstance(error, MillpondError):
        kind = flight.FlightInternalError
    message = error.message if isinstance(error, InvalidInput) else "see extra_info"
    return kind(message, extra_info=encode_failure(error))
