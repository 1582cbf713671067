"""The term by which records are told apart by when they were taken in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from millpond.model.predicate import Compare, Predicate
from millpond.model.schema import INGEST_TIME

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ingested_since(moment: datetime | int) -> Predicate:
    """Records ingested at `moment` (microseconds since the epoch, if a number) or later."""
    since = _EPOCH + timedelta(microseconds=moment) if isinstance(moment, int) else moment
    return Compare(">=", INGEST_TIME, since)
