"""The Arrow Flight service and its client: how batches enter and leave a process. Serves a protocol (`wire.desk`)."""

from millpond.flight.client import fetch_live
from millpond.flight.door import FlightDoor
from millpond.flight.limits import Limits
from millpond.flight.link import FlightLink
from millpond.flight.put import Put

__all__ = ["FlightDoor", "FlightLink", "Limits", "Put", "fetch_live"]
