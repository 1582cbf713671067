"""Bloom filters: whether an object may hold a value, for columns with more values than a list could have.

A filter is made of blocks of 256 bits; a value sets eight bits of one block, one in each 32-bit word (as in Parquet's
split block Bloom filters, with this package's hashes, which know that -0.0 is 0.0 and NaN is NaN). It is sized for the
rate of false answers that was asked for, and not made if that would be larger than `bytes_max`.

Filters are blobs: they stay on disk and are read for the objects that everything else has left.

    "MB1" 0 · blocks (uint32, little-endian) · blocks × 8 words (uint32)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.archive.index.kind import BLOB, IndexKind, Mask, unfit
from millpond.archive.index.view import Entries
from millpond.errors import InvalidValue
from millpond.model.cut import comparable
from millpond.model.hashing import Hashes, hash_column, hash_value
from millpond.model.predicate import Compare, In, Predicate

BYTES_MAX = 1 << 20
_HEAD = struct.Struct("<4sI")
_MAGIC = b"MB1\0"
_WORDS = 8
_BLOCK_BYTES = 4 * _WORDS
# Parquet's: odd, and far apart.
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
# With more values an object is likely to have one of them: asking would only cost.
_VALUES_MAX = 1_000
# Filters that are in memory at once while objects are asked about.
_AT_ONCE = 512


class Bloom(IndexKind):
    """Of one column. `rate`: how often it may say "perhaps" of a value that is not there."""

    name = "bloom"
    stage = 2

    def __init__(self, column: str, rate: float = 0.01, bytes_max: int = BYTES_MAX) -> None:
        super().__init__(column, rate=rate, bytes_max=bytes_max)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1e-9 <= rate <= 0.5:
            raise InvalidValue(f"{self.spec.key}: a rate of {rate!r}", hint="between 0.000000001 and 0.5, e.g. 0.01")
        if isinstance(bytes_max, bool) or not isinstance(bytes_max, int) or not 64 <= bytes_max <= 1 << 28:
            raise InvalidValue(f"{self.spec.key}: bytes_max={bytes_max!r}", hint=f"64 to {1 << 28}")
        self._rate, self._bytes_max = float(rate), bytes_max

    @property
    def entry_key(self) -> str:
        return self.spec.key

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        found = schema.field(self.column).type
        if not comparable(found):
            raise unfit(self, self.column, found, "a plain value")
        return [pa.field("filter", BLOB)]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        hashes = np.unique(hash_column(_plain(rows.column(self.column)).unique()))
        blocks = blocks_for(len(hashes), self._rate)
        if _HEAD.size + blocks * _BLOCK_BYTES > self._bytes_max:
            return {}
        return {"filter": build(hashes, blocks)}

    def keep(self, term: Predicate, entries: Entries) -> Mask | None:
        match term:
            case Compare("=", str(), value):
                hashes = [hash_value(value)]
            case In(str(), values) if len(values) <= _VALUES_MAX:
                hashes = [hash_value(value) for value in values]
            case _:
                return None
        keep = np.ones(len(entries), dtype=np.bool_)
        for start in range(0, len(entries), _AT_ONCE):
            filters = entries.blobs("filter", start, min(start + _AT_ONCE, len(entries)))
            keep[start : start + len(filters)] = may_have(filters, hashes)
        return keep


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without nulls, in a type that has hashes."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.binary())
    return column.drop_null()


def blocks_for(values: int, rate: float) -> int:
    """How many blocks keep the rate for so many values."""
    bits = -_WORDS * values / math.log(1 - rate ** (1 / _WORDS))
    return max(1, math.ceil(bits / (8 * _BLOCK_BYTES)))


def _bits(hashes: Hashes, blocks: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Of each value the block, and in each of its words the bit that is set."""
    block = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    return block, (low[:, None] * _SALTS[None, :]) >> np.uint32(27)


def build(hashes: Hashes, blocks: int) -> bytes:
    block, bits = _bits(hashes, blocks)
    places = (block[:, None] * np.uint64(_WORDS) + np.arange(_WORDS, dtype=np.uint64)) * np.uint64(32) + bits
    flags = np.zeros(blocks * _WORDS * 32, dtype=np.bool_)
    flags[places.ravel()] = True
    return _HEAD.pack(_MAGIC, blocks) + np.packbits(flags, bitorder="little").tobytes()


def may_have(filters: list[bytes | None], hashes: list[int]) -> list[bool]:
    """Which of the filters may have any of the values; of bytes that are no filter nothing is known."""
    wanted = [(value >> 32, _block_bits(value)) for value in hashes]
    return [_has_any(data, wanted) for data in filters]


def _has_any(data: bytes | None, wanted: list[tuple[int, int]]) -> bool:
    blocks = _blocks_of(data)
    if data is None or not blocks:
        return True
    for upper, bits in wanted:
        at = _HEAD.size + _BLOCK_BYTES * ((upper * blocks) >> 32)
        if int.from_bytes(data[at : at + _BLOCK_BYTES], "little") & bits == bits:
            return True
    return False


def _block_bits(value: int) -> int:
    """The bits that a value sets in its block, as one number."""
    bits = np.uint32(1) << ((np.uint32(value & 0xFFFFFFFF) * _SALTS) >> np.uint32(27))
    return int.from_bytes(bits.astype("<u4").tobytes(), "little")


def _blocks_of(data: bytes | None) -> int:
    """How many blocks a filter has; 0 if it is none."""
    if data is None or len(data) < _HEAD.size:
        return 0
    magic, blocks = _HEAD.unpack_from(data)
    return int(blocks) if magic == _MAGIC and len(data) == _HEAD.size + blocks * _BLOCK_BYTES else 0
