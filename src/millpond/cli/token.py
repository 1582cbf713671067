"""`millpond token`: who may do what at a server. Works beside a running server: tokens have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from millpond.cli.session import Session, session_of
from millpond.errors import InvalidValue

if TYPE_CHECKING:
    from millpond.wire.answers import NewToken, TokenInfo
    from millpond.wire.requests import CreateToken

token = typer.Typer(name="token", rich_markup_mode=None, no_args_is_help=True)


class Tokens(Protocol):
    """The tokens of a pond, wherever it is."""

    def create(self, request: CreateToken) -> NewToken: ...

    def tokens(self) -> list[TokenInfo]: ...

    def revoke(self, token: str) -> TokenInfo: ...


@contextmanager
def tokens_of(session: Session) -> Iterator[Tokens]:
    """The tokens of the session's pond. Of a directory they are read and written without opening the pond."""
    from millpond.pond.tokens import TokenGate

    if session.served:
        with session.connect() as pond:
            yield pond.tokens
        return
    if not (session.path / "pond.json").is_file():
        raise InvalidValue(f"{session.path} is not a pond", hint=f"make one with: millpond init {session.path}")
    yield TokenGate(str(session.path))


@token.callback()
def tokens() -> None:
    """Make, list and revoke the tokens that callers of a server show.

    As soon as there is a token, a server asks for one, also one that is running already.

    \b
    Example:
      millpond token create meters --right write --prefix grid
    """


@token.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="what to call it, e.g. who will have it")],
    right: Annotated[list[str], typer.Option(help="read, write or admin; may be repeated; none implies another")],
    prefix: Annotated[
        list[str] | None, typer.Option(help="the streams that it is for: a name or its first parts; all if left out")
    ] = None,
) -> None:
    """Make a token. It goes to stdout, this once: nobody can show it again.

    \b
    Examples:
      millpond token create meters --right write --prefix grid
      millpond token create operator --right read --right write --right admin
      export MILLPOND_TOKEN=$(millpond token create me --right read --quiet)
    """
    from millpond.wire.requests import CreateToken

    session = session_of(context)
    with tokens_of(session) as found:
        first = not found.tokens()
        made = found.create(CreateToken(name, tuple(right), tuple(prefix or ("",))))
    session.output.one({"token": made.token, **_shown(made.info)}, text=made.token)
    session.output.say(f"made {name}: {_rights(made.info)}. Keep it safe: it is not shown again")
    if first:
        session.output.say("from now on a server of this pond asks for tokens (unless it is told --tokens off)")


@token.command("list")
def list_(context: typer.Context) -> None:
    """List the tokens, without their secrets.

    \b
    Example:
      millpond token list
    """
    session = session_of(context)
    with tokens_of(session) as found:
        listed = found.tokens()
    session.output.several([_shown(each) for each in listed], ["id", "name", "rights", "prefixes", "created"])
    if not listed:
        session.output.say("no tokens; millpond token create makes one")


@token.command()
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="which, by its name or its id")],
) -> None:
    """Take a token back. Servers refuse it within a second.

    \b
    Example:
      millpond token revoke meters
    """
    session = session_of(context)
    with tokens_of(session) as found:
        gone = found.revoke(name)
        left = found.tokens()
    if session.output.json:
        session.output.one({"revoked": gone.id, "name": gone.name, "left": len(left)})
    session.output.say(f"revoked {gone.name} ({gone.id}); {len(left)} left")
    if not left:
        session.output.say(
            "servers of this pond now let nobody in: make a token with millpond token create; or, to let everybody in "
            "who reaches it, stop the server and remove tokens.json from the pond, or start it with --tokens off"
        )


def _shown(info: TokenInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "name": info.name,
        "rights": list(info.rights),
        "prefixes": list(info.prefixes),
        "created": info.created,
    }


def _rights(info: TokenInfo) -> str:
    where = ", ".join(prefix or "everything" for prefix in info.prefixes)
    return f"{', '.join(info.rights)} on {where}"
