"""How much one append may hold, measured before anything is decoded.

Dictionaries, views and columns of nulls are small on the way in and large once written out (16 KB can become
gigabytes), so what counts is the decoded size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidValue, TooLarge
from millpond.model.units import format_bytes

# One append is one frame per streamlet in the journal, written and synced as a whole.
APPEND_BYTES_MAX = 256_000_000
# A column of nulls takes no bytes on the way in and eight a row afterwards.
APPEND_ROWS_MAX = 10_000_000


def check_rows(rows: int) -> None:
    """`TooLarge` if one append has too many rows."""
    if rows > APPEND_ROWS_MAX:
        raise TooLarge(f"an append of {rows} rows, at most {APPEND_ROWS_MAX}", hint="split it into several appends")


def check_bytes(size: int, size_max: int) -> None:
    """`TooLarge` if one append has too many bytes."""
    if size > size_max:
        raise TooLarge(
            f"an append of {format_bytes(size)} or more, at most {format_bytes(size_max)}",
            hint="split it into several appends",
        )


def decoded_bytes(column: Any) -> int:
    """How much memory a validated column takes once dictionaries, views and nulls are written out."""
    if isinstance(column, pa.ChunkedArray):
        return sum(decoded_bytes(chunk) for chunk in column.chunks)
    kind = column.type
    if not _grows(kind):
        return int(column.nbytes)
    if pa.types.is_null(kind):
        return 8 * len(column)
    if pa.types.is_dictionary(kind):
        return int(np.sum(_widths(column.dictionary)[np.asarray(column.indices.drop_null())]))
    if pa.types.is_struct(kind):
        return sum(decoded_bytes(column.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return 4 * len(column) + decoded_bytes(map_entries(column))
    if pa.types.is_fixed_size_list(kind):
        return decoded_bytes(column.values.slice(column.offset * kind.list_size, len(column) * kind.list_size))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 4 * len(column) + decoded_bytes(column.flatten())
    return int(np.sum(_widths(column)))


def plain_bytes(values: Iterable[Any], kind: pa.DataType) -> int:
    """The least that the text and bytes in plain values take: one string may stand in many rows, and costs in each."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return sum(map(len, filter(None, values)))
    if pa.types.is_list(kind):
        return sum(plain_bytes(value, kind.value_type) for value in values if value)
    if pa.types.is_map(kind):
        pairs = [pair for value in values if value for pair in value]
        return plain_bytes((pair[0] for pair in pairs), kind.key_type) + plain_bytes(
            (pair[1] for pair in pairs), kind.item_type
        )
    if pa.types.is_struct(kind):
        found = [value for value in values if value is not None]
        inner = [kind.field(index).type for index in range(kind.num_fields)]
        return sum(plain_bytes((value[index] for value in found), part) for index, part in enumerate(inner))
    return 0


def map_entries(column: pa.MapArray) -> pa.StructArray:
    """The pairs of all maps that are not null, one after another."""
    kind = column.type
    pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return column.cast(pa.list_(pair)).flatten()


def _grows(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_grows(kind.field(index).type) for index in range(kind.num_fields))
    tests = (pa.types.is_null, pa.types.is_dictionary, pa.types.is_string_view, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


def _widths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # A view is 16 bytes and starts with the length; the column may begin in the middle of its buffer.
        lengths = np.frombuffer(column.buffers()[1], np.int32)[::4]
        return np.asarray(lengths[column.offset : column.offset + len(column)], np.int64)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)


def check_numbered(producer: str, sequence: int | None) -> None:
    """`InvalidValue` unless an append has a producer and a sequence, or neither."""
    if (sequence is None) != (not producer):
        raise InvalidValue(
            f"producer {producer!r} with sequence {sequence!r}", hint="give both, for an idempotent append, or none"
        )
