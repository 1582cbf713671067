"""Hashes of key values: one 64-bit number per value, the same for a column at once and for a single Python value.

Routing (which streamlet), the key index of segments and `get` all compare these numbers, so they must never change:
journals and positions outlive a version. Equal values hash alike whatever their width (an int32 17 and an int64 17),
-0.0 like 0.0 and every NaN like every other; nulls hash to `NULL_HASH`.

Fixed-width values are one 64-bit word, mixed. Bytes (strings, binary, decimals as text) are cut into 8-byte words from
the front, the last one padded with zeros; the words are folded in order, and the result is mixed with the length.
Folding is cheap on purpose, one multiplication a word: mixing at the end makes up for it.

Leaves out defence against chosen keys: whoever may write to a stream may also fill one streamlet of it.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

NULL_HASH = 0x9E3779B97F4A7C15
_MIX_1 = 0xFF51AFD7ED558CCD
_MIX_2 = 0xC4CEB9FE1A85EC53
_MASK = (1 << 64) - 1
_words = struct.Struct("<Q").iter_unpack
# What fills up the last word, by how many bytes are in it.
_PADDING = [bytes(-count % 8) for count in range(8)]
_U = np.uint64
# What is kept of a word that has so many bytes left in it.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
# Rows hashed at a time: their words stay in the cache of a core.
_STEP = 16_384
_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def _mix(word: int) -> int:
    word ^= word >> 33
    word = word * _MIX_1 & _MASK
    word ^= word >> 29
    word = word * _MIX_2 & _MASK
    return word ^ word >> 32


def _mix_all(words: Hashes) -> Hashes:
    words = words ^ (words >> _U(33))
    words *= _U(_MIX_1)
    words ^= words >> _U(29)
    words *= _U(_MIX_2)
    words ^= words >> _U(32)
    return words


def hash_bytes(value: bytes) -> int:
    """The hash of one string of bytes."""
    state, length = 0, len(value)
    for (word,) in _words(value + _PADDING[length & 7]):
        state = (state ^ word) * _MIX_1 & _MASK
        state ^= state >> 32
    # `_mix`, written out: every single record comes by here.
    word = state ^ length
    word = (word ^ word >> 33) * _MIX_1 & _MASK
    word = (word ^ word >> 29) * _MIX_2 & _MASK
    return word ^ word >> 32


def hash_value(value: Any) -> int:
    """The hash of one Python value; the twin of `hash_column`. Timestamps and dates may also come as their numbers."""
    kind = type(value)
    if kind is str:
        return hash_bytes(value.encode())
    if kind is int or kind is bool:
        return _mix(value & _MASK)
    if value is None:
        return NULL_HASH
    if isinstance(value, str):
        return hash_bytes(value.encode())
    if isinstance(value, int):
        return _mix(int(value) & _MASK)
    if isinstance(value, float):
        return _mix(_float_bits(value))
    if isinstance(value, bytes):
        return hash_bytes(value)
    if isinstance(value, Decimal):
        return hash_bytes(_decimal_text(value).encode())
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        delta = aware - _EPOCH_TIME
        return _mix(((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) & _MASK)
    if isinstance(value, date):
        return _mix((value.toordinal() - _EPOCH) & _MASK)
    raise TypeError(f"no hash for a {kind.__name__}")


def _float_bits(value: float) -> int:
    if value != value:
        value = float("nan")
    bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
    return bits


def _decimal_text(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """The hashes of all values of a column, at once."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    hashes = _hash_valid(column)
    if column.null_count:
        hashes[np.asarray(column.is_null())] = _U(NULL_HASH)
    return hashes


def _hash_valid(column: pa.Array) -> Hashes:
    """As `hash_column`, with anything at all where the column is null."""
    kind = column.type
    if pa.types.is_decimal(kind):
        texts = ["" if v is None else _decimal_text(v) for v in column.to_pylist()]
        return _hash_bytes_column(pa.array(texts, pa.string()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes_column(column)
    if pa.types.is_floating(kind):
        values = np.asarray(pc.fill_null(column, 0.0).cast(pa.float64())) + 0.0
        return _mix_all(np.where(np.isnan(values), np.nan, values).view(np.uint64))
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, 0)
    return _mix_all(np.asarray(column).astype(np.int64).view(np.uint64))


def _hash_bytes_column(column: pa.Array) -> Hashes:
    count = len(column)
    found = np.empty(count, np.uint64)
    if count == 0:
        return found
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + count + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # The word at a value's last byte is read whole: eight bytes more must be there, whatever they are.
    if data is None or data.size < last + 8:
        padded = np.zeros(last - first + 8, np.uint8)
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last] if data is not None else 0
        data, offsets = padded, offsets - first
    for start in range(0, count, _STEP):
        stop = min(start + _STEP, count)
        found[start:stop] = _hash_step(data, offsets[start : stop + 1])
    return found


def _hash_step(data: Any, offsets: npt.NDArray[np.int64]) -> Hashes:
    """The hashes of some values: `data` has eight bytes to spare after the last."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    state = np.zeros(len(starts), np.uint64)
    for at in range(0, longest, 8):
        if shortest == longest:
            # Values of one length lie at equal distances: no index.
            word = np.ndarray(starts.shape, "<u8", data, int(starts[0]) + at, (longest,)) & _MASKS[min(longest - at, 8)]
            _fold(state, word)
            continue
        words = np.ndarray((int(offsets[-1]) + 1,), "<u8", data, 0, (1,))
        if at < shortest:
            word = words[starts + at]
            if at + 8 > shortest:
                word &= _MASKS.take(lengths - at, mode="clip")
            _fold(state, word)
            continue
        rows = np.flatnonzero(lengths > at)
        part = state[rows]
        _fold(part, words[starts[rows] + at] & _MASKS.take(lengths[rows] - at, mode="clip"))
        state[rows] = part
    return _mix_all(state ^ lengths.view(np.uint64))


def _fold(state: Hashes, word: Hashes) -> None:
    state ^= word
    state *= _U(_MIX_1)
    np.right_shift(state, _U(32), out=word)
    state ^= word


def streamlet_of(value: Any, streamlets: int) -> int:
    """The streamlet of one key value, in its column's plain form (`RowCodec.plain`): streamlets are equal ranges of
    the hash (K2). The twin of `streamlets_of`."""
    if type(value) is str:
        return ((hash_bytes(value.encode()) >> 32) * streamlets) >> 32
    return ((hash_value(value) >> 32) * streamlets) >> 32


def streamlets_of(hashes: Hashes, streamlets: int) -> npt.NDArray[np.uint64]:
    """The streamlets of many hashes. The upper half of a hash decides, so that the product fits 64 bits."""
    return ((hashes >> _U(32)) * _U(streamlets)) >> _U(32)
