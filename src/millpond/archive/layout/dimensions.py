"""Dimensions: columns of any ordered type as plain numbers that a layout can cut.

Every value becomes a double, in such a way that order is kept: if a < b, its number is not greater. Several values may
become one number (integers beyond 2**53, texts that begin alike): a layout cannot tell them apart, and nothing else
happens. Dates and timestamps are microseconds since 1970, as in past queries. Of text and bytes it is the first bytes
that follow what the whole sample begins with. Null and NaN are the greatest number, with plus infinity: rows without a
place gather in few objects instead of hiding the ranges of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.float64]

# A double has 53 bits: six bytes are told apart exactly.
_TEXT_BYTES = 6
_MICROS_PER_DAY = 86_400_000_000
# Codes of an order along a curve are 64-bit numbers that stay positive.
_CODE_BITS = 62
# So many places along a dimension tell the rows of one object apart well enough, and a table of them is small.
_PLACES_BITS_MAX = 16


@dataclass(frozen=True, slots=True)
class Dimension:
    """A column, and how it becomes numbers. `prefix`: what all texts begin with, in hexadecimal."""

    name: str
    form: str
    prefix: str = ""

    def fitted(self, column: pa.ChunkedArray) -> Dimension:
        """The same, knowing what texts of this column begin with."""
        if self.form != "text":
            return self
        ends = pc.min_max(column.cast(pa.large_binary()))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(low or b"", high or b"", strict=False))
        return replace(self, prefix=bytes(byte for byte, _ in same).hex())

    def numbers(self, column: pa.ChunkedArray) -> Numbers:
        """A number for each row; never NaN."""
        match self.form:
            case "text":
                found = _text_numbers(column, bytes.fromhex(self.prefix))
            case "date":
                found = _doubles(column.cast(pa.int32())) * _MICROS_PER_DAY
            case "time":
                found = _doubles(column.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()))
            case _:
                found = _doubles(column)
        return np.where(np.isnan(found), np.inf, found)


def dimension_of(field: pa.Field) -> Dimension | None:
    """How a column becomes numbers; None if it has no order."""
    kind = field.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Dimension(field.name, "number")
    if pa.types.is_boolean(kind):
        return Dimension(field.name, "boolean")
    if pa.types.is_date32(kind):
        return Dimension(field.name, "date")
    if pa.types.is_timestamp(kind):
        return Dimension(field.name, "time")
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return Dimension(field.name, "text") if any(is_one(kind) for is_one in text) else None


def numbers_of(rows: pa.Table, dimensions: Sequence[Dimension]) -> Numbers:
    """A row of numbers for each row of the table."""
    found = np.empty((rows.num_rows, len(dimensions)))
    for at, dimension in enumerate(dimensions):
        found[:, at] = dimension.numbers(rows.column(dimension.name))
    return found


def curve_order(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Rows along a curve that visits near places one after the other (the bits of all dimensions in turn); rows of one
    place stay in the order they have."""
    rows, dimensions = numbers.shape
    used = min(dimensions, _CODE_BITS)
    bits = min(_PLACES_BITS_MAX, _CODE_BITS // used)
    codes, spread = np.zeros(rows, np.int64), _spread(bits, used)
    for at in range(used):
        codes |= spread[_places(numbers[:, at], bits)] << (used - 1 - at)
    return np.argsort(codes, kind="stable")


def _places(numbers: Numbers, bits: int) -> npt.NDArray[np.int64]:
    """Each number's place between the least and the greatest finite one, of 2**bits; infinities at the ends."""
    finite = np.isfinite(numbers)
    top = (1 << bits) - 1
    if not finite.any():
        return np.where(numbers > 0, top, 0).astype(np.int64)
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    # Halves of the numbers, whose difference is finite in any case.
    scaled = (np.clip(numbers, low, high) / 2 - low / 2) / max(high / 2 - low / 2, np.finfo(float).tiny) * top
    places: npt.NDArray[np.int64] = np.where(np.isposinf(numbers), top, scaled).astype(np.int64)
    return places


@lru_cache(maxsize=_CODE_BITS)
def _spread(bits: int, apart: int) -> npt.NDArray[np.int64]:
    """Every number of so many bits, with room for the bits of the other dimensions between its own."""
    places = np.arange(1 << bits)
    found = np.zeros_like(places)
    for bit in range(bits):
        found |= ((places >> bit) & 1) << (bit * apart)
    return found


def _doubles(column: pa.ChunkedArray) -> Numbers:
    found: Numbers = column.cast(pa.float64(), safe=False).to_numpy()
    return found.astype(np.float64, copy=False)


def _text_numbers(column: pa.ChunkedArray, prefix: bytes) -> Numbers:
    parts = [_chunk_numbers(chunk, prefix) for chunk in column.cast(pa.large_binary()).chunks]
    return np.concatenate([np.empty(0), *parts])


def _chunk_numbers(chunk: pa.Array, prefix: bytes) -> Numbers:
    """Texts below the prefix become -1, those above it the number after the last; nulls NaN."""
    if len(chunk) == 0:
        return np.empty(0)
    offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = np.frombuffer(chunk.buffers()[2] or b"", np.uint8)
    found = np.zeros(len(chunk))
    for byte in range(_TEXT_BYTES):
        at = offsets[:-1] + len(prefix) + byte
        there = at < offsets[1:]
        value = np.zeros(len(chunk))
        value[there] = data[at[there]] + 1.0  # an end is less than any byte
        found = found * 257 + value
    if prefix:
        found = np.where(np.asarray(pc.fill_null(pc.less(chunk, prefix), False)), -1, found)
        beyond = pc.and_(pc.greater(chunk, prefix), pc.invert(pc.starts_with(chunk, pattern=prefix)))
        found = np.where(np.asarray(pc.fill_null(beyond, False)), 257.0**_TEXT_BYTES, found)
    return np.where(np.asarray(chunk.is_null()), np.nan, found)
