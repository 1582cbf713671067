"""Where `put` reads from: files and stdin, as byte streams that count what was read and do not make a record wait.

Lines are handed on by the batch. A pipe that has fewer to give is waited for only a moment, so that a busy one gives
whole batches and one that gives a line now and then (`tail -f`) is followed without delay.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from millpond.errors import InvalidValue

# Long enough for a writer that is merely slower than we are, too short for a person to notice.
LINGER_SECONDS = 0.02
READ_BYTES = 1_000_000
# Long records make a batch of fewer lines.
ENOUGH_BYTES = 8_000_000

FORM_OF_SUFFIX = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
}


def form_of(path: Path | None, given: str | None) -> str:
    """In which form a source is: as given, by the file's name, NDJSON otherwise."""
    if given is not None:
        if given not in FORM_OF_SUFFIX.values():
            raise InvalidValue(f"no format {given!r}", hint="ndjson, csv or arrow")
        return given
    return "ndjson" if path is None else FORM_OF_SUFFIX.get(path.suffix.lower(), "ndjson")


class Source(io.RawIOBase):
    """A byte stream on its way in. `told` is called with the bytes of each read."""

    def __init__(self, stream: BinaryIO, told: Callable[[int], None], *, pipe: bool, lines: int) -> None:
        super().__init__()
        self._stream, self._told, self._pipe, self._lines = stream, told, pipe, lines
        self._rest = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Exactly `size` bytes, unless the end comes first."""
        data = self._stream.read(-1 if size is None else size)
        self._told(len(data))
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        data = self._stream.readline(-1 if size is None else size)
        self._told(len(data))
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """What is there, up to the end of a batch's last line; waits only if there is nothing."""
        del size  # how much is read at a time is decided here
        data = self._rest
        count = data.count(b"\n")
        while count < self._lines and len(data) < ENOUGH_BYTES and self._worth_waiting(data):
            more = self._read_some()
            if not more:
                self._ended = True  # a terminal would ask again
                break
            data += more
            count += more.count(b"\n")
        end = _end_of_line(data, self._lines) if count > self._lines else len(data)
        self._rest = data[end:]
        return data[:end]

    def _worth_waiting(self, data: bytes) -> bool:
        if self._ended:
            return False
        if not data or not self._pipe:
            return True
        return bool(select.select([self._stream], [], [], LINGER_SECONDS)[0])

    def _read_some(self) -> bytes:
        take = getattr(self._stream, "read1", self._stream.read)
        data: bytes = take(READ_BYTES)
        self._told(len(data))
        return data


def _end_of_line(data: bytes, number: int) -> int:
    """Where the line of that number ends, counted from 1."""
    import numpy as np

    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return int(ends[number - 1]) + 1


@contextmanager
def open_source(path: Path | None, told: Callable[[int], None], lines: int) -> Iterator[BinaryIO]:
    """A file, or stdin for None (and for "-"), handed on by so many lines."""
    if path is None or str(path) == "-":
        stdin = sys.stdin.buffer
        yield cast(BinaryIO, Source(stdin, told, pipe=_can_be_waited_for(stdin), lines=lines))
        return
    with path.open("rb") as file:
        yield cast(BinaryIO, Source(file, told, pipe=False, lines=lines))


def _can_be_waited_for(stream: BinaryIO) -> bool:
    try:
        stream.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True
