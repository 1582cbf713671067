"""The command that asks Spark: every stream a view, one query, its answer on stdout and its cost on stderr."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.reading import Form, Limit, checked_form
from millpond.cli.session import session_of
from millpond.errors import InvalidInput
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.spark import QueryFigures


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="a query in Spark SQL")],
    limit: Limit = None,
    form: Form = None,
    memory: Annotated[str, typer.Option(help="how much memory Spark's JVM may take")] = "2g",
) -> None:
    """Run a query in a local Spark, over live and settled records as one.

    Streams and data sets are views: grid/meters is grid_meters.

    \b
    Examples:
      millpond sql "SELECT city, avg(temp) FROM grid_meters GROUP BY city"
      millpond sql "SELECT * FROM grid_meters WHERE temp > 30" --format csv > hot.csv
      millpond sql "SHOW VIEWS"
    """
    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with (
        session.open() as pond,
        tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True) as scratch,
    ):
        session.output.detail("starting Spark")
        from millpond import spark as ours
        from millpond.spark.session import local_session
        from millpond.spark.session import query as ask

        spark = local_session(Path(scratch), memory=memory)
        try:
            views = pond.attach(spark)
            found = ask(spark, query, limit)
            session.output.records(found.to_batches(), found.schema, chosen)
            try:
                session.output.say(spared(ours.last_query(spark)))
            except InvalidInput:
                session.output.detail("no stream was read")
            views.detach()
        finally:
            spark.stop()


def spared(figures: QueryFigures) -> str:
    """What a query read and what it was spared, for people."""
    skipped = figures.objects_total - figures.objects_read
    why = ", ".join(f"{count} by {column}" for column, count in figures.skipped_by.items())
    return (
        f"read {figures.objects_read} of {figures.objects_total} objects "
        f"({format_bytes(figures.bytes_read)} of {format_bytes(figures.bytes_total)}) "
        f"and {figures.rows_live:,} live records; skipped {skipped} objects{f' ({why})' if why else ''}"
    )
