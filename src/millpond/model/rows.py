"""Rows as Python hands them over: checked against a schema, encoded compactly, and turned into Arrow many at a time.

A single record is not worth an Arrow batch (4 KB and 100 µs for one row). It is checked, encoded as a few bytes, and
journalled and held like that; readers and sealing decode about a thousand of them at once.

Encoded rows are one MessagePack array per part, holding one array per row, holding the columns in schema order in
their plain form (see `row_types`): nil, bool, int, float64, str, bin; timestamps are microseconds since 1970, dates
days, decimals text, lists and structs arrays, maps arrays of pairs. Journals keep these bytes: the form never changes.

    schema (vid string, temp float64, date timestamp)   {"vid": "m1", "date": 2024-01-01T00:00:00Z}
    91                            one row
       93                         of three columns
          a2 6d31                 "m1"
          c0                      null
          cf 00060dd710212000     1704067200000000 µs

Invariant: what `validate` and `encode` accept, `decode` turns into Arrow without an error, and into the same values as
`to_batch`. Thread-safe: a codec never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from millpond.errors import Damaged, InvalidRecord, InvalidValue, TooLarge
from millpond.model import misfit
from millpond.model.foreign import own_value
from millpond.model.misfit import Place, row_place
from millpond.model.row_types import PYTHON, convert, encoded_type, struct_type, value_type

# A checked row: one plain value per column, in schema order.
Row = tuple[Any, ...]

_astuple = msgspec.structs.astuple
_encoder = msgspec.msgpack.Encoder()


class RowCodec:
    """Rows of one schema. Building one takes about a millisecond: keep it (`codec_of`)."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._fields: list[pa.Field] = list(schema)
        self._kind = struct_type(self._fields, PYTHON)
        self._kinds = list[self._kind]  # type: ignore[name-defined]
        columns = tuple(encoded_type(field.type, field.nullable) for field in self._fields)
        self._decoder = msgspec.msgpack.Decoder(list[tuple[columns]])  # type: ignore[valid-type]
        self._index = {field.name: index for index, field in enumerate(self._fields)}

    def validate_one(self, row: Any) -> Row:
        """As `validate`, for a single row: the quick way of a single record."""
        try:
            return _astuple(convert(row, self._kind))
        except Exception:
            # Not necessarily wrong: perhaps a numpy number. The slow way says.
            return self._validate_slowly(row, row_place(0))

    def validate(self, rows: Sequence[Any], place: Place = row_place) -> list[Row]:
        """The rows, checked, in their plain form. `InvalidRecord` naming the first row and column that do not fit."""
        try:
            return [_astuple(row) for row in convert(rows, self._kinds)]
        except Exception:
            return [self._validate_slowly(row, place(index)) for index, row in enumerate(rows)]

    def _validate_slowly(self, row: Any, place: str) -> Row:
        try:
            return _astuple(convert(row, self._kind))
        except Exception:
            try:
                own = own_value(row)
                return _astuple(convert(own, self._kind))
            except Exception as error:
                types = [value_type(field.type, field.nullable, PYTHON) for field in self._fields]
                names = {field.name: (field, kind) for field, kind in zip(self._fields, types, strict=True)}
                raise misfit.in_row(row, place, names, error) from None

    def encode(self, rows: Sequence[Row], place: Place = row_place) -> bytes:
        """Checked rows as bytes."""
        try:
            try:
                return _encoder.encode(rows)
            except TypeError:
                # A kind of str that is not quite one, such as numpy's.
                return _encoder.encode(own_value(rows))
        except UnicodeEncodeError:
            raise self._not_unicode(rows, place) from None

    def encode_one(self, row: Row) -> bytes:
        """A checked row as bytes, to be joined with others."""
        try:
            return _encoder.encode(row)
        except (TypeError, UnicodeEncodeError):
            return self.encode([row])[1:]

    def _not_unicode(self, rows: Sequence[Row], place: Place) -> InvalidRecord:
        for index, row in enumerate(rows):
            for field, value in zip(self._fields, row, strict=True):
                try:
                    _encoder.encode(own_value(value))
                except UnicodeEncodeError as error:
                    reason = f"a lone surrogate at {error.start} is not Unicode text"
                    return misfit.bad_value(place(index), field, value, reason)
        raise AssertionError("every value can be encoded by itself, but not all together")

    def decode(self, blobs: Sequence[bytes]) -> pa.RecordBatch:
        """What `encode` wrote, any number of times, as one batch."""
        rows: list[Row] = []
        try:
            for blob in blobs:
                rows += self._decoder.decode(blob)
        except msgspec.DecodeError as error:
            raise Damaged(f"encoded rows cannot be decoded: {error}", hint="run `millpond verify`") from error
        return self.to_batch(rows)

    def to_batch(self, rows: Sequence[Row], place: Place = row_place) -> pa.RecordBatch:
        """Checked rows as one batch."""
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(self._fields)
        try:
            arrays = [pa.array(values, field.type) for values, field in zip(columns, self._fields, strict=True)]
        except UnicodeEncodeError:
            raise self._not_unicode(rows, place) from None
        except pa.ArrowCapacityError:
            arrays = [pa.chunked_array([], field.type) for field in self._fields]
        if any(isinstance(array, pa.ChunkedArray) for array in arrays):
            raise TooLarge(f"{len(rows)} rows do not fit one Arrow batch (2 GB a column)", hint="append fewer at once")
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def column(self, name: str) -> int:
        """Where in a checked row a column is."""
        return self._index[name]

    def plain(self, column: str, value: Any) -> Any:
        """A value to look for in a column, in the form that checked rows and `hash_value` have it in."""
        field = self._fields[self._index[column]]
        for attempt in (value, own_value(value)):
            try:
                return convert(attempt, value_type(field.type, True, PYTHON))
            except Exception as error:
                reason = str(error)
        raise InvalidValue(
            f"{misfit.shown(value)} cannot be in column {column!r}: {reason}", hint=f"it is {field.type}"
        )


def join_rows(rows: Sequence[bytes]) -> bytes:
    """What `encode` would have given for rows that were encoded one by one."""
    count = len(rows)
    if count < 16:
        head = bytes((0x90 | count,))
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(rows)


@lru_cache(maxsize=4096)
def codec_of(schema: pa.Schema) -> RowCodec:
    """The codec of a schema, built once."""
    return RowCodec(schema)
