"""From whatever a producer hands over to parts for the log: decode, check against the schema, route to streamlets."""

from millpond.ingest.prepare import Ingest, NotPlain

__all__ = ["Ingest", "NotPlain"]
