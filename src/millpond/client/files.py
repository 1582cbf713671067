"""The desk of one file of a served pond: each question is a request to its node.

An append whose answer is lost is sent again under the same number, for a while: the node recognises it. A lock has a
lease, which the handle renews.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pyarrow as pa

from millpond.client.connection import Connection
from millpond.client.reader import RemoteReader
from millpond.client.stream import RemoteStream
from millpond.errors import Backpressure, NotAFile, Unavailable
from millpond.files import FileEnd, FileLock, FilePlace
from millpond.log.engine import Ack
from millpond.model.schema import OFFSET, RAW_EVENTS
from millpond.wire import file_requests as file
from millpond.wire import requests as ask
from millpond.wire.answers import StreamInfo

# How long an append is tried while there is no room or no answer, and the pauses in between.
GIVE_UP_SECONDS = 30.0
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.05, 2.0

READ_COLUMNS = (OFFSET, "headers", "body")


class ServedFile:
    """Thread-safe."""

    def __init__(self, connection: Connection, stream: RemoteStream, info: StreamInfo, lease: str) -> None:
        if not info.file:
            raise NotAFile(f"{info.name} is a stream of records, no file", hint="pond.stream(name) opens it")
        self._connection, self._stream, self._lease = connection, stream, lease

    @property
    def name(self) -> str:
        return self._stream.name

    def place(self, position: int | None) -> FilePlace:
        found: FilePlace = self._connection.ask(file.FindPlace(self.name, position, id=self._stream.id), FilePlace)
        return found

    def read(self, offset: int, *, follow: bool) -> RemoteReader:
        return self._stream.read({0: offset}, follow=follow, columns=READ_COLUMNS)

    def append(self, pieces: Sequence[bytes], writer: str, number: int, epoch: int | None) -> Ack:
        if not pieces:
            return Ack({}, self._stream.definition.durability)
        empty = [None] * len(pieces)
        batch = pa.record_batch([empty, empty, list(pieces)], schema=RAW_EVENTS)
        request = ask.Append(self.name, producer=writer, sequence=number, epoch=epoch, id=self._stream.id)
        until, pause = time.monotonic() + GIVE_UP_SECONDS, PAUSE_SECONDS_FIRST
        while True:
            try:
                return self._connection.link.append(request, batch)
            except (Unavailable, Backpressure):
                if self._connection.closed or time.monotonic() >= until:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def end(self, offset: int | None) -> int:
        found: FileEnd = self._connection.ask(file.FindEnd(self.name, offset, id=self._stream.id), FileEnd)
        return found.position

    def lock(self, epoch: int | None = None) -> FileLock:
        found: FileLock = self._connection.ask(
            file.LockFile(self.name, lease=self._lease, epoch=epoch, id=self._stream.id), FileLock
        )
        return found

    def unlock(self, epoch: int) -> None:
        self._connection.ask(file.UnlockFile(self.name, epoch, id=self._stream.id), None)
