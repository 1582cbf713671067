"""Commands about data sets: files that others wrote are indexed, and then queried by `sql` like streams."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.session import Session, session_of
from millpond.errors import InvalidValue
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.archive.dataset.report import DatasetStatus, RefreshReport

dataset = typer.Typer(name="dataset", rich_markup_mode=None, no_args_is_help=True)

DatasetName = Annotated[str, typer.Argument(metavar="NAME", help="the name of a data set, or its path")]
Memory = Annotated[str, typer.Option(help="how much memory Spark's JVM may take")]


def index(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="a directory, a file, a pattern or a URL")],
    form: Annotated[str, typer.Option("--format", help="csv, json, parquet, orc or text")],
    index: Annotated[
        list[str] | None, typer.Option(help='an index: "minmax:temp", "values:city", "bloom:vid,rate=0.01"')
    ] = None,
    name: Annotated[str | None, typer.Option(help="by default the last part of the path")] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="an option of Spark's reader, e.g. header=true")
    ] = None,
    schema: Annotated[str | None, typer.Option(help='e.g. "vid string, temp double"; inferred otherwise')] = None,
    memory: Memory = "2g",
) -> None:
    """Index files that others wrote, so that queries read only those that can matter. The files stay as they are.

    \b
    Examples:
      millpond index /data/weather --format csv --option header=true --index minmax:temp --index values:city
      millpond index "/data/2017/*.parquet" --format parquet --index boxes:lat,lon --name weather
    """
    session = session_of(context)
    with session.open() as pond, _spark(session, memory) as spark:
        with session.output.progress("indexing", unit="files") as bar:
            made = pond.index(
                path,
                format=form,
                indexes=index or (),
                name=name,
                options=_options(option or []),
                schema=schema,
                spark=spark,
                progress=bar.at,
            )
        _show(session, made.status())


def datasets(context: typer.Context) -> None:
    """List data sets: where their files are, what is indexed, and what was there at the last refresh.

    \b
    Examples:
      millpond datasets
      millpond datasets --json | jq '{name, files, bytes}'
    """
    session = session_of(context)
    with session.open() as pond:
        found = [each.status() for each in pond.datasets()]
    if session.output.json:
        session.output.several([asdict(each) for each in found], [])
        return
    session.output.several([_shown(each) for each in found], ["name", "format", "files", "bytes", "indexes", "path"])
    if not found:
        session.output.say("no data sets yet; millpond index PATH --format FORMAT makes one")


@dataset.callback()
def looking_after() -> None:
    """Look after data sets: bring them up to date, look at them, drop them.

    \b
    Example:
      millpond dataset refresh weather
    """


@dataset.command()
def refresh(context: typer.Context, name: DatasetName, memory: Memory = "2g") -> None:
    """Find files that are new, have changed or are gone, and index them.

    Queries are right without it: they read what is not indexed.

    \b
    Example:
      millpond dataset refresh weather
    """
    session = session_of(context)
    with session.open() as pond:
        found = pond.dataset(name)
        with _spark(session, memory) as spark, session.output.progress("indexing", unit="files") as bar:
            report: RefreshReport = found.refresh(spark, progress=bar.at)
    session.output.one(asdict(report), text=str(report))


@dataset.command()
def drop(context: typer.Context, name: DatasetName) -> None:
    """Forget a data set, with all that is known of its files. The files themselves are not touched.

    \b
    Example:
      millpond dataset drop weather
    """
    session = session_of(context)
    with session.open() as pond:
        dropped = pond.dataset(name).name
        pond.drop_dataset(dropped)
    session.output.say(f"dropped data set {dropped}; its files are where they were")


@dataset.command("status")
def status_of(context: typer.Context, name: DatasetName) -> None:
    """Show a data set as of its last refresh.

    \b
    Example:
      millpond dataset status weather --json
    """
    session = session_of(context)
    with session.open() as pond:
        _show(session, pond.dataset(name).status())


def _show(session: Session, status: DatasetStatus) -> None:
    for warning in status.warnings:
        session.output.warn(warning)
    rows = "rows not counted" if status.rows is None else f"{status.rows:,} rows"
    text = (
        f"{status.name}: {status.files} {status.format} files ({format_bytes(status.bytes)}, {rows}) in {status.path}\n"
        f"indexes: {', '.join(status.indexes) or 'none'}\n"
        f"partitions: {', '.join(status.partitions) or 'none'}"
    )
    session.output.one(asdict(status), text=text)


def _shown(status: DatasetStatus) -> dict[str, Any]:
    return {**asdict(status), "indexes": ", ".join(status.indexes), "bytes": format_bytes(status.bytes)}


def _options(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidValue(f"--option {text!r} is no name=value", hint="e.g. --option header=true")
        found[name] = value
    return found


@contextmanager
def _spark(session: Session, memory: str) -> Iterator[Any]:
    session.output.detail("starting Spark")
    with tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True) as scratch:
        from millpond.spark import session as sessions

        spark = sessions.local_session(Path(scratch), memory=memory)
        try:
            yield spark
        finally:
            spark.stop()
