"""Errors on the wire: a code, a message and a hint, the same for every door.

A door puts a failure where its protocol has room for it; the other end raises the same class again. What is not one
of our errors becomes `unavailable` without its text: an internal message may hold a path or a value that is nobody's
business.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from millpond import errors
from millpond.errors import MillpondError, Unavailable

# Enough for any message of ours; a name or a value inside one may be longer than is of use.
_TEXT_MAX = 4_000


class Failure(msgspec.Struct, frozen=True):
    """What a caller is told. Unknown fields are ignored: a newer node may say more."""

    code: str
    message: str
    hint: str = ""


def _classes(base: type[MillpondError]) -> Iterator[type[MillpondError]]:
    yield base
    for sub in base.__subclasses__():
        yield from _classes(sub)


def failure_of(error: BaseException) -> Failure:
    """What a door may show of an error."""
    if isinstance(error, MillpondError):
        return Failure(error.code, error.message[:_TEXT_MAX], error.hint[:_TEXT_MAX])
    return Failure(Unavailable.code, "the node failed to answer", "its log says why")


def encode_failure(error: BaseException) -> bytes:
    """What a door may show of an error, as bytes."""
    return msgspec.json.encode(failure_of(error))


def decode_failure(data: bytes) -> MillpondError | None:
    """The error that the other end described; None if these bytes describe none."""
    try:
        failure = msgspec.json.decode(data, type=Failure)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    known = {kind.code: kind for kind in _classes(errors.MillpondError)}
    return known.get(failure.code, Unavailable)(failure.message, hint=failure.hint)
