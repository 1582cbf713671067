"""Who is let in: the protocol that a desk asks, and the gate of a door that is opened for one holder of a secret."""

from __future__ import annotations

import hmac
from typing import Protocol

from millpond.errors import InvalidValue, Unauthenticated
from millpond.wire.access import ANYONE, Caller, Grant
from millpond.wire.answers import NewToken, TokenInfo
from millpond.wire.requests import CreateToken


class Gate(Protocol):
    """Thread-safe."""

    def authenticate(self, token: str | None) -> Caller:
        """Who shows this token (None: none was shown). `Unauthenticated` if that is not enough. Constant time in what
        it compares, and quick: it is asked with every request."""
        ...

    def check_still(self, caller: Caller) -> None:
        """`Unauthenticated` if a caller that was let in would not be any more. Quick: asked with every request."""
        ...

    def create(self, request: CreateToken) -> NewToken: ...

    def tokens(self) -> list[TokenInfo]: ...

    def revoke(self, token: str) -> TokenInfo: ...


class _NoTokens:
    def check_still(self, caller: Caller) -> None:
        """Whoever was let in stays."""

    def create(self, request: CreateToken) -> NewToken:
        raise _none_here()

    def tokens(self) -> list[TokenInfo]:
        raise _none_here()

    def revoke(self, token: str) -> TokenInfo:
        raise _none_here()


class OpenGate(_NoTokens):
    """Everybody may do everything: for an embedded pond, where there is nobody else."""

    def authenticate(self, token: str | None) -> Caller:
        return ANYONE


class SecretGate(_NoTokens):
    """One secret, and what its holder may do."""

    def __init__(self, secret: str, *grants: Grant) -> None:
        self._secret = secret.encode()
        self._caller = Caller("holder", "holder", grants)

    def authenticate(self, token: str | None) -> Caller:
        if not hmac.compare_digest((token or "").encode(), self._secret):
            raise Unauthenticated(
                "the token is missing or wrong", hint="take the token from the pond that opened the door"
            )
        return self._caller


def _none_here() -> InvalidValue:
    return InvalidValue("this door has no tokens to look after", hint="millpond token create makes one for a server")
