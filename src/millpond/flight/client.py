"""The other end of the Flight door, for code that has Millpond: errors come back as what they were."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from millpond.errors import MillpondError, Unavailable
from millpond.flight.fetch import fetch
from millpond.wire.failures import decode_failure
from millpond.wire.ticket import LiveTicket, encode_ticket


def fetch_live(location: str, token: str, ticket: LiveTicket) -> Iterator[pa.RecordBatch]:
    """The ticket's batches, as they arrive."""
    try:
        yield from fetch(location, token, encode_ticket(ticket))
    except (flight.FlightError, pa.ArrowException) as error:
        raise _as_ours(error) from error


def _as_ours(error: Exception) -> MillpondError:
    if isinstance(error, flight.FlightUnauthenticatedError):
        return Unavailable("the door refused the token", hint="take the token from the pond that opened the door")
    told = decode_failure(getattr(error, "extra_info", None) or b"")
    return told or Unavailable(f"the door does not answer: {error}", hint="is the pond still open?")
