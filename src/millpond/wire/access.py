"""Who may do what: rights on prefixes of stream names, and the one check that stands before every operation.

A right is `read`, `write` or `admin`; none implies another. A prefix is "" (everything, and the pond as a whole) or the
first parts of a name: "grid" covers `grid/meters` and `grid` itself, never `gridlock`. What no grant covers is denied.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from millpond.errors import Forbidden, InvalidValue
from millpond.model.names import check_name

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)

# 256 bits: not to be guessed.
_SECRET_BYTES = 32


def new_secret() -> str:
    """What the holder of a token shows."""
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on every stream under a prefix."""

    prefix: str
    rights: frozenset[Right]

    def covers(self, stream: str) -> bool:
        """Whether it is about this stream; "" stands for the pond as a whole."""
        return not self.prefix or stream == self.prefix or stream.startswith(self.prefix + "/")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever called, as the tokens know it. `id` is safe to log: it is no secret."""

    id: str
    name: str
    grants: tuple[Grant, ...]

    def may(self, right: Right, stream: str = "") -> bool:
        """Whether a grant gives this right on a stream; "": on the pond as a whole."""
        for grant in self.grants:  # noqa: SIM110 - asked with every request, and a loop is quicker than a generator
            if right in grant.rights and (not grant.prefix or grant.covers(stream)):
                return True
        return False


EVERYTHING = Grant("", frozenset(RIGHTS))
# Where no tokens are asked for, which is on loopback only unless the operator insists.
ANYONE = Caller("anyone", "anyone", (EVERYTHING,))


def check(caller: Caller, right: Right, stream: str = "") -> None:
    """`Forbidden` unless the caller has this right on the stream, or on the pond as a whole."""
    if not caller.may(right, stream):
        what = f"stream {stream!r}" if stream else "the pond as a whole"
        raise Forbidden(
            f"token {caller.name!r} has no right to {right} {what}",
            hint=f"millpond token create --right {right}{f' --prefix {stream}' if stream else ''} makes one that has",
        )


def check_prefix(prefix: str) -> str:
    """`prefix` without slashes at its ends, if it can be the beginning of a name."""
    found = prefix.strip("/")
    return check_name(found) if found else ""


def check_rights(rights: Iterable[str]) -> frozenset[Right]:
    """These rights, if they are some."""
    wanted = set(rights)
    known = frozenset(right for right in RIGHTS if right in wanted)
    if len(known) != len(wanted) or not known:
        raise InvalidValue(f"no such rights: {', '.join(sorted(wanted)) or 'none'}", hint="some of read, write, admin")
    return known
