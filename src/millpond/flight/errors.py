"""Our errors as Flight's: the kind nearest to each, with code, message and hint as JSON in `extra_info`.

Flight sends `extra_info` in a trailer, and gRPC drops the answer to a call whose trailers are over 8 KB: texts are cut
to well under that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyarrow import flight

from millpond.errors import (
    Backpressure,
    Forbidden,
    InvalidInput,
    MillpondError,
    Unauthenticated,
    Unavailable,
)
from millpond.wire.failures import decode_failure, encode_failure

# The message travels twice (Flight's own, and ours) and a character may take four bytes.
_TEXT_MAX = 500

# The first that fits.
_KINDS: tuple[tuple[type[MillpondError], type[flight.FlightError]], ...] = (
    (Unauthenticated, flight.FlightUnauthenticatedError),
    (Forbidden, flight.FlightUnauthorizedError),
    (Backpressure, flight.FlightUnavailableError),
    (Unavailable, flight.FlightUnavailableError),
    (MillpondError, flight.FlightServerError),
)


def failure_of(error: BaseException) -> bytes:
    """What a caller is told of an error, short enough for a trailer."""
    return encode_failure(_short(error) if isinstance(error, MillpondError) else error)


def _short(error: MillpondError) -> MillpondError:
    return type(error)(error.message[:_TEXT_MAX], hint=error.hint[:_TEXT_MAX])


def as_flight_error(error: BaseException, acknowledged: int | None = None) -> flight.FlightError:
    """What a handler raises for an error. `acknowledged`: how many batches of a put were, before it."""
    told = failure_of(error)
    if acknowledged is not None:
        told = msgspec.json.encode({**msgspec.json.decode(told), "acknowledged": acknowledged})
    kind = next((kind for ours, kind in _KINDS if isinstance(error, ours)), flight.FlightInternalError)
    message = error.message[:_TEXT_MAX] if isinstance(error, InvalidInput) else "see extra_info"
    return kind(message, extra_info=told)


@contextmanager
def told_to_caller() -> Iterator[None]:
    """Whatever is raised inside leaves as a Flight error."""
    try:
        yield
    except flight.FlightError:
        raise
    except Exception as error:
        raise as_flight_error(error) from error


def as_ours(error: BaseException, location: str) -> MillpondError:
    """What the other end meant by a Flight error."""
    told = decode_failure(getattr(error, "extra_info", None) or b"")
    if told is not None:
        return told
    if isinstance(error, flight.FlightUnauthenticatedError):
        return Unauthenticated(f"{location} refused the token", hint="give the token that the server's operator made")
    if isinstance(error, flight.FlightTimedOutError):
        return Unavailable(f"{location} did not answer in time", hint="try again; is the server overloaded?")
    return Unavailable(f"{location} does not answer: {_first_line(error)}", hint="is the server, or the pond, open?")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


@contextmanager
def raised_as_ours(location: str) -> Iterator[None]:
    """Flight's and Arrow's errors inside become what the other end meant."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise as_ours(error, location) from error
