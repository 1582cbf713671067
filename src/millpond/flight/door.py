"""The Flight door: live records by ticket, to whoever shows the token.

Only `DoGet` is there; every other verb is refused by Flight itself. The token is looked at before anything else, on
every call and in constant time, by middleware, so that no handler can forget it. Errors leave as Flight errors of the
kind nearest to them, with our code, message and hint in `extra_info` (see `wire.failures`).

Bounds: tickets by `wire.ticket`, streams served at once by `STREAMS_MAX`. A stream whose reader has gone, or whose door
is being closed, ends at its next batch.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from millpond.errors import Backpressure, InvalidInput, MillpondError, PondClosed
from millpond.wire.failures import encode_failure
from millpond.wire.served import LiveSource
from millpond.wire.ticket import decode_ticket

# Each stream holds a thread of the server and a batch or two. Far more than the tasks of a busy Spark.
STREAMS_MAX = 512
# 256 bits: not to be guessed.
_TOKEN_BYTES = 32
_PREFIX = "Bearer "


class FlightDoor:
    """Open from its making until `close`. Thread-safe."""

    def __init__(self, source: LiveSource, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        self._host = host
        self._token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self._server = _Server(source, f"grpc://{host}:{port}", self._token)

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
    def __init__(self, source: LiveSource, location: str, token: str) -> None:
        self._source = source
        self._closing = threading.Event()
        self._places = threading.BoundedSemaphore(STREAMS_MAX)
        super().__init__(location, middleware={"token": _TokenCheck(token)})

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        if not self._places.acquire(blocking=False):
            busy = Backpressure(f"{STREAMS_MAX} streams are being served already", hint="try again in a moment")
            raise _as_flight_error(busy)
        try:
            schema, batches = self._source.live(decode_ticket(ticket.ticket))
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


class _TokenCheck(flight.ServerMiddlewareFactory):
    def __init__(self, token: str) -> None:
        self._expected = (_PREFIX + token).encode()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> None:
        shown = next((values for name, values in headers.items() if name.lower() == "authorization"), [""])
        if not hmac.compare_digest(shown[0].encode(), self._expected):
            raise flight.FlightUnauthenticatedError("the token is missing or wrong")


def _as_flight_error(error: Exception) -> flight.FlightError:
    kind = flight.FlightServerError
    if isinstance(error, Backpressure | PondClosed):
        kind = flight.FlightUnavailableError
    elif not isinstance(error, MillpondError):
        kind = flight.FlightInternalError
    message = error.message if isinstance(error, InvalidInput) else "see extra_info"
    return kind(message, extra_info=encode_failure(error))
