"""A followed read for a caller whose rights may end while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from millpond.model.offsets import Position
from millpond.query import StreamReader

# As often as that it is asked whether the caller may still read.
LOOK_SECONDS = 1.0


class WatchedReader:
    """A `StreamReader` that is over, with the error that `check` raises, once its caller may read no more."""

    def __init__(self, reader: StreamReader, check: Callable[[], None]) -> None:
        self._reader, self._check = reader, check
        self._checked = time.monotonic()
        self.close, self.rest = reader.close, reader.rest

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def position(self) -> Position:
        return self._reader.position

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def poll(self) -> pa.RecordBatch | None:
        """As `StreamReader.poll`."""
        now = time.monotonic()
        if now - self._checked >= LOOK_SECONDS:
            self._checked = now
            self._check()
        return self._reader.poll()
