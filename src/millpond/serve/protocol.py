"""HTTP/1.1 on one connection: uvicorn's protocol with bounds on what comes before there is a request to speak of.

A head has a time in which to arrive and a size; a connection that never sends one is closed. What is not HTTP is
answered in the shape that all errors have.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millpond.errors import InvalidInput
from millpond.serve.problems import answer_of

# Names of streams are in the path, conditions in the query: generous for both, and a bound.
HEAD_BYTES_MAX = 256_000


class BoundedProtocol(HttpToolsProtocol):
    """The server looks at all connections now and then (`close_if_slow`): a timer for each request would cost more than
    reading its head, which nearly always arrives in one piece."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        # When this connection began to owe us a head that is not whole yet.
        self._owes_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _OneWrite(transport, self.loop)  # type: ignore[assignment]
        self._owes_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            self._owes_since = None
        elif self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"A head of over {HEAD_BYTES_MAX:,} bytes.")
        elif self._owes_since is None:
            self._owes_since = self.loop.time()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def close_if_slow(self, head_seconds: float) -> None:
        """Close a connection whose head takes too long."""
        if self._owes_since is not None and self.loop.time() - self._owes_since > head_seconds:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        status, headers, body = answer_of(InvalidInput(f"not a request: {msg}", hint="HTTP/1.1 is spoken here"))
        head = [*headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
        self.transport.write(b"HTTP/1.1 %d Bad Request\r\n%b\r\n%b" % (status, lines, body))
        self.transport.close()


class _OneWrite:
    """A transport that sends the head of an answer together with what follows at once: one system call, and one packet,
    where there would be two."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._held = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
