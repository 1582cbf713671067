"""Proofs that rows were rewritten and nothing else: checksums that do not depend on the order or grouping of rows.

Each row becomes one 64-bit number of everything in it, bit for bit (-0.0 is not 0.0, NaNs keep their payload, null is
not empty); those of many rows are added up. Rows that were lost, doubled or changed on the way leave another sum, but
for one chance in 2**64. All of it in numpy: a pass over the columns, none over rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.hashing import hash_column
from millpond.model.schema import OFFSET, STREAMLET

Words = npt.NDArray[np.uint64]

_U = np.uint64
_NULL = _U(0x9E3779B97F4A7C15)
_MIX_1 = _U(0xFF51AFD7ED558CCD)
_MIX_2 = _U(0xC4CEB9FE1A85EC53)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Proof:
    """So many rows; the sum of their places (streamlet and offset), and that of all they hold."""

    rows: int = 0
    places: int = 0
    contents: int = 0

    def __add__(self, other: Proof) -> Proof:
        return Proof(
            self.rows + other.rows,
            (self.places + other.places) & _MASK,
            (self.contents + other.contents) & _MASK,
        )


def prove(rows: pa.Table) -> Proof:
    """Of rows in the stored schema."""
    return Proof(rows.num_rows, _sum(rows.select([STREAMLET, OFFSET])), _sum(rows))


def prove_places(rows: pa.Table) -> Proof:
    """As `prove`, of rows of which only the places are at hand."""
    return Proof(rows.num_rows, _sum(rows.select([STREAMLET, OFFSET])))


def _sum(rows: pa.Table) -> int:
    total = 0
    for batch in rows.to_batches():
        total += int(_batch_words(batch).sum(dtype=np.uint64))
    return total & _MASK


def _batch_words(batch: pa.RecordBatch) -> Words:
    found = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        found = _joined(found, _words(column))
    return found


def _joined(before: Words, after: Words) -> Words:
    """In order: the same words in other columns give another number."""
    return _mix(before * _MIX_1 + after)


def _mix(words: Words) -> Words:
    words = words ^ (words >> _U(33))
    words *= _MIX_1
    words ^= words >> _U(29)
    words *= _MIX_2
    words ^= words >> _U(32)
    return words


def _words(column: pa.Array) -> Words:
    """A number for each value, null among them."""
    found = _valid_words(column)
    if column.null_count:
        found = found.copy()
        found[np.asarray(column.is_null())] = _NULL
    return found


def _valid_words(column: pa.Array) -> Words:
    """As `_words`, with anything at all where the column is null."""
    kind = column.type
    if isinstance(kind, pa.ExtensionType):
        return _words(column.storage)
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_struct(kind):
        found = np.zeros(len(column), np.uint64)
        for field in column.flatten():
            found = _joined(found, _words(field))
        return found
    if pa.types.is_fixed_size_list(kind):
        return _list_words(column.cast(pa.list_(kind.value_field)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _list_words(column)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return hash_column(column.cast(pa.binary()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return hash_column(column)
    return _fixed_words(column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column)


def _fixed_words(column: pa.Array) -> Words:
    """Of values of one width, by their very bits."""
    width = column.type.bit_width // 8
    count = len(column)
    data = column.buffers()[1]
    if not count or data is None:
        return np.zeros(count, np.uint64)
    raw = np.frombuffer(data, np.uint8)[column.offset * width : (column.offset + count) * width].reshape(count, width)
    padded = raw if width % 8 == 0 else np.pad(raw, ((0, 0), (0, -width % 8)))
    found = np.zeros(count, np.uint64)
    for word in np.ascontiguousarray(padded).view(np.uint64).T:
        found = _joined(found, word)
    return found


def _list_words(column: pa.Array) -> Words:
    if isinstance(column.type, pa.MapType):
        entries = pa.struct([column.type.key_field, column.type.item_field])
        column = column.cast(pa.list_(pa.field("entries", entries, nullable=False)))
    offsets = np.asarray(column.offsets).astype(np.int64)
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    places = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
    each = _joined(_mix(places.astype(np.uint64) + _U(1)), _words(values))
    summed = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])
    return _joined(_mix(lengths.astype(np.uint64) + _U(1)), summed[offsets[1:]] - summed[offsets[:-1]])
