"""Request bodies from anybody: collected, decompressed and looked at without ever holding more than a limit.

A compressed body says nothing true about how large it becomes (a kilobyte can become a gigabyte), so it is decompressed
piece by piece and dropped when it passes the limit. How deep JSON nests is found without a step of Python per byte:
where there are too few brackets to be too deep there is nothing to do, otherwise the text is boiled down to quotes and
brackets first. Everything here is pure and synchronous. Arrow has a file of its own, `ingest.arrow_stream`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np

from millpond.errors import InvalidInput, TooLarge, UnsupportedMediaType
from millpond.model.units import format_bytes

# What is decompressed at a time: the most that is held beyond the limit.
_PIECE_BYTES = 1 << 16
# A gzip body may be several, one behind the other; thousands of empty ones only cost time.
_MEMBERS_MAX = 1_000

_GZIP, _ZLIB, _RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


class BodyBuffer:
    """Collects a body as it arrives, up to `bytes_max`. Not thread-safe.

    `content_length` is the header, if there is one: a body that says it is too large is refused before it is read."""

    def __init__(self, bytes_max: int, content_length: str | None = None) -> None:
        self._bytes_max, self._pieces, self._size = bytes_max, list[bytes](), 0
        if content_length is not None:
            if not content_length.isascii() or not content_length.isdigit():
                raise InvalidInput(f"Content-Length: {content_length[:40]!r} is no length", hint="a whole number")
            # The figures are counted first: a number of a million figures takes long to read.
            if len(content_length) > 18 or int(content_length) > bytes_max:
                raise _too_large("request_bytes_max", bytes_max)

    def add(self, piece: bytes) -> None:
        """One more piece; `TooLarge` if it is one too many."""
        self._size += len(piece)
        if self._size > self._bytes_max:
            self._pieces.clear()
            raise _too_large("request_bytes_max", self._bytes_max)
        self._pieces.append(piece)

    def whole(self) -> bytes:
        """All of it."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _too_large(setting: str, bytes_max: int) -> TooLarge:
    return TooLarge(
        f"the body has over {format_bytes(bytes_max)}",
        hint=f"send several requests; {setting} of the server is the bound",
    )


# Content-Encoding.


def decompressed(body: bytes, encoding: str | None, decoded_bytes_max: int) -> bytes:
    """The body without its `Content-Encoding`: gzip, deflate, identity, or none."""
    coding = (encoding or "").strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType(f"Content-Encoding: {coding[:40]!r} is not read here", hint="gzip, deflate or none")
    pieces, size = [], 0
    try:
        for piece in _inflated(body, coding):
            size += len(piece)
            if size > decoded_bytes_max:
                raise _too_large("decoded_bytes_max", decoded_bytes_max)
            pieces.append(piece)
    except zlib.error as error:
        raise InvalidInput(
            f"the body is not valid {coding}: {error}", hint="compress it again, or send it as it is"
        ) from None
    return b"".join(pieces)


def _inflated(body: bytes, coding: str) -> Iterator[bytes]:
    """Pieces of bounded size, so that whoever counts can stop in time."""
    bits = _GZIP if coding != "deflate" else _ZLIB if _has_zlib_header(body) else _RAW_DEFLATE
    view, at, members = memoryview(body), 0, 0
    while at < len(body) or members == 0:
        members += 1
        if members > _MEMBERS_MAX:
            raise InvalidInput(f"the body is over {_MEMBERS_MAX} gzip bodies in a row", hint="compress it as one")
        inflater = zlib.decompressobj(bits)
        while not inflater.eof:
            # What was given and not used yet comes first; only then is more taken from the body.
            given: bytes | memoryview = inflater.unconsumed_tail
            if not given:
                given = view[at : at + _PIECE_BYTES]
                at += len(given)
            piece = inflater.decompress(given, _PIECE_BYTES)
            if not piece and not inflater.eof and not inflater.unconsumed_tail and at >= len(body):
                raise InvalidInput(f"the {coding} body ends in the middle", hint="send all of it")
            yield piece
        at -= len(inflater.unused_data)
        if bits != _GZIP and at < len(body):
            raise InvalidInput(f"{len(body) - at} bytes behind the end of the {coding} body", hint="send one body")


def _has_zlib_header(body: bytes) -> bool:
    # `deflate` is meant to have zlib's two bytes in front (RFC 9110), and some clients leave them out.
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0


# JSON.

_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_STRINGS = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
# One record: brackets are counted before anything else. In a body of many there are always too many.
_FEW_BYTES = 4_096
# What each byte does to the depth.
_STEPS = np.zeros(256, np.int32)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def check_json_depth(body: bytes, depth_max: int) -> None:
    """`TooLarge` if JSON (or lines of it) nests deeper than `depth_max`. Whether it is JSON at all is not asked."""
    if len(body) <= _FEW_BYTES and body.count(b"[") + body.count(b"{") <= depth_max:
        return
    if json_depth(body) > depth_max:
        raise TooLarge(
            f"the JSON nests deeper than {depth_max}", hint="flatten it; json_depth_max of the server is the bound"
        )


def json_depth(body: bytes) -> int:
    """How deep the brackets nest that are not in strings. In what is not JSON, at least as deep as any JSON before the
    first mistake."""
    if b"\\" in body:
        body = _ESCAPES.sub(b"", body)
    # Two quotes side by side enclose nothing, whichever strings they belong to: most strings go by this quick step.
    structure = body.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in structure:
        structure = _STRINGS.sub(b"", structure)
    if not structure:
        return 0
    return max(0, int(_STEPS[np.frombuffer(structure, np.uint8)].cumsum().max()))
