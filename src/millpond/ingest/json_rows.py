"""JSON text to checked rows: one typed decoding, which is the check. What fails is decoded once more to say why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.ingest.json_form import Finish, JsonForm
from millpond.model import misfit
from millpond.model.misfit import Place, row_place
from millpond.model.row_types import read_marker
from millpond.model.rows import Row


class JsonRows:
    """Reads JSON rows of one schema. Thread-safe."""

    def __init__(self, schema: pa.Schema) -> None:
        self._fields: list[pa.Field] = list(schema)
        self._quick = _decoder(self._fields, JsonForm(numbers_only=True))
        self._full = _decoder(self._fields, JsonForm())

    def lines(self, data: bytes, place: Place = row_place) -> list[Row]:
        """The rows of newline-delimited JSON; empty lines are skipped. `place` is asked with the line, from 0."""
        decoder, finish = self._quick
        try:
            return [finish(row) for row in decoder.decode_lines(data)]
        except Exception:
            # Perhaps an infinite number, which the quick one does not know; perhaps wrong.
            return [
                self._one(line, place(number))
                for number, line in enumerate(data.split(b"\n"))
                if not line.isspace() and line
            ]

    def array(self, data: bytes, place: Place = row_place) -> list[Row]:
        """The rows of a JSON array of objects, or of a single object."""
        if data.lstrip()[:1] != b"[":
            return [self._one(data, place(0))]
        try:
            values = msgspec.json.decode(data, type=list[msgspec.Raw])
        except Exception as error:
            raise _not_json("the text", error) from None
        return [self._one(bytes(value), place(number)) for number, value in enumerate(values)]

    def one(self, data: bytes) -> Row:
        """The row of a single JSON object."""
        decoder, finish = self._quick
        try:
            return finish(decoder.decode(data))
        except Exception:
            return self._one(data, row_place(0))

    def _one(self, data: bytes, place: str) -> Row:
        decoder, finish = self._full
        try:
            return finish(decoder.decode(data))
        except Exception as error:
            try:
                value = msgspec.json.decode(data)
            except Exception as reason:
                raise _not_json(place, reason) from None
            raise misfit.in_row(value, place, JsonForm().names(self._fields), error) from None


@lru_cache(maxsize=1024)
def json_rows_of(schema: pa.Schema) -> JsonRows:
    """The reader for a schema, made once: it defines types."""
    return JsonRows(schema)


def _decoder(fields: Sequence[pa.Field], form: JsonForm) -> tuple[msgspec.json.Decoder[Any], Finish]:
    kind, finish = form.row(list(fields))
    hook: Callable[[type, Any], Any] = read_marker
    return msgspec.json.Decoder(kind, dec_hook=hook), finish


def _not_json(place: str, error: Exception) -> InvalidRecord:
    return InvalidRecord(f"{place} is not JSON: {error}", hint="one object a line, from column to value, in UTF-8")
