"""Arrow IPC streams from anybody: what they would become is known before anything of it is decoded.

Three things make foreign Arrow dangerous, and each is met in turn. Compressed buffers become as large as they like:
every message names its buffers, and a compressed one begins with its length once decompressed, so sizes are added up
before the first is decompressed. Rows that take no bytes (nulls) cost nothing to send: rows are counted in the
messages. Offsets that point outside crash the process when used: every batch is validated in full before it is given
on. Two forms are not taken at all: extension types, which run code of their own, and dictionaries sent in deltas, which
would be joined before anything can look at them.

The header of a message is a flatbuffer. Arrow has verified it when a message is given out; the few numbers needed are
read here by hand, with every position checked, because pyarrow does not tell them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

from millpond.errors import InvalidRecord, TooLarge
from millpond.ingest.castable import unsafe
from millpond.model.units import format_bytes

# A batch a message, and a dictionary. More are no stream that anybody writes.
_MESSAGES_MAX = 10_000

_EXTENSION = b"ARROW:extension:name"
_DICTIONARY, _RECORD_BATCH = 2, 3
# What stands before a compressed buffer if it was left as it is.
_NOT_COMPRESSED = -1

_WRONG = (pa.ArrowException, OSError, ValueError, OverflowError, struct.error)


class ArrowBody(NamedTuple):
    """What a stream held, valid to the last value."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]


def read_arrow_body(body: bytes, *, decoded_bytes_max: int, rows_max: int, columns_max: int) -> ArrowBody:
    """The batches of an Arrow IPC stream. `TooLarge` over a bound, `InvalidRecord` for anything else that is wrong."""
    try:
        data = pa.py_buffer(body)
        _check_sizes(data, decoded_bytes_max, rows_max)
        batches = []
        with pa.ipc.open_stream(data) as reader:
            schema = reader.schema
            _check_schema(schema, columns_max)
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
        return ArrowBody(schema, batches)
    except _WRONG as error:
        raise InvalidRecord(
            f"the body is not a valid Arrow stream: {str(error)[:500]}", hint="write it with pyarrow.ipc.new_stream"
        ) from None


def _check_schema(schema: pa.Schema, columns_max: int) -> None:
    fields, seen = list(schema), 0
    while fields:
        field = fields.pop()
        seen += 1
        if seen > columns_max:
            raise TooLarge(
                f"over {columns_max} columns, inner ones among them", hint="columns_max of the server is the bound"
            )
        kind = field.type
        # Arrow does not look whether names are text; Python does when it is asked for one.
        _ = field.name, kind.tz if pa.types.is_timestamp(kind) else None
        if isinstance(kind, pa.BaseExtensionType) or _EXTENSION in (field.metadata or {}):
            raise InvalidRecord(
                f"column {field.name!r} has an extension type", hint="send the type that it is stored as"
            )
        if unsafe(kind):
            raise InvalidRecord(f"column {field.name!r}: {unsafe(kind)}", hint="cast it before sending")
        if pa.types.is_dictionary(kind):
            fields.append(pa.field(field.name, kind.value_type))
        elif pa.types.is_nested(kind):
            fields += [kind.field(index) for index in range(kind.num_fields)]


def _check_sizes(data: pa.Buffer, decoded_bytes_max: int, rows_max: int) -> None:
    """What all messages would become together, before any is decoded."""
    size = rows = messages = 0
    reader = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        messages += 1
        if messages > _MESSAGES_MAX:
            raise TooLarge(f"over {_MESSAGES_MAX:,} messages in one stream", hint="send larger batches")
        found = _sizes(_Flat(memoryview(message.metadata)), memoryview(message.body or b""))
        size += found.decoded_bytes
        rows += found.rows
        if size > decoded_bytes_max or found.longest > decoded_bytes_max:
            raise TooLarge(
                f"the records take over {format_bytes(decoded_bytes_max)}",
                hint="send several requests; decoded_bytes_max of the server is the bound",
            )
        if rows > rows_max:
            raise TooLarge(
                f"over {rows_max:,} records", hint="send several requests; batch_rows_max of the server is the bound"
            )


class _Sizes(NamedTuple):
    """`longest` is the longest array in the message, inner ones among them: nulls have a length and no bytes."""

    decoded_bytes: int
    rows: int
    longest: int


def _sizes(flat: _Flat, body: memoryview) -> _Sizes:
    message = flat.root()
    kind = flat.number("<B", message, 1)
    if kind not in (_DICTIONARY, _RECORD_BATCH):
        return _Sizes(0, 0, 0)
    batch = flat.table(message, 2)
    if kind == _DICTIONARY:
        if flat.number("<?", batch, 2):
            raise InvalidRecord("a dictionary is sent in deltas", hint="write with emit_dictionary_deltas=False")
        batch = flat.table(batch, 1)
    length = int(flat.number("<q", batch, 0))
    nodes, buffers = flat.pairs(batch, 1), flat.pairs(batch, 2)
    if length < 0 or any(count < 0 or start < 0 for start, count in buffers) or any(node[0] < 0 for node in nodes):
        raise InvalidRecord("a message has a negative length", hint="write it with pyarrow.ipc.new_stream")
    longest = max((count for count, _ in nodes), default=0)
    if flat.field(batch, 3):
        size = sum(_decoded_length(body, start, count) for start, count in buffers)
    else:
        size = sum(count for _, count in buffers)
    return _Sizes(size, length if kind == _RECORD_BATCH else 0, max(length, longest))


def _decoded_length(body: memoryview, start: int, count: int) -> int:
    """How large a buffer of a compressed message becomes: it begins with that."""
    if count == 0:
        return 0
    if count < 8 or start + count > len(body):
        raise InvalidRecord("a compressed buffer lies outside its message", hint="write it with pyarrow.ipc.new_stream")
    (length,) = struct.unpack_from("<q", body, start)
    if length == _NOT_COMPRESSED:
        return count - 8
    if length < 0:
        raise InvalidRecord("a compressed buffer has a negative length", hint="write it with pyarrow.ipc.new_stream")
    return int(length)


class _Flat:
    """Numbers from a flatbuffer. A position outside of it is `struct.error` or `ValueError`, never another's memory.

    A table begins with how far before it its list of fields lies; that list says where in the table each field is."""

    def __init__(self, data: memoryview) -> None:
        self._data = data.cast("B")

    def _at(self, form: str, position: int) -> int:
        if position < 0:  # which would count from the end
            raise ValueError("a position before the beginning")
        (number,) = struct.unpack_from(form, self._data, position)
        return int(number)

    def root(self) -> int:
        """Where the outermost table is."""
        return self._at("<I", 0)

    def field(self, table: int, number: int) -> int:
        """Where a field of a table is; 0 if it has its default."""
        listed = table - self._at("<i", table)
        entry = 4 + 2 * number
        if entry >= self._at("<H", listed):
            return 0
        offset = self._at("<H", listed + entry)
        return table + offset if offset else 0

    def number(self, form: str, table: int, number: int) -> int:
        """A number or a flag in a table."""
        position = self.field(table, number)
        return self._at(form, position) if position else 0

    def table(self, table: int, number: int) -> int:
        """A table in a table."""
        position = self.field(table, number)
        if not position:
            raise ValueError("a part of a message is missing")
        return position + self._at("<I", position)

    def pairs(self, table: int, number: int) -> list[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers."""
        position = self.field(table, number)
        if not position:
            return []
        vector = position + self._at("<I", position)
        count = self._at("<I", vector)
        if vector + 4 + 16 * count > len(self._data):
            raise ValueError("a list is longer than its message")
        return list(struct.iter_unpack("<qq", self._data[vector + 4 : vector + 4 + 16 * count]))
