"""The way of an append up to the log: decoded, checked, sifted, routed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from millpond.errors import InvalidInput, InvalidRecord
from millpond.ingest import raw
from millpond.ingest.bounds import APPEND_BYTES_MAX, check_bytes
from millpond.ingest.decode import decode
from millpond.ingest.json_rows import json_rows_of
from millpond.ingest.route import route_batch, route_each, route_rows
from millpond.ingest.sieve import Sieve
from millpond.log.engine import EncodedRows, Part
from millpond.model.definition import StreamDefinition
from millpond.model.rows import Row, codec_of, join_rows

# Values whose handling runs no code but ours.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, datetime, date, Decimal})
_PLAIN_ZONES = frozenset({type(None), timezone, ZoneInfo})


class NotPlain(Exception):
    """A single record with values that may run anybody's code: for `prepare`, in the thread of its caller."""


class Ingest:
    """What stands before a stream's log. One per definition: an altered stream gets a new one. Thread-safe."""

    def __init__(
        self,
        definition: StreamDefinition,
        bytes_max: int = APPEND_BYTES_MAX,
        count_filtered: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.definition = definition
        # Of what is sent, and of what is stored: the same, unless the stream has a sieve.
        self._codec = codec_of(raw.CHECKED if definition.raw else definition.sent_schema)
        self._stored = self._codec if definition.raw else codec_of(definition.schema)
        self._sieve = Sieve(definition, self._codec, count_filtered) if definition.sifts else None
        self._json = json_rows_of(self._codec.schema)
        self._bytes_max = bytes_max
        self._times = [field.name for field in definition.sent_schema if pa.types.is_timestamp(field.type)]
        # `next` on a count is one step for the interpreter: no lock.
        self._turn = itertools.count()

    @property
    def takes_plain_rows(self) -> bool:
        """Whether records of this stream can be plain: not where a column holds lists, structs or maps."""
        return not any(pa.types.is_nested(field.type) for field in self.definition.sent_schema)

    def prepare(self, rows: Any, now_micros: int) -> list[Part]:
        """The parts of an append, ready for the log; none for no rows. `InvalidRecord` or `TooLarge` keep nothing."""
        return self.sift(rows, now_micros)[0]

    def sift(self, rows: Any, now_micros: int) -> tuple[list[Part], int]:
        """As `prepare`, and how many records the stream's filter left out."""
        self._check_records()
        if self.definition.raw:
            rows = raw.fill_rows(rows, now_micros)
        found = decode(self._codec, rows, self._bytes_max)
        left_out = 0
        if isinstance(found, list):
            if self._sieve is not None:
                found, chosen = self._sieve.rows(found)
                left_out = chosen.count(False)
            return self._encoded(found) if found else [], left_out
        found, left_out = self._sifted_batch(found, now_micros)
        return route_batch(self.definition, found, self._turn), left_out

    def _sifted_batch(self, found: pa.RecordBatch, now_micros: int) -> tuple[pa.RecordBatch, int]:
        if self.definition.raw:
            found = raw.fill_batch(found, now_micros)
        return (found, 0) if self._sieve is None else self._sieve.batch(found)

    def checked(self, batch: pa.RecordBatch, now_micros: int) -> pa.RecordBatch:
        """A batch as `prepare` takes it in, sifted and whole: for writers whose rows have no streamlets."""
        self._check_records()
        found = decode(self._codec, batch, self._bytes_max)
        assert isinstance(found, pa.RecordBatch)
        return self._sifted_batch(found, now_micros)[0]

    def _check_records(self) -> None:
        if self.definition.file:  # its events say which bytes they hold, which is known where they are appended alone
            raise InvalidInput(f"{self.definition.name} is a file", hint="pond.open_file(name, 'a') appends to it")

    def to_batch(self, rows: Any) -> pa.RecordBatch:
        """Checked as by `prepare`, as one batch for another process to take in, which gives raw events their time."""
        found = self.compact(rows)
        return found if isinstance(found, pa.RecordBatch) else self.unpack(found)

    def compact(self, rows: Any) -> list[bytes] | pa.RecordBatch:
        """As `to_batch`, but a few rows stay encoded, each by itself; `unpack` makes a batch of any number of them."""
        found = decode(self._codec, raw.fill_rows(rows, None) if self.definition.raw else rows, self._bytes_max)
        if isinstance(found, pa.RecordBatch):
            return found
        try:
            encoded = [self._codec.encode_one(row) for row in found]
        except InvalidRecord:
            self._codec.encode(found)  # all together, so that the error counts rows as the caller does
            raise
        check_bytes(sum(map(len, encoded)), self._bytes_max)
        return encoded

    def unpack(self, encoded: Sequence[bytes]) -> pa.RecordBatch:
        """What `compact` encoded, as one batch."""
        return self._codec.decode([join_rows(encoded)])

    def encode_rows(self, rows: Sequence[Any], now_micros: int) -> EncodedRows:
        """Single records as dicts, checked and encoded together; of those that do not fit, what is wrong with each,
        which is `NotPlain` where nobody looked."""
        try:
            return self._encode_all([self._plain(row, now_micros) for row in rows])
        except Exception:  # some record does not fit: each by itself tells which, and why
            found = [self._row_or_error(row, now_micros) for row in rows]
        fitting = [row for row in found if not isinstance(row, Exception)]
        parts, places = self._sifted(fitting, self._route_each)
        place = iter(places)
        return EncodedRows(parts, [row if isinstance(row, Exception) else next(place) for row in found])

    def json_row(self, text: bytes) -> Row:
        """A single record given as a JSON object, checked; `InvalidRecord` says what is wrong with it."""
        self._check_records()
        return self._json.one(text)

    def checked_row(self, row: Any) -> Row:
        """A single record given as a dict, checked; a raw event may leave out what it will be given."""
        self._check_records()
        return self._codec.validate_one(row)

    def encode_checked(self, rows: Sequence[Row], now_micros: int) -> EncodedRows:
        """Checked rows, each an append of its own, encoded together."""
        if self.definition.raw:
            rows = [raw.fill_checked(row, now_micros) for row in rows]
        return self._sifted(rows, self._encode_checked)

    def _sifted(self, rows: Sequence[Row], encode: Callable[[Sequence[Row]], EncodedRows]) -> EncodedRows:
        """Encoded, without those that the stream's filter leaves out: they have no place."""
        if self._sieve is None:
            return encode(rows)
        kept, chosen = self._sieve.rows(rows)
        parts, places = encode(kept)
        place = iter(places)
        return EncodedRows(parts, [next(place) if wanted else None for wanted in chosen])

    def _route_each(self, rows: Sequence[Row]) -> EncodedRows:
        return route_each(self.definition, self._stored, rows, self._turn)

    def _encode_checked(self, rows: Sequence[Row]) -> EncodedRows:
        try:
            encoded = self._route_each(rows)
            if all(len(part.encoded or b"") <= self._bytes_max for part in encoded.parts):
                return encoded
            return self._encode_each(rows)
        except Exception:  # one has text that is not text, or is too large: each by itself tells which
            return self._encode_each(rows)

    def _encode_each(self, rows: Sequence[Row]) -> EncodedRows:
        parts: list[Part] = []
        places: list[tuple[int, int] | Exception | None] = []
        for row in rows:
            try:
                part, *_ = self._route_each([row]).parts
                check_bytes(len(part.encoded or b""), self._bytes_max)
            except Exception as error:
                places.append(error)
            else:
                places.append((len(parts), 0))
                parts.append(part)
        return EncodedRows(parts, places)

    def _plain(self, row: dict[str, Any], now_micros: int) -> Any:
        if not _PLAIN.issuperset(map(type, row.values())):
            raise NotPlain
        for name in self._times:
            value = row.get(name)
            if type(value) is datetime and type(value.tzinfo) not in _PLAIN_ZONES:
                raise NotPlain
        return raw.fill_rows(row, now_micros) if self.definition.raw else row

    def _encode_all(self, rows: list[Any]) -> EncodedRows:
        encoded = self._sifted(self._codec.validate(rows), self._route_each)
        for part in encoded.parts:
            check_bytes(len(part.encoded or b""), self._bytes_max)
        return encoded

    def _row_or_error(self, row: dict[str, Any], now_micros: int) -> Row | Exception:
        try:
            checked = self._codec.validate_one(self._plain(row, now_micros))
            check_bytes(len(self._codec.encode([checked])), self._bytes_max)
        except Exception as error:
            return error
        return checked

    def _encoded(self, rows: list[Row]) -> list[Part]:
        parts = route_rows(self.definition, self._stored, rows, self._turn)
        if len(parts) == 1:
            check_bytes(len(parts[0].encoded or b""), self._bytes_max)
        else:
            check_bytes(sum(len(part.encoded or b"") for part in parts), self._bytes_max)
        return parts
