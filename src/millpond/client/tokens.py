"""The tokens of a served pond, for who has the right to administer everything."""

from __future__ import annotations

from millpond.client.connection import Connection
from millpond.wire.answers import NewToken, TokenInfo
from millpond.wire.requests import CreateToken, ListTokens, RevokeToken


class RemoteTokens:
    """Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, request: CreateToken) -> NewToken:
        """A new token with its secret, which is told this once."""
        made: NewToken = self._connection.ask(request, NewToken)
        return made

    def tokens(self) -> list[TokenInfo]:
        """All of them, without their secrets."""
        found: list[TokenInfo] = self._connection.ask(ListTokens(), list[TokenInfo])
        return found

    def revoke(self, token: str) -> TokenInfo:
        """Let nobody in any more who shows it. `token` is its id or its name."""
        gone: TokenInfo = self._connection.ask(RevokeToken(token), TokenInfo)
        return gone
