"""Checksums of an object's bytes, block by block, and a file that checks what it reads.

Parquet's own page checksums cover the values, but neither the page headers nor the footer, whose statistics decide
which row groups a reader skips: a flipped bit there loses rows without an error. So the index entry of an object holds
a CRC-32 of every block of the file, and whatever is read is read in whole blocks and checked before anyone sees it.
Reading one column of a large object still touches only the blocks that hold it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

from isal import isal_zlib

from millpond.errors import Damaged

# Small enough that a footer or a narrow column does not cost much more than itself, large enough that the checksums of
# an object of 128 MB fit in 512 bytes.
BLOCK_BYTES = 1 << 20

ReadAt = Callable[[int, int], bytes]


def checksum(data: bytes | memoryview) -> int:
    """CRC-32 of a small file as a whole."""
    return isal_zlib.crc32(data)


def block_checksums(data: bytes | memoryview) -> bytes:
    """The CRC-32 of each block, four bytes each, little-endian."""
    view = memoryview(data)
    found = [isal_zlib.crc32(view[at : at + BLOCK_BYTES]) for at in range(0, len(view), BLOCK_BYTES)]
    return struct.pack(f"<{len(found)}I", *found)


def block_count(size: int) -> int:
    return -(-size // BLOCK_BYTES)


class CheckedFile(io.RawIOBase):
    """A read-only file of known size and known block checksums. Raises `Damaged` rather than return other bytes.

    For one reader: pyarrow serialises its calls to a Python file.
    """

    def __init__(self, name: str, size: int, checksums: bytes, read_at: ReadAt) -> None:
        super().__init__()
        if len(checksums) != 4 * block_count(size):
            raise Damaged(
                f"{name}: {len(checksums) // 4} block checksums for {size} bytes",
                hint="the index entry does not belong to this object: run `millpond verify`",
            )
        self._name = name
        self._size = size
        self._expected = struct.unpack(f"<{len(checksums) // 4}I", checksums)
        self._read_at = read_at
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._size, self._position + size)
        start, self._position = self._position, max(self._position, stop)
        if start >= stop:
            return b""
        first = start // BLOCK_BYTES * BLOCK_BYTES
        blocks = memoryview(self._checked(first, min(self._size, block_count(stop) * BLOCK_BYTES)))
        return bytes(blocks[start - first : stop - first])

    def _checked(self, first: int, end: int) -> bytes:
        data = self._read_at(first, end - first)
        if len(data) != end - first:
            raise Damaged(
                f"{self._name} ends after {first + len(data)} bytes, expected {self._size}",
                hint="the object was cut off: restore it from a backup, then run `millpond verify`",
            )
        view = memoryview(data)
        for at in range(0, len(view), BLOCK_BYTES):
            block = (first + at) // BLOCK_BYTES
            if isal_zlib.crc32(view[at : at + BLOCK_BYTES]) != self._expected[block]:
                raise Damaged(
                    f"{self._name}: checksum mismatch in bytes {first + at} to {min(first + at + BLOCK_BYTES, end)}",
                    hint="the object is not what was written: restore it from a backup, then run `millpond verify`",
                )
        return data
