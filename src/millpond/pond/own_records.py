"""What a pond writes down about itself: records of its own streams, which are never archived."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.ingest import Ingest
from millpond.log.engine import LogEngine, StreamAppend
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import ranges_between

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OwnRecords:
    """Thread-safe. A record is a stream of the pond's own with a row, which is stamped with the time here."""

    def __init__(self, log: LogEngine, clock: Clock) -> None:
        self._log, self._clock = log, clock

    def read(self, definition: StreamDefinition) -> Iterator[pa.RecordBatch]:
        """All records of one of the streams, in order."""
        starts, heads = self._log.starts(definition.id), self._log.heads(definition.id)
        for streamlet, offsets in ranges_between(starts, heads).items():
            yield from self._log.read(definition.id, streamlet, offsets)

    def append(self, *records: tuple[StreamDefinition, dict[str, Any]]) -> None:
        """Put records down, durably: all of them, or none."""
        now = self._clock.now_micros()
        stamped = [(definition, {"time": _EPOCH + timedelta(microseconds=now), **row}) for definition, row in records]
        appends = [StreamAppend(each.id, Ingest(each).prepare([row], now), now) for each, row in stamped]
        self._log.append_together(appends, durability="disk")
