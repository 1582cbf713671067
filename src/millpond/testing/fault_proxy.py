"""A proxy between a client and a server that does what networks do: delays, cuts, and reads slowly.

It stands on loopback and passes bytes on, both ways, unchanged. What it does to them is a `Faults`, and may be changed
while it runs; chance comes from a seed. An answer is what the server sends at once: over HTTP/2, and so over Flight,
one DATA frame, because the other frames are about the connection; otherwise one piece of bytes. When an answer is cut
its request has passed and was acted on: the client cannot know, and that is the point.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

_PREFACE = b"PRI * HTTP/2.0"
_FRAME_HEAD = 9
_DATA = 0
_PIECE_BYTES = 65_536
_START_SECONDS = 10.0


@dataclass(frozen=True)
class Faults:
    """`cut_answers`: the share of answers in whose place the connection is cut; half of them are cut in their middle.
    `cut_requests`: the share of pieces of requests that are cut in their middle. `delay_seconds`: how long every piece
    waits, either way. `answer_bytes_per_second`: how quickly what the server sends is read, through as small a window
    as the system allows; None for as quickly as it comes."""

    cut_answers: float = 0.0
    cut_requests: float = 0.0
    delay_seconds: float = 0.0
    answer_bytes_per_second: float | None = None


NO_FAULTS = Faults()


class FaultProxy:
    """From a free port of loopback to `port`. A context manager; its counters may be read from any thread."""

    def __init__(self, port: int, faults: Faults = NO_FAULTS, *, seed: int = 0) -> None:
        self.faults = faults
        self.answers = self.answers_cut = self.requests_cut = self.connections = 0
        self._target = port
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="millpond-fault-proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut every connection, and be gone."""
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_PIECE_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    # One connection.

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            await self._between(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy is closed, and with it all that goes through it
        finally:
            writer.transport.abort()
            self._open.discard(task)

    async def _between(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        slow = self.faults.answer_bytes_per_second is not None
        upstream = socket.socket()
        upstream.setblocking(False)
        if slow:  # before it connects: the window is agreed on then
            upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        try:
            await self._loop.sock_connect(upstream, ("127.0.0.1", self._target))
        except OSError:
            upstream.close()  # nobody is there: the client finds the door shut, as it would without us
            return
        server, to_server = await asyncio.open_connection(sock=upstream, limit=1_024 if slow else _PIECE_BYTES)
        try:
            first = await client.read(_PIECE_BYTES)
            answers = _Frames() if first.startswith(_PREFACE) else _Pieces()
            ways = [
                asyncio.ensure_future(self._pass_requests(first, client, to_server)),
                asyncio.ensure_future(self._pass_answers(server, to_client, answers)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except ConnectionError:
            return
        finally:
            to_server.transport.abort()

    async def _pass_requests(self, first: bytes, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        piece = first
        with contextlib.suppress(ConnectionError):
            while piece:
                await self._delay()
                if self._random.random() < self.faults.cut_requests:
                    self.requests_cut += 1
                    to_server.write(piece[: len(piece) // 2])
                    await to_server.drain()
                    return
                to_server.write(piece)
                await to_server.drain()
                piece = await client.read(_PIECE_BYTES)

    async def _pass_answers(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, answers: _Frames | _Pieces
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await server.read(await self._wait_to_read()):
                await self._delay()
                for part, is_answer in answers.parts(piece):
                    if is_answer and self._cuts(part, to_client):
                        await to_client.drain()
                        return
                    to_client.write(part)
                await to_client.drain()

    def _cuts(self, part: bytes, to_client: asyncio.StreamWriter) -> bool:
        self.answers += 1
        if self._random.random() >= self.faults.cut_answers:
            return False
        self.answers_cut += 1
        if self._random.random() < 0.5:
            to_client.write(part[: len(part) // 2])
        return True

    async def _delay(self) -> None:
        if self.faults.delay_seconds:
            await asyncio.sleep(self.faults.delay_seconds)

    async def _wait_to_read(self) -> int:
        """How much may be read from the server now."""
        rate = self.faults.answer_bytes_per_second
        if rate is None:
            return _PIECE_BYTES
        await asyncio.sleep(0.5)
        return max(1, int(rate / 2))


class _Pieces:
    """Whatever arrives at once is an answer."""

    def parts(self, piece: bytes) -> Iterator[tuple[bytes, bool]]:
        yield piece, True


class _Frames:
    """HTTP/2 as it comes, frame by frame; DATA frames are answers. What is not a whole frame yet waits for the rest."""

    def __init__(self) -> None:
        self._held = b""

    def parts(self, piece: bytes) -> Iterator[tuple[bytes, bool]]:
        held = self._held + piece
        at = 0
        while len(held) - at >= _FRAME_HEAD:
            stop = at + _FRAME_HEAD + int.from_bytes(held[at : at + 3], "big")
            if stop > len(held):
                break
            yield held[at:stop], held[at + 3] == _DATA
            at = stop
        self._held = held[at:]
