"""What a producer is made with and what it tells: how it batches, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.errors import InvalidValue, MillpondError
from millpond.log.producers import WINDOW
from millpond.model.units import Duration, Size, format_bytes, parse_bytes, parse_seconds

# What went wrong, and how many records it took with it.
OnError = Callable[[MillpondError, int], None]


@dataclass(frozen=True)
class Batching:
    """How a producer works, as `Stream.producer` takes it."""

    batch_bytes: int
    linger_seconds: float
    max_in_flight: int
    buffer_bytes: int
    wait_seconds: float
    give_up_seconds: float

    @classmethod
    def of(
        cls, batch_bytes: Size, linger: Duration, max_in_flight: int, buffer: Size, wait: Duration, give_up: Duration
    ) -> Batching:
        """Checked."""
        if not 1 <= max_in_flight <= WINDOW:
            raise InvalidValue(f"max_in_flight={max_in_flight}", hint=f"1 to {WINDOW}: so many are remembered")
        found = cls(
            parse_bytes(batch_bytes),
            parse_seconds(linger),
            max_in_flight,
            parse_bytes(buffer),
            parse_seconds(wait),
            parse_seconds(give_up),
        )
        if not 1 <= found.batch_bytes <= found.buffer_bytes:
            raise InvalidValue(
                f"batches of {format_bytes(found.batch_bytes)} in a buffer of {format_bytes(found.buffer_bytes)}",
                hint="a batch has a size, and the buffer room for one",
            )
        return found


@dataclass
class ProducerFigures:
    """What a producer has done so far. Records and bytes `pending` are appended, but neither acknowledged nor failed;
    `retries` counts how often packets were sent again, `duplicates` those that had arrived before."""

    records: int = 0
    records_acknowledged: int = 0
    records_failed: int = 0
    records_pending: int = 0
    bytes_pending: int = 0
    batches_acknowledged: int = 0
    batches_in_flight: int = 0
    retries: int = 0
    duplicates: int = 0
