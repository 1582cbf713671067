"""`millpond`: the app, its options, and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.demo.command import demo
from millpond.cli.doctor.command import doctor
from millpond.cli.generate.command import generate
from millpond.cli.keeping import settle, status, verify
from millpond.cli.output import Output
from millpond.cli.put import put
from millpond.cli.reading import cat, get, scan, segments
from millpond.cli.serve import serve
from millpond.cli.session import Session
from millpond.cli.shell import Shell, configure_logging
from millpond.cli.sql import sql
from millpond.cli.streams import alter, create, describe, drop, init, streams
from millpond.cli.token import token

# Help is plain text: the boxes of rich cost as much to import as everything else together.
app = typer.Typer(cls=Shell, name="millpond", rich_markup_mode=None, pretty_exceptions_enable=False)

for command in (
    init,
    create,
    streams,
    describe,
    alter,
    drop,
    put,
    cat,
    get,
    scan,
    segments,
    sql,
    serve,
    settle,
    status,
    verify,
    doctor,
    demo,
):
    app.command()(command)
app.add_typer(generate)
app.add_typer(token)


def _version(wanted: bool) -> None:
    if wanted:
        from millpond import __version__

        Output().line(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    pond: Annotated[Path, typer.Option(envvar="MILLPOND_POND", show_envvar=True, help="the pond's directory")] = Path(
        "pond"
    ),
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
    source = context.get_parameter_source("pond")
    context.obj = Session(pond, output, named=source is not None and source.name == "COMMANDLINE")
