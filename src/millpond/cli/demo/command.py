"""The commands `millpond demo` and `millpond demo gridpocket`."""

from __future__ import annotations

import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.session import Session, session_of
from millpond.errors import InvalidValue
from millpond.model.units import parse_seconds

if TYPE_CHECKING:
    from millpond.cli.demo.neighbours.story import Story as NeighbourStory
    from millpond.cli.demo.story import Story

DEFAULT_DIRECTORY = Path("demo-pond")
# Says that a directory is the demonstration's own, to be replaced by the next one.
MARK = "made-by-millpond-demo"

demo = typer.Typer(name="demo", rich_markup_mode=None)


@demo.callback(invoke_without_command=True)
def whole_way(
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
      millpond demo gridpocket
    """
    if context.invoked_subcommand is not None:
        return
    from millpond.cli.demo.story import Story

    _run(session_of(context), lambda session: Story(session, rows, threads), picture)


@demo.command()
def gridpocket(
    context: typer.Context,
    meters: Annotated[int, typer.Option(min=2, help="how many meters there are in the country")] = 20_000,
    days: Annotated[int, typer.Option(min=2, help="over how many days they are compared")] = 90,
    every: Annotated[str, typer.Option(help="how often a meter is read: a multiple of 15m")] = "6h",
    meter: Annotated[int | None, typer.Option(help="whose consumption it is; otherwise one is chosen")] = None,
    radius: Annotated[float, typer.Option(min=0.1, help="how far away neighbours are, in km")] = 5.0,
    picture: Annotated[Path, typer.Option(help="where the picture goes")] = Path("demo-gridpocket.png"),
) -> None:
    """Compare a home's consumption with its neighbours', in months of readings, and show what need not be read for it.

    Spark makes the readings and loads them into a stream that is laid out by place; the comparison then is one SQL
    query over a few of its objects. Makes a pond as `millpond demo` does.

    \b
    Examples:
      millpond demo gridpocket
      millpond demo gridpocket --meters 5000 --days 14 --meter 42 --radius 10
    """
    from millpond.cli.demo.neighbours.story import Story
    from millpond.gridpocket import Readings

    step = timedelta(seconds=parse_seconds(every))
    # One more than fill the days: consumption is what the index grew by until the last midnight.
    readings = Readings(meters, period=timedelta(days=days) + step, every=step)
    _run(session_of(context), lambda session: Story(session, readings, radius * 1000, meter), picture)


def _run(session: Session, story_of: Any, picture: Path) -> None:
    """Tell a story in a pond of its own."""
    where = session.path if session.named else DEFAULT_DIRECTORY
    _make_way(where)
    story: Story | NeighbourStory = story_of(Session(str(where), session.output))
    began = time.monotonic()
    with story.session.open_here(create=True, background=True, **story.options) as pond:
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
