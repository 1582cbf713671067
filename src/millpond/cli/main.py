"""`millpond`: the app, its options, and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.consume import consume, replay
from millpond.cli.datasets import dataset, datasets, index
from millpond.cli.demo.command import demo
from millpond.cli.doctor.command import doctor
from millpond.cli.explain import explain
from millpond.cli.files import file
from millpond.cli.generate.command import generate
from millpond.cli.groups import group, groups
from millpond.cli.keeping import reindex, settle, status, vacuum, verify
from millpond.cli.layouts import queries, relayout
from millpond.cli.output import Output
from millpond.cli.put import put
from millpond.cli.reading import cat, get, scan, segments
from millpond.cli.run import run
from millpond.cli.serve import serve
from millpond.cli.session import Access, Session
from millpond.cli.shell import Shell, configure_logging
from millpond.cli.sql import sql
from millpond.cli.streams import alter, create, describe, drop, init, streams, truncate
from millpond.cli.token import token
from millpond.errors import InvalidValue

# Help is plain text: the boxes of rich cost as much to import as everything else together.
app = typer.Typer(cls=Shell, name="millpond", rich_markup_mode=None, pretty_exceptions_enable=False)

for command in (
    init,
    create,
    streams,
    describe,
    alter,
    drop,
    truncate,
    put,
    cat,
    get,
    scan,
    segments,
    queries,
    sql,
    explain,
    index,
    datasets,
    run,
    consume,
    groups,
    replay,
    serve,
    settle,
    relayout,
    vacuum,
    reindex,
    status,
    verify,
    doctor,
):
    app.command()(command)
app.add_typer(dataset)
app.add_typer(file)
app.add_typer(group)
app.add_typer(generate)
app.add_typer(demo)
app.add_typer(token)


def _version(wanted: bool) -> None:
    if wanted:
        from millpond import __version__

        Output().line(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    pond: Annotated[
        str,
        typer.Option(
            envvar="MILLPOND_POND",
            show_envvar=True,
            metavar="DIR|URL",
            help="the pond's directory, or where it is served, e.g. http://127.0.0.1:7070",
        ),
    ] = "pond",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MILLPOND_TOKEN",
            show_envvar=True,
            show_default=False,
            help="for a URL: the token to show. Other users see it in the list of processes: better by environment",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="for a URL: the file that holds the token")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="for https: who signed the server's certificate")
    ] = None,
    client_certificate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="for mutual TLS: our certificate")
    ] = None,
    client_key: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="for mutual TLS: our private key")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="data as JSON: an object, or one a line")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no talk on stderr but warnings and errors")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="more talk on stderr")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Streams that are acknowledged when safe, readable at once, and settled once into open tables for Spark SQL.

    Data goes to stdout, talk to stderr. The options below may also stand behind the command.

    \b
    Example:
      millpond init
      millpond create grid/meters --schema "vid string, temp double" --key vid
      echo '{"vid": "m-1", "temp": 21.5}' | millpond put grid/meters
      millpond get grid/meters m-1
    """
    output = Output(json=json, quiet=quiet, verbose=verbose)
    configure_logging(output)
    access = Access(_token(context, token, token_file), ca, client_certificate, client_key)
    context.obj = Session(pond, output, named=_on_the_line(context, "pond"), access=access)


def _on_the_line(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _token(context: typer.Context, token: str | None, file: Path | None) -> str | None:
    """The token; what is on the line goes before the environment."""
    if file is None:
        return token and token.strip()  # a variable that was set from a file may end in a line's end
    if _on_the_line(context, "token"):
        raise InvalidValue("both --token and --token-file are given", hint="give one of the two")
    found = file.read_text().strip()
    if not found:
        raise InvalidValue(f"{file} holds no token", hint="millpond token create shows one")
    return found
