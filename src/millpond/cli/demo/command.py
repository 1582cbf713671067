"""The command `millpond demo`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.session import Session, session_of
from millpond.errors import InvalidValue

DEFAULT_DIRECTORY = Path("demo-pond")
# Says that a directory is the demonstration's own, to be replaced by the next one.
MARK = "made-by-millpond-demo"


def demo(
    context: typer.Context,
    rows: Annotated[
        int, typer.Option(min=10_000, help="how many readings before Spark is asked; more follow meanwhile")
    ] = 3_000_000,
    picture: Annotated[Path, typer.Option(help="where the picture goes")] = Path("demo.png"),
    threads: Annotated[int, typer.Option(min=1, max=64, help="how many append at once")] = 3,
) -> None:
    """Show the whole way of a record, from append to Spark SQL.

    Appends meter readings from several threads while they settle and are read, asks Spark about live and settled ones
    together while appending goes on, verifies everything and draws a picture. Makes a pond in ./demo-pond, or in
    --pond DIR, which must be empty or left by an earlier demo.

    \b
    Examples:
      millpond demo
      millpond demo --rows 200000 --picture small.png
    """
    from millpond.cli.demo.story import Story

    session = session_of(context)
    where = session.path if session.named else DEFAULT_DIRECTORY
    _make_way(where)
    story = Story(Session(str(where), session.output), rows, threads)
    began = time.monotonic()
    with story.session.open_here(create=True, background=True) as pond:
        (where / MARK).touch()
        story.tell(pond, picture)
    story.numbers["seconds"] = round(time.monotonic() - began, 1)
    session.output.say(f"All in {story.numbers['seconds']} s. The pond stays: millpond --pond {where} status")
    drawn = story.numbers.get("picture")
    if drawn or session.output.json:
        session.output.one(story.numbers, text=f"picture: {drawn}")


def _make_way(where: Path) -> None:
    """Remove what an earlier demonstration left; refuse to touch anything else."""
    if not where.exists() or not any(where.iterdir()):
        return
    if not (where / MARK).exists():
        raise InvalidValue(f"{where} is not empty and not a demo's pond", hint="name another directory with --pond")
    from millpond.pond.opening import open_pond

    open_pond(where, background=False).close()  # refused if another process has it
    shutil.rmtree(where)
