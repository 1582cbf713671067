"""`millpond file`: bytes in and out of files, through pipes."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.session import session_of
from millpond.errors import InvalidValue
from millpond.model.units import format_bytes

file = typer.Typer(name="file", rich_markup_mode=None, no_args_is_help=True)

FileName = Annotated[str, typer.Argument(metavar="NAME", help="e.g. sensors/cam1")]
# What is appended at once, all or nothing, and what is copied out at once.
CHUNK_BYTES = 1 << 22


@file.callback()
def files() -> None:
    """Put, get, follow, list and remove files: bytes by position, over a stream.

    \b
    Example:
      tar c photos | millpond file put backup/photos
    """


@file.command()
def put(
    context: typer.Context,
    name: FileName,
    source: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="stdin if none is named, or for -")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="hold the file alone meanwhile")] = False,
    new: Annotated[bool, typer.Option("--new", help="the file must not be there yet")] = False,
) -> None:
    """Append bytes from a file or a pipe, as they come. What was acknowledged stays, whatever happens to the rest.

    \b
    Examples:
      millpond file put sensors/cam1 frame.jpg
      ffmpeg -i camera -f mpegts - | millpond file put sensors/cam1 --exclusive
    """
    session = session_of(context)
    if source is not None and str(source) != "-" and not source.is_file():
        raise InvalidValue(f"{source} is not a file", hint="name a file to read, or - for stdin")
    with session.open(background=True) as pond, pond.open_file(name, "x" if new else "a", exclusive=exclusive) as out:
        count = 0
        with sys.stdin.buffer if source is None or str(source) == "-" else source.open("rb") as given:
            reading = given.read1 if isinstance(given, io.BufferedReader) else given.read
            while chunk := reading(CHUNK_BYTES):
                count += out.write(chunk)
        session.output.say(f"{format_bytes(count)} appended to {name}, which ends at {out.tell():,}")


@file.command()
def get(
    context: typer.Context,
    name: FileName,
    start: Annotated[int, typer.Option("--from", help="the first byte; below 0: counted from the end")] = 0,
    count: Annotated[int | None, typer.Option(min=0, help="at most so many bytes")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as bytes arrive, until Ctrl-C")] = False,
) -> None:
    """Write the bytes of a file to stdout.

    \b
    Examples:
      millpond file get sensors/cam1 > cam1.mpegts
      millpond file get backup/photos | tar t
      millpond file get logs/app --from -1000 --follow
    """
    session = session_of(context)
    with session.open() as pond, pond.open_file(name, follow=follow) as given:
        if start < 0:
            given.seek(max(start, -given.seek(0, io.SEEK_END)), io.SEEK_END)
        elif start:
            given.seek(start)
        left = count
        while left != 0 and (chunk := given.read1(CHUNK_BYTES if left is None else min(left, CHUNK_BYTES))):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            left = None if left is None else left - len(chunk)


@file.command("ls")
def list_files(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="only names that begin with this")] = "",
) -> None:
    """List the files, with their sizes.

    \b
    Example:
      millpond file ls sensors/
    """
    session = session_of(context)
    with session.open() as pond:
        found = []
        for name in pond.files(prefix):
            with pond.open_file(name) as each:
                found.append({"file": name, "bytes": each.seek(0, os.SEEK_END) - each.seek(0)})
        session.output.several(found, ["file", "bytes"])


@file.command("rm")
def remove(context: typer.Context, name: FileName) -> None:
    """Delete a file, whoever has it open. It is on record in `_pond/audit`.

    \b
    Example:
      millpond file rm sensors/cam1
    """
    session = session_of(context)
    with session.open() as pond:
        pond.delete_file(name)
    session.output.say(f"{name} is deleted")
