"""What goes back to a caller, counted on its way."""

from __future__ import annotations

from typing import Any

from millpond.serve.asked import Send
from millpond.serve.protocol import QuickAnswers

# These say by themselves that nothing follows.
_WITHOUT_BODY = (204, 304)

Headers = tuple[tuple[bytes, bytes], ...]

_JSON: Headers = ((b"content-type", b"application/json"),)


class Reply:
    """Of one request. `beside`: headers that every answer to it has."""

    __slots__ = ("_send", "beside", "bytes_out", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.beside: Headers = ()
        self.status = 0
        self.bytes_out = 0

    async def send(self, message: Any) -> None:
        """A message of somebody else's making, for an answer that comes in pieces."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.bytes_out += len(message.get("body", b""))

    async def acknowledge(self, quick: QuickAnswers, body: bytes) -> None:
        """All of an answer of JSON with 200, in as few steps as can be."""
        if not self.beside and quick.send(self._send, body):
            self.status, self.bytes_out = 200, len(body)
        else:
            await self.whole(200, _JSON, body)

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """All of an answer."""
        self.status, self.bytes_out = status, len(body)
        length = () if status in _WITHOUT_BODY else ((b"content-length", b"%d" % len(body)),)
        head = (*headers, *self.beside, *length)
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})
