"""The Arrow Flight service and its client: how batches leave a process. Serves a protocol (`wire.served`), not Pond."""

from millpond.flight.client import fetch_live
from millpond.flight.door import FlightDoor

__all__ = ["FlightDoor", "fetch_live"]
