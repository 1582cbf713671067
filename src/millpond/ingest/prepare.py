"""The way of an append up to the log: decoded, checked, routed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from millpond.ingest import raw
from millpond.ingest.bounds import APPEND_BYTES_MAX, check_bytes
from millpond.ingest.decode import decode
from millpond.ingest.route import route_batch, route_each, route_rows
from millpond.log.engine import Part
from millpond.model.definition import StreamDefinition
from millpond.model.rows import Row, codec_of


class Ingest:
    """What stands before a stream's log. One per definition: an altered stream gets a new one. Thread-safe."""

    def __init__(self, definition: StreamDefinition, bytes_max: int = APPEND_BYTES_MAX) -> None:
        self.definition = definition
        self._codec = codec_of(raw.CHECKED if definition.raw else definition.schema)
        self._bytes_max = bytes_max
        # `next` on a count is one step for the interpreter: no lock.
        self._turn = itertools.count()

    def prepare(self, rows: Any, now_micros: int) -> list[Part]:
        """The parts of an append, ready for the log; none for no rows. `InvalidRecord` or `TooLarge` keep nothing."""
        if self.definition.raw:
            rows = raw.fill_rows(rows, now_micros)
        found = decode(self._codec, rows, self._bytes_max)
        if isinstance(found, list):
            return self._encoded(found)
        if self.definition.raw:
            found = raw.fill_batch(found, now_micros)
        return route_batch(self.definition, found, self._turn)

    def encode_rows(self, rows: Sequence[Any], now_micros: int) -> Sequence[Part | Exception]:
        """The parts of single records, one of each, or what is wrong with it: the quick way, for many at a time."""
        try:
            filled = raw.fill_rows(rows, now_micros) if self.definition.raw else rows
            parts = route_each(self.definition, self._codec, self._codec.validate(filled), self._turn)
            check_bytes(max(len(part.encoded or b"") for part in parts), self._bytes_max)
            return parts
        except Exception:
            # Some record does not fit; each by itself tells which, and why.
            return [self._encode_row(row, now_micros) for row in rows]

    def _encode_row(self, row: Any, now_micros: int) -> Part | Exception:
        try:
            (part,) = self.prepare(row, now_micros)
        except Exception as error:
            return error
        return part

    def _encoded(self, rows: list[Row]) -> list[Part]:
        parts = route_rows(self.definition, self._codec, rows, self._turn)
        if len(parts) == 1:
            check_bytes(len(parts[0].encoded or b""), self._bytes_max)
        else:
            check_bytes(sum(len(part.encoded or b"") for part in parts), self._bytes_max)
        return parts
