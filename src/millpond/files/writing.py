"""A file that is appended to. Every `append` and every `write` is all or nothing, and acknowledged when it returns."""

from __future__ import annotations

import io
import uuid
from typing import Any

from millpond.errors import InvalidValue
from millpond.files.protocol import FileDesk
from millpond.files.renewing import Renewing
from millpond.log.engine import Ack

# A large append is several events, so that reading a part of it later does not take all of it.
PIECE_BYTES = 1 << 20


class FileWriter(io.BufferedIOBase):
    """Made by `pond.open_file(name, "a")`. For one thread at a time. Not buffered: nothing is left to flush, and
    `io.BufferedWriter` in front of it makes many small writes one append."""

    def __init__(self, desk: FileDesk, *, exclusive: bool = False) -> None:
        self._desk = desk
        self._writer, self._number = f"file-{uuid.uuid4().hex}", 0
        self._last: int | None = None
        self._renewing: Renewing | None = None
        self._renewing = Renewing(desk, desk.lock()) if exclusive else None

    @property
    def name(self) -> str:
        return self._desk.name

    @property
    def mode(self) -> str:
        return "ab"

    @property
    def exclusive(self) -> bool:
        """Whether it holds the file alone."""
        return self._renewing is not None

    def writable(self) -> bool:
        return True

    def append(self, data: Any) -> Ack:
        """Append bytes, all or nothing. Returns once they are as safe as the file's durability says."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        view = _bytes_of(data)
        pieces = [bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES)]
        renewing = self._renewing
        number, self._number = self._number, self._number + 1
        ack = self._desk.append(pieces, self._writer, number, None if renewing is None else renewing.epoch)
        if ack.ranges:
            self._last = ack.ranges[0].stop - 1
        return ack

    def write(self, data: Any, /) -> int:
        """As `append`; returns how many bytes there were."""
        self.append(data)
        return len(_bytes_of(data))

    def flush(self) -> None:
        """Nothing: what was written is acknowledged already."""
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def tell(self) -> int:
        """The position behind what was appended here last; before that, the end of the file."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._desk.end(self._last)

    def close(self) -> None:
        """Let go of it, and of its lock. May be called twice."""
        if not self.closed:
            super().close()
            if self._renewing is not None:
                self._renewing.stop()

    def __repr__(self) -> str:
        return f"<millpond file {self.name!r} to append to{', closed' if self.closed else ''}>"


def _bytes_of(data: Any) -> memoryview:
    if isinstance(data, str):
        raise InvalidValue("a file takes bytes, not text", hint="data.encode(), or io.TextIOWrapper around the file")
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidValue(
            f"a file takes bytes, not {type(data).__name__}", hint="bytes, or what has a buffer"
        ) from None
