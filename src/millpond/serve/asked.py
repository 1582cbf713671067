"""One request, as the door's handlers see it: bounded, with its caller known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

import anyio.to_thread
import msgspec

from millpond.errors import InvalidInput, TooLarge, UnsupportedMediaType
from millpond.serve.bodies import BodyBuffer, check_json_depth, decompressed
from millpond.serve.forms import JSON, media_type
from millpond.serve.matching import Match
from millpond.serve.settings import ServeSettings
from millpond.wire.access import Caller
from millpond.wire.desk import Desk

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


# What is no record is a name or a schema: decoded in the event loop, while others wait.
MESSAGE_BYTES_MAX = 4_000_000


# The length of a body under a megabyte has at most so many figures.
_SMALL_FIGURES = 6


class Gone(Exception):
    """The client left before its request was whole: there is nobody to answer."""


class Asked:
    """Made once the route and the caller are known."""

    def __init__(
        self, scope: Scope, receive: Receive, match: Match, query: Any, desk: Desk, caller: Caller, body: bytes | None
    ) -> None:
        self.scope, self._receive = scope, receive
        self.route, self.query = match.route, query
        self.name, self.group, self.instance = match.name, match.group, match.instance
        self.desk, self.caller = desk, caller
        self._body = body
        self.bytes_in = len(body or b"")

    @cached_property
    def headers(self) -> dict[str, str]:
        """By lower-case name; of those given twice, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]}

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    async def body(self, settings: ServeSettings) -> bytes:
        """The whole body, decompressed, within its bounds."""
        if self._body is None:
            self._body = await read_body(self._receive, dict(self.scope["headers"]), settings)
        self.bytes_in = len(self._body)
        encoding = self.headers.get("content-encoding")
        if not encoding:
            return self._body
        # In a thread: what a large body becomes takes longer to make than others should wait.
        return await anyio.to_thread.run_sync(decompressed, self._body, encoding, settings.decoded_bytes_max)

    async def message(self, kind: Any, settings: ServeSettings, bytes_max: int = MESSAGE_BYTES_MAX) -> Any:
        """The body as JSON of a known type."""
        media = media_type(self.header("content-type"))
        if media and media != JSON and not media.endswith("+json"):
            raise UnsupportedMediaType(f"a body of {media[:100]!r}", hint=f"send {JSON}")
        body = await self.body(settings)
        if len(body) > bytes_max:
            raise TooLarge(
                f"a message of {len(body):,} bytes is over the bound of {bytes_max:,}",
                hint="only records may be larger",
            )
        if len(body) <= MESSAGE_BYTES_MAX:
            return _decoded(body, kind, settings)
        # In a thread: what holds records takes longer to read than others should wait.
        return await anyio.to_thread.run_sync(_decoded, body, kind, settings)


def _decoded(body: bytes, kind: Any, settings: ServeSettings) -> Any:
    check_json_depth(body, settings.json_depth_max)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}", hint="GET /docs shows what it may hold") from None


async def read_body(receive: Receive, headers: dict[bytes, bytes], settings: ServeSettings) -> bytes:
    """The whole body as it was sent, within its bound and its time."""
    told = headers.get(b"content-length", b"")
    if 0 < len(told) <= _SMALL_FIGURES:
        message = await receive()
        if not message.get("more_body") and message["type"] == "http.request":  # nearly always it is here already
            body: bytes = message.get("body", b"")
            if len(body) <= settings.request_bytes_max:
                return body
        buffer = BodyBuffer(settings.request_bytes_max)
    else:  # it may be too large already by what it says of itself
        buffer = BodyBuffer(settings.request_bytes_max, told.decode("latin-1") if told else None)
        message = await receive()
    _add(message, buffer)
    try:
        async with asyncio.timeout(settings.request_seconds):
            while message.get("more_body"):
                message = await receive()
                _add(message, buffer)
    except TimeoutError:
        raise InvalidInput(
            f"the body did not arrive within {settings.request_seconds:g} s", hint="send it faster, or less of it"
        ) from None
    return buffer.whole()


def _add(message: Message, buffer: BodyBuffer) -> None:
    if message["type"] == "http.disconnect":
        raise Gone
    buffer.add(message.get("body", b""))
