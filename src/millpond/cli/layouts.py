"""Commands about what queries ask and how the archive is laid out for them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.reading import Form, checked_form
from millpond.cli.session import Session, session_of
from millpond.cli.streams import StreamName
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.archive.analysis import Analysis
    from millpond.archive.relayout import RelayoutReport


def queries(
    context: typer.Context,
    name: StreamName,
    limit: Annotated[int, typer.Option(min=0, help="only the newest so many")] = 100,
    form: Form = None,
) -> None:
    """Print what was asked of a stream, newest last: the predicate, and what it had to read of the archive.

    Predicates hold the literals that were asked with. The setting query_history_max=0 turns the record off.

    \b
    Examples:
      millpond queries grid/meters
      millpond queries grid/meters --limit 1000 --json | jq .predicate
    """
    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with session.open() as pond:
        found = pond.queries(name)
    newest = found.slice(max(0, found.num_rows - limit))
    session.output.records(newest.to_batches(), newest.schema, chosen)
    if not found.num_rows:
        session.output.say(f"no query of {name} is on record")


def relayout(
    context: typer.Context,
    name: StreamName,
    plan: Annotated[
        bool, typer.Option("--plan", help="only learn from the queries on record, and rewrite nothing")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="with --plan: do not let the new model count")] = False,
    period: Annotated[str, typer.Option(metavar="AGE", help="with --plan: which records it learns from")] = "7d",
    better_by: Annotated[
        float, typer.Option(min=0, max=0.99, help="with --plan: a new model counts if it reads less by this share")
    ] = 0.1,
    object_bytes_min: Annotated[
        str | None, typer.Option(metavar="SIZE", help="how small objects may become; 0B: one for every bucket")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="without Spark: by the process that has the pond open")] = False,
    memory: Annotated[str, typer.Option(help="how much memory Spark's JVM may take")] = "2g",
) -> None:
    """Rewrite a stream's settled objects so that they lie as the newest model of its layout says, with Spark.

    The same rows are there before and after, which each commit proves; queries under way are not disturbed. Killed at
    any moment, what was committed stays, and the next run does the rest. The files that were replaced go by `vacuum`.

    With --plan, a new model is made from the last records and the queries on record, and counts from then on if those
    queries would read notably less.

    \b
    Examples:
      millpond relayout grid/meters --plan
      millpond relayout grid/meters
      millpond relayout grid/meters --here --json | jq .objects_after
    """
    session = session_of(context)
    with session.open() as pond, _spark(session, None if here else memory) as spark:
        stream = pond.stream(name)
        if plan:
            found = stream.analyse(spark, period=period, better_by=better_by, swap=not preview)
            session.output.one({**asdict(found), "ratio": found.ratio}, text=_said(found))
            return
        with session.output.progress("rewriting", unit="bytes") as bar:
            report = stream.relayout(
                spark, object_bytes_min=object_bytes_min, progress=lambda done, total: bar.at(done, total)
            )
        session.output.one(asdict(report), text=_done(report))


@contextlib.contextmanager
def _spark(session: Session, memory: str | None) -> Iterator[Any]:
    """A local Spark; none if it is not wanted."""
    if memory is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True) as scratch:
        session.output.detail("starting Spark")
        from millpond.spark.session import local_session

        spark = local_session(Path(scratch), memory=memory)
        try:
            yield spark
        finally:
            spark.stop()


def _said(found: Analysis) -> str:
    lines = [
        f"{found.stream}: {found.layout}, {found.queries:,} queries on record, {found.rows_sampled:,} rows of "
        f"{format_bytes(found.bytes_sampled)} sampled",
    ]
    if found.ratio is not None:
        lines.append(
            f"  they read {format_bytes(found.bytes_current)} now and {format_bytes(found.bytes_new)} under a new "
            f"model: {found.ratio:.0%}"
        )
    counts = "counts from now on" if found.swapped else "does not count"
    return "\n".join([*lines, f"  the new model {found.model_new} {counts}"])


def _done(report: RelayoutReport) -> str:
    if not report.units:
        return f"{report.stream}: everything lies as the model says"
    return (
        f"{report.stream}: {report.rows:,} records of {report.units:,} time partitions rewritten, "
        f"{report.objects_before:,} objects ({format_bytes(report.bytes_before)}) became {report.objects_after:,} "
        f"({format_bytes(report.bytes_after)})"
    )
