"""The journal's frame: how one piece of one streamlet is written down.

All numbers are little-endian. A frame is a header of 80 bytes, the producer's name, zeros up to a multiple of 8, the
payload, and zeros up to a multiple of 8; payloads therefore start aligned and are read in place from a mapped file.

    at  size  field
     0     4  magic "MPFR"
     4     4  crc32 of bytes 8 to 80 and of the producer's name
     8     4  payload length
    12     4  crc32 of the payload
    16     1  kind: 1 Arrow batch, 2 encoded rows, 3 state, 4 end, 5 copied Arrow batch with its ingest times
    17     1  flags: 1 last frame of its group
    18     2  streamlet
    20     4  stream id
    24     4  generation
    28     4  rows
    32     8  offset of the first row
    40     8  ingest time, microseconds since the epoch
    48     8  position in this file up to which everything had been synced when this frame was written
    56     8  sequence of the producer, plus one; 0 for none
    64     4  schema version
    68     2  length of the producer's name
    70    10  zeros

Frames up to and including one with the flag "last of group" are one group: all of it counts, or none.

The synced position is what tells a torn tail from damage: a frame that cannot be read was torn by a crash unless a
later frame claims that those bytes had been synced.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from isal import isal_zlib

MAGIC = b"MPFR"
HEADER = struct.Struct("<4sII IBBHIII QqQQ IH10x")
HEADER_BYTES = 80
assert HEADER.size == HEADER_BYTES
# What follows magic and checksum, and is under that checksum.
_FIELDS = struct.Struct("<IIBBHIIIQqQQIH10x")
assert _FIELDS.size == HEADER_BYTES - 8

ARROW, ROWS, STATE, END, COPIED = 1, 2, 3, 4, 5
DATA_KINDS = frozenset({ARROW, ROWS, COPIED})
LAST_OF_GROUP = 1
PRODUCER_BYTES_MAX = 255

crc32 = isal_zlib.crc32
# Padding, by how many bytes lie beyond a multiple of 8.
_ZEROS = [bytes(-count % 8) for count in range(8)]
# Payloads smaller than this are copied behind their header: one buffer is cheaper to write than two.
_JOINED_BYTES = 4_096


class Frame(NamedTuple):
    """A frame that was found whole: its header's fields and where its payload lies in the file."""

    position: int
    payload_at: int
    payload_bytes: int
    payload_crc: int
    kind: int
    flags: int
    streamlet: int
    stream: int
    generation: int
    rows: int
    base: int
    ingest_micros: int
    synced: int
    sequence: int
    schema_version: int
    producer: bytes

    @property
    def end(self) -> int:
        return aligned(self.payload_at + self.payload_bytes)


class Draft(NamedTuple):
    """What a frame will say; offset and synced position are added when it is written."""

    kind: int
    stream: int
    generation: int
    streamlet: int
    rows: int
    ingest_micros: int
    schema_version: int
    payload: bytes | memoryview
    payload_crc: int
    producer: bytes = b""
    sequence: int = 0


def aligned(count: int) -> int:
    """`count` rounded up to a multiple of 8."""
    return (count + 7) & ~7


def encode(draft: Draft, base: int, synced: int, *, last: bool) -> tuple[list[bytes | memoryview], int]:
    """The buffers of a frame, in order, and how far behind its beginning the payload begins."""
    kind, stream, generation, streamlet, rows, ingest, version, payload, payload_crc, producer, sequence = draft
    count = len(payload)
    fields = _FIELDS.pack(
        count, payload_crc, kind, LAST_OF_GROUP if last else 0, streamlet, stream, generation, rows, base, ingest,
        synced, sequence, version, len(producer),
    )  # fmt: skip
    crc = crc32(fields)
    if producer:
        crc = crc32(producer, crc)
    payload_at = (HEADER_BYTES + len(producer) + 7) & ~7
    head = MAGIC + crc.to_bytes(4, "little") + fields + producer + _ZEROS[len(producer) & 7]
    if count < _JOINED_BYTES:
        return [b"".join((head, payload, _ZEROS[count & 7]))], payload_at
    return [head, payload, _ZEROS[count & 7]], payload_at


def decode(data: memoryview, position: int) -> Frame | None:
    """The frame at `position`, or None if there is no whole and undamaged one."""
    limit = len(data)
    if position + HEADER_BYTES > limit:
        return None
    (
        magic, head_crc, payload_bytes, payload_crc, kind, flags, streamlet, stream, generation, rows, base,
        ingest_micros, synced, sequence, schema_version, producer_bytes,
    ) = HEADER.unpack_from(data, position)  # fmt: skip
    head_end = position + HEADER_BYTES + producer_bytes
    if magic != MAGIC or head_end > limit or crc32(data[position + 8 : head_end]) != head_crc:
        return None
    payload_at = (head_end + 7) & ~7
    payload_end = payload_at + payload_bytes
    if payload_end > limit or crc32(data[payload_at:payload_end]) != payload_crc:
        return None
    producer = bytes(data[position + HEADER_BYTES : head_end]) if producer_bytes else b""
    return Frame(
        position, payload_at, payload_bytes, payload_crc, kind, flags, streamlet, stream, generation, rows, base,
        ingest_micros, synced, sequence, schema_version, producer,
    )  # fmt: skip
