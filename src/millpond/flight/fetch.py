"""Fetching one ticket's batches, with nothing but pyarrow: this module travels to Spark's executors by value, so they
need not have Millpond installed. It imports nothing of ours for that reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyarrow import flight


def fetch(location: str, token: str, ticket: bytes, tls: Mapping[str, bytes] | None = None) -> Iterator[pa.RecordBatch]:
    """The batches, as they arrive. Raises Flight's or Arrow's errors; see `explain`. `tls`: certificates, as Flight's
    `connect` takes them; none are needed where the system trusts the door."""
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    with flight.connect(location, **(tls or {})) as client:
        reader = client.do_get(flight.Ticket(ticket), flight.FlightCallOptions(headers=headers))
        for chunk in reader:
            yield chunk.data


def ticket_reader(
    location: str, token: str, tickets: list[bytes], tls: Mapping[str, bytes] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `DataFrame.mapInArrow`: rows hold numbers of tickets, and become what those tickets fetch."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from fetch(location, token, tickets[number], tls)
                except (flight.FlightError, pa.ArrowException) as error:
                    raise RuntimeError(f"Millpond: {explain(error)}") from None

    return read


def explain(error: Exception) -> str:
    """What the node said, for people."""
    try:
        failure = json.loads(getattr(error, "extra_info", b""))
        return f"{failure['message']}\n  hint: {failure['hint']} [{failure['code']}]"
    except (ValueError, TypeError, KeyError):
        return f"the node's door does not answer: {error}"
