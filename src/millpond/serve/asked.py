"""One request, as the door's handlers see it: bounded, with its caller known."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

import msgspec

from millpond.errors import InvalidInput, TooLarge, UnsupportedMediaType
from millpond.serve.forms import JSON, media_type
from millpond.serve.routes import Match
from millpond.serve.settings import ServeSettings
from millpond.wire.access import Caller
from millpond.wire.desk import Desk

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The client left before its request was whole: there is nobody to answer."""


class Asked:
    """Made once the route and the caller are known."""

    def __init__(
        self, scope: Scope, receive: Receive, match: Match, query: Any, desk: Desk, caller: Caller, body: bytes | None
    ) -> None:
        self.scope, self._receive = scope, receive
        self.route, self.name, self.query = match.route, match.name, query
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
        return decompress(self._body, self.header("content-encoding"), settings.decoded_bytes_max)

    async def message(self, kind: Any, settings: ServeSettings) -> Any:
        """The body as JSON of a known type."""
        media = media_type(self.header("content-type"))
        if media and media != JSON and not media.endswith("+json"):
            raise UnsupportedMediaType(f"a body of {media[:100]!r}", hint=f"send {JSON}")
        body = await self.body(settings)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"the body does not fit: {error}", hint="GET /docs shows what it may hold") from None


async def read_body(receive: Receive, headers: dict[bytes, bytes], settings: ServeSettings) -> bytes:
    """The whole body as it was sent, within its bound and its time."""
    limit = settings.request_bytes_max
    told = headers.get(b"content-length", b"")
    if told.isdigit() and int(told) > limit:
        raise _too_large(int(told), limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise _too_large(len(body), limit)
        return body
    parts, size = [body], len(body)
    try:
        async with asyncio.timeout(settings.request_seconds):
            while message.get("more_body"):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(size, limit)
    except TimeoutError:
        raise InvalidInput(
            f"the body did not arrive within {settings.request_seconds:g} s", hint="send it faster, or less of it"
        ) from None
    return b"".join(parts)


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"a body of at least {size:,} bytes is over the bound of {limit:,}",
        hint="send it in parts, or raise the setting request_bytes_max",
    )


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its `Content-Encoding`; never more than `limit` bytes are made of it."""
    named = encoding.strip().lower()
    if named in ("", "identity"):
        return body
    if named not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType(f"no content encoding {named[:40]!r}", hint="gzip, deflate or none")
    # 32 above the largest window: gzip or zlib, told apart by their heads.
    decoder = zlib.decompressobj(zlib.MAX_WBITS + 32)
    try:
        decoded = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not {named}: {error}", hint="compress it whole, or send it plain") from None
    if len(decoded) > limit:
        raise TooLarge(
            f"the body decodes to more than {limit:,} bytes",
            hint="send it in parts, or raise the setting decoded_bytes_max",
        )
    if not decoder.eof or decoder.unused_data:
        raise InvalidInput(f"the body is not one whole {named} stream", hint="compress it whole, or send it plain")
    return decoded
