"""Fetching a ticket's batches, for code that has Millpond: errors come back as what they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from millpond.flight.errors import raised_as_ours
from millpond.flight.fetch import fetch
from millpond.wire.ticket import LiveTicket, encode_ticket


def fetch_live(
    location: str, token: str, ticket: LiveTicket, tls: Mapping[str, bytes] | None = None
) -> Iterator[pa.RecordBatch]:
    """The ticket's batches, as they arrive."""
    with raised_as_ours(location):
        yield from fetch(location, token, encode_ticket(ticket), tls)
