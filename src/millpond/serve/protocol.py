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
    """`head_seconds` is set by the server, for all connections."""

    head_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"A head of over {HEAD_BYTES_MAX:,} bytes.")

    def on_message_begin(self) -> None:
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def _await_head(self) -> None:
        self._head_came()
        self._in_head, self._head_bytes = True, 0
        self._deadline = self.loop.call_later(self.head_seconds, self._too_slow)

    def _head_came(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        status, headers, body = answer_of(InvalidInput(f"not a request: {msg}", hint="HTTP/1.1 is spoken here"))
        head = [*headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
        self.transport.write(b"HTTP/1.1 %d Bad Request\r\n%b\r\n%b" % (status, lines, body))
        self.transport.close()
