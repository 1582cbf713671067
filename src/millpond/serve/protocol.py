"""HTTP/1.1 on one connection: uvicorn's protocol with bounds on what comes before there is a request to speak of.

A head has a time in which to arrive and a size; a connection that never sends one is closed. What is not HTTP is
answered in the shape that all errors have.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from millpond.errors import InvalidInput, MillpondError, TooManyRequests
from millpond.serve.problems import answer_of

# Names of streams are in the path, conditions in the query: generous for both, and a bound.
HEAD_BYTES_MAX = 256_000
# More than this is sent at once.
LATE_BYTES_MAX = 64_000


class BoundedProtocol(HttpToolsProtocol):
    """The server looks at all connections now and then (`close_if_slow`): a timer for each request would cost more than
    reading its head, which nearly always arrives in one piece."""

    # One for all connections of a server: see `protocol_class`.
    connections_max: ClassVar[int]
    writes: ClassVar[Writes]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        # Since when this connection owes us bytes: of a head that is not whole, of a body, or of whatever it began.
        self._owes_since: float | None = None
        self._running: RequestResponseCycle | None = None
        self._deaf = False  # what comes after a mistake is no request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _LateTransport(transport, self.loop, self.writes)  # type: ignore[assignment]
        self._owes_since = self.loop.time()
        if len(self.connections) > self.connections_max:
            self._refuse(
                TooManyRequests(
                    f"there are {self.connections_max} connections",
                    hint="close some, or raise the setting connections_max",
                )
            )

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        HttpToolsProtocol.data_received(self, data)
        cycle = self.cycle
        if self._in_head:
            self._look_at_head(len(data))
        elif cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._owes_since = None  # a whole request, under way
        elif self._owes_since is None:
            self._owes_since = self.loop.time()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        HttpToolsProtocol._start_asgi_task(self, cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        running = self._running
        if running is not None and running is not self.cycle and not running.response_complete:
            # Another request is queued behind it, and uvicorn would tell only that one.
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def _look_at_head(self, size: int) -> None:
        self._head_bytes += size
        if self._owes_since is None:
            self._owes_since = self.loop.time()
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"A head of over {HEAD_BYTES_MAX:,} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._owes_since = False, 0, None
        HttpToolsProtocol.on_headers_complete(self)

    def close_if_slow(self, head_seconds: float) -> None:
        """Close a connection that has owed us something for too long."""
        if self._owes_since is not None and self.loop.time() - self._owes_since > head_seconds:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._deaf = True
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            # The request before it is whole and under way: its own answer goes out, and is the last one.
            cycle.keep_alive = False
            return
        self._refuse(InvalidInput(f"not a request: {msg}", hint="HTTP/1.1 is spoken here"))

    def _refuse(self, error: MillpondError) -> None:
        status, headers, body = answer_of(error)
        head = [*headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
        reason = HTTPStatus(status).phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, reason, lines, body))
        self.transport.close()


class QuickAnswers:
    """Whole answers of JSON, each sent in one step where uvicorn takes two with many in each: for what is answered most
    of all. Of one loop."""

    def __init__(self) -> None:
        self._defaults: list[tuple[bytes, bytes]] | None = None  # uvicorn makes a new list when the date changes
        self._head = b""

    def send(self, send: Any, body: bytes) -> bool:
        """Answer 200. False if anything about the request is unusual: nothing was sent then."""
        cycle = getattr(send, "__self__", None)
        if (
            type(cycle) is not RequestResponseCycle
            or cycle.response_started
            or cycle.disconnected
            or cycle.waiting_for_100_continue
            or cycle.flow.write_paused
            or not cycle.keep_alive
        ):
            return False
        if cycle.default_headers is not self._defaults:
            self._defaults = cycle.default_headers
            lines = (b"%b: %b\r\n" % pair for pair in (*self._defaults, (b"content-type", b"application/json")))
            self._head = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        cycle.message_event.set()
        cycle.on_response()
        return True


class Writes:
    """What the connections of one loop have to send, sent at the end of each of its rounds.

    Answers come in groups, as their records are committed. If each were sent as soon as it is made, the kernel would
    wake the other end for each; sent one right after the other, they find it awake. And the head of an answer goes with
    its body: one system call, and one packet, where there would be two."""

    def __init__(self) -> None:
        self._waiting: list[_LateTransport] = []

    def add(self, transport: _LateTransport, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(transport)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            transport.flush()


class _LateTransport:
    """A transport whose writes wait for the end of the loop's round, but for large ones."""

    __slots__ = ("_held", "_loop", "_transport", "_writes", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, writes: Writes) -> None:
        self._transport, self._loop, self._writes = transport, loop, writes
        self._held = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._held:
            self._held += data
        elif data:
            self._held = data
            self._writes.add(self, self._loop)
        if len(self._held) > LATE_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            if not self.is_closing():  # otherwise there is nobody left to send it to
                self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def protocol_class(connections_max: int) -> type[BoundedProtocol]:
    """The protocol of one server."""
    return type("ServerProtocol", (BoundedProtocol,), {"connections_max": connections_max, "writes": Writes()})
