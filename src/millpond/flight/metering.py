"""Every call is counted when it has ended, by its verb and by how it ended, whatever its handler does.

As middleware, which Flight tells when a call has ended; but not when other middleware turned it away: that one says so
itself. A handler adds the bytes of the batches that it takes and gives.
"""

from __future__ import annotations

import time

from pyarrow import flight

from millpond.errors import MillpondError
from millpond.telemetry import DoorCounters
from millpond.wire.failures import decode_failure

METER = "meter"

# As Flight's clients call them.
_VERBS = {
    flight.FlightMethod.LIST_FLIGHTS: "ListFlights",
    flight.FlightMethod.GET_FLIGHT_INFO: "GetFlightInfo",
    flight.FlightMethod.GET_SCHEMA: "GetSchema",
    flight.FlightMethod.DO_GET: "DoGet",
    flight.FlightMethod.DO_PUT: "DoPut",
    flight.FlightMethod.DO_ACTION: "DoAction",
    flight.FlightMethod.LIST_ACTIONS: "ListActions",
    flight.FlightMethod.DO_EXCHANGE: "DoExchange",
    flight.FlightMethod.HANDSHAKE: "Handshake",
}


class CallMeter(flight.ServerMiddleware):
    """One call. Handlers add to its bytes, from one thread at a time."""

    def __init__(self, counters: DoorCounters, verb: str) -> None:
        self._counters, self._verb = counters, verb
        self._began = time.perf_counter()
        self.bytes_in = self.bytes_out = 0

    def call_completed(self, exception: BaseException | None) -> None:
        refused = None if exception is None else decode_failure(getattr(exception, "extra_info", None) or b"")
        if refused is not None:
            status = refused.code
            self._counters.rejected(status)
        elif isinstance(exception, flight.FlightCancelledError):
            status = "cancelled"  # the caller has gone
        else:
            status = "ok" if exception is None else "internal"
        seconds = time.perf_counter() - self._began
        self._counters.request("flight", self._verb, "", status, seconds, self.bytes_in, self.bytes_out)


class CallMeters(flight.ServerMiddlewareFactory):
    """Gives every call its meter."""

    def __init__(self, counters: DoorCounters) -> None:
        self._counters = counters

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> CallMeter:
        return CallMeter(self._counters, _VERBS.get(info.method, "other"))


def turned_away(counters: DoorCounters, info: flight.CallInfo, error: MillpondError) -> None:
    """A call that no handler gets to see."""
    counters.request("flight", _VERBS.get(info.method, "other"), "", error.code, 0.0)
    counters.rejected(error.code)


def meter_of(context: flight.ServerCallContext) -> CallMeter:
    """The meter of the call that a handler serves."""
    found = context.get_middleware(METER)
    assert isinstance(found, CallMeter)
    return found
