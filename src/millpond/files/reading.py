"""A file that is read: bytes by position, from settled and live events alike.

A read goes on where the last one ended, event after event; only a seek looks for a place. At the end `read` gives
b"", and more once there is more; with `follow` it waits for it instead.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidValue
from millpond.files.byte_file import contiguous
from millpond.files.places import BODY, END, HEADERS, POSITION, numbers_in
from millpond.files.protocol import EventReader, FileDesk, FilePlace

_Piece = tuple[int, int, memoryview]


class FileReader(io.BufferedIOBase):
    """Made by `pond.open_file(name, "r")`. For one thread; another one may close it, which ends a read that waits."""

    def __init__(self, desk: FileDesk, *, follow: bool = False) -> None:
        self._desk, self._follow = desk, follow
        self._place: FilePlace | None = desk.place(0)
        self._at = self._place.start
        self._next: int | None = None  # the event behind the last one that was taken, if no place is to be looked for
        self._source: EventReader | None = None
        self._pieces: Iterator[_Piece] = iter(())
        self._piece: memoryview = memoryview(b"")

    @property
    def name(self) -> str:
        return self._desk.name

    @property
    def mode(self) -> str:
        return "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """The position of the next byte that is read."""
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte, counted from the beginning, from here or from the end. Before the first byte that is still
        kept means there. Returns the position."""
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise InvalidValue(f"no whence {whence!r}", hint="io.SEEK_SET, io.SEEK_CUR or io.SEEK_END")
        origin = 0
        if whence == io.SEEK_CUR:
            origin = self._at
        elif whence == io.SEEK_END:
            origin = self._desk.place(None).size
        wanted = origin + offset
        if wanted < 0:
            raise InvalidValue(f"no position {wanted}", hint="0 is the first byte")
        if self._at <= wanted < self._at + len(self._piece):
            self._take(wanted - self._at)
            return self._at
        self._let_go()
        self._place = self._desk.place(wanted)
        self._at = max(wanted, self._place.start)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, or all to the end; fewer only at the end. With `follow` at least one byte, once there is one,
        and at most what is there."""
        self._check_open()
        left = -1 if size is None or size < 0 else size
        found: list[bytes] = []
        while left != 0 and self._fill(wait=self._follow and not found):
            taken = self._take(len(self._piece) if left < 0 else min(left, len(self._piece)))
            found.append(taken)
            left = left - len(taken) if left > 0 else left
        return b"".join(found)

    def read1(self, size: int = -1, /) -> bytes:
        """At most so many bytes, of one event."""
        self._check_open()
        if size == 0 or not self._fill(wait=self._follow):
            return b""
        return self._take(len(self._piece) if size < 0 else min(size, len(self._piece)))

    def peek(self, size: int = 0, /) -> bytes:
        """What comes next, as far as it is at hand, without taking it."""
        self._check_open()
        return bytes(self._piece[: max(size, 8_192)]) if self._fill(wait=self._follow) else b""

    def _take(self, count: int) -> bytes:
        taken, self._piece = bytes(self._piece[:count]), self._piece[count:]
        self._at += count
        return taken

    def _fill(self, wait: bool) -> bool:
        """Whether there is a byte at hand; `wait`: until there is one, or the file is closed."""
        while not len(self._piece) and not self.closed:
            piece = next(self._pieces, None)
            if piece is None:
                if not self._more(wait):
                    return False
                continue
            start, end, body = piece
            if end > self._at:
                contiguous(self.name, self._at, start, end)
                self._piece = body[self._at - start :]
        return not self.closed and len(self._piece) > 0

    def _more(self, wait: bool) -> bool:
        """Get more events; False if there are none."""
        source = self._source or self._opened()
        if source is None:
            if not wait:
                return False
            source = self._source = self._desk.read(self._desk.place(None).offset, follow=True)
        batch = source.poll()
        if self.closed:
            return False
        if batch is not None:
            self._next = source.position[0]
            self._pieces = _pieces_of(batch, self.name)
            return True
        if source.closed:  # the end of what was there when the read began
            source.close()
            self._source = None
            return wait and not self.closed
        return wait

    def _opened(self) -> EventReader | None:
        """The events from here on; None if this is behind the end."""
        offset = self._next
        if offset is None:
            place, self._place = self._place or self._desk.place(self._at), None
            if place.position == place.size and self._at > place.size:
                return None
            if place.size <= self._at:
                place = self._desk.place(self._at)  # it may have grown since it was looked for
            offset = place.offset
        self._source = self._desk.read(offset, follow=self._follow)
        return self._source

    def _let_go(self) -> None:
        source, self._source = self._source, None
        self._next, self._place = None, None
        self._pieces, self._piece = iter(()), memoryview(b"")
        if source is not None:
            source.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def close(self) -> None:
        """Let go of it. May be called twice."""
        if not self.closed:
            super().close()
            source = self._source
            if source is not None:
                source.close()

    def __repr__(self) -> str:
        return f"<millpond file {self.name!r} at {self._at}{', closed' if self.closed else ''}>"


def _pieces_of(batch: pa.RecordBatch, name: str) -> Iterator[_Piece]:
    headers: Any = batch.column(HEADERS)
    starts, ends = (numbers_in(headers, key, name).tolist() for key in (POSITION, END))
    for start, end, body in zip(starts, ends, batch.column(BODY), strict=True):
        yield start, end, memoryview(body.as_buffer())
