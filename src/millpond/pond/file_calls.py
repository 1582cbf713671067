"""What is asked about files: by the doors, and by handles on a pond that is open in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from millpond.files import FileEnd, FileLock, FilePlace
from millpond.log.engine import Ack
from millpond.model.schema import OFFSET
from millpond.model.units import parse_seconds
from millpond.query import StreamReader
from millpond.wire import file_requests as file
from millpond.wire import requests as ask
from millpond.wire.access import Caller

if TYPE_CHECKING:
    from millpond.pond.stream import Stream

# What a file is read from.
READ_COLUMNS = (OFFSET, "headers", "body")


def file_calls(stream_of: Callable[[Any], Stream]) -> dict[type[ask.Request], Callable[[Caller, Any], Any]]:
    """The handlers of a desk."""

    def lock(caller: Caller, request: file.LockFile) -> FileLock:
        return stream_of(request).file.lock(parse_seconds(request.lease), request.epoch)

    def unlock(caller: Caller, request: file.UnlockFile) -> None:
        stream_of(request).file.unlock(request.epoch)

    return {
        file.FindPlace: lambda caller, request: stream_of(request).file.place(request.position),
        file.FindEnd: lambda caller, request: FileEnd(stream_of(request).file.end(request.offset)),
        file.LockFile: lock,
        file.UnlockFile: unlock,
    }


class HereFile:
    """The desk of one file of a pond in this process: a lock is held until it is given back, or its handle is gone."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._file = stream.file
        self._file.end(None)  # which says so if it is none

    @property
    def name(self) -> str:
        return self._stream.name

    def place(self, position: int | None) -> FilePlace:
        return self._file.place(position)

    def read(self, offset: int, *, follow: bool) -> StreamReader:
        return self._stream.read({0: offset}, follow=follow, columns=READ_COLUMNS)

    def append(self, pieces: Sequence[bytes], writer: str, number: int, epoch: int | None) -> Ack:
        return self._file.append(pieces, epoch=epoch)  # no answer is lost on the way: there is nothing to retry

    def end(self, offset: int | None) -> int:
        return self._file.end(offset)

    def lock(self, epoch: int | None = None) -> FileLock:
        return self._file.lock(None, epoch)

    def unlock(self, epoch: int) -> None:
        self._file.unlock(epoch)
