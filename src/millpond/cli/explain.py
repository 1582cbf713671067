"""The command that says what a query costs: it is run, its rows are not shown, and what was read and spared is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.reading import names
from millpond.cli.session import session_of
from millpond.errors import InvalidInput
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    from millpond.spark import QueryFigures
    from millpond.spark.report import SettledScan


def explain(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="a query in Spark SQL")],
    accuracy: Annotated[
        bool, typer.Option(help="how much of what was read was asked for; reads the objects once more")
    ] = True,
    picture: Annotated[
        Path | None, typer.Option(help="draw the objects and the query here, as PNG or SVG", dir_okay=False)
    ] = None,
    axes: Annotated[str | None, typer.Option(help="the columns across and up, e.g. lon,lat; the layout's else")] = None,
    memory: Annotated[str, typer.Option(help="how much memory Spark's JVM may take")] = "2g",
) -> None:
    """Run a query in a local Spark and say what it read and what it was spared.

    \b
    Examples:
      millpond explain "SELECT avg(temp) FROM grid_meters WHERE lat BETWEEN 43.6 AND 43.7 AND lon BETWEEN 7.2 AND 7.3"
      millpond explain "SELECT * FROM grid_meters WHERE city = 'Nice'" --json
      millpond explain "SELECT * FROM grid_meters WHERE st_near(lat, lon, 43.7, 7.26, 5000)" --picture nice.png
    """
    session = session_of(context)
    if picture is not None:
        from millpond.cli.map_picture import check_picture

        check_picture(picture)
    with (
        session.open() as pond,
        tempfile.TemporaryDirectory(prefix="millpond-spark-", ignore_cleanup_errors=True) as scratch,
    ):
        session.output.detail("starting Spark")
        from millpond import spark as ours
        from millpond.spark.session import local_session, run

        spark = local_session(Path(scratch), memory=memory)
        try:
            views = pond.attach(spark)
            run(spark, query)
            figures = ours.last_query(spark)
            session.output.one(cost(figures, accuracy=accuracy), text=told(figures, accuracy=accuracy))
            if picture is not None:
                scan = _drawn(figures)
                _draw(pond.stream(scan.stream).definition, scan, names(axes), picture, query)
                session.output.say(f"picture: {picture}")
            views.detach()
        finally:
            spark.stop()


def cost(figures: QueryFigures, *, accuracy: bool) -> dict[str, Any]:
    """What a query read and what it was spared, for programs."""
    return {
        "objects_read": figures.objects_read,
        "objects_total": figures.objects_total,
        "bytes_read": figures.bytes_read,
        "bytes_total": figures.bytes_total,
        "rows_live": figures.rows_live,
        "requests": figures.requests,
        "accuracy": figures.accuracy if accuracy else None,
        "deciding_seconds": figures.deciding_seconds,
        "skipped_by": figures.skipped_by,
        "undecided": figures.undecided,
    }


def told(figures: QueryFigures, *, accuracy: bool) -> str:
    """The same for people, a line for each figure."""
    times = f", {figures.bytes_total / figures.bytes_read:.1f} times fewer" if figures.bytes_read else ""
    lines = [
        ("objects", f"{figures.objects_read:,} of {figures.objects_total:,} read"),
        ("bytes", f"{format_bytes(figures.bytes_read)} of {format_bytes(figures.bytes_total)} read{times}"),
        ("live", f"{figures.rows_live:,} records looked at"),
        ("requests", f"{figures.requests:,}"),
    ]
    if accuracy:
        lines.append(("accuracy", f"{figures.accuracy:.1%} of the bytes read were asked for"))
    lines.append(("deciding", f"{figures.deciding_seconds * 1e3:.1f} ms"))
    ruled_out = sorted(figures.skipped_by.items(), key=lambda each: -each[1])
    lines += [("ruled out", f"{count:,} objects by {index}") for index, count in ruled_out]
    if figures.undecided:
        lines.append(("undecided", f"{figures.undecided} scans read everything, because deciding failed: see the log"))
    return "\n".join(f"{name:<10} {text}" for name, text in lines)


def _drawn(figures: QueryFigures) -> SettledScan:
    """The scan that a picture shows: that of the most bytes."""
    if not figures.settled:
        raise InvalidInput("the query read no settled objects: there is nothing to draw", hint="settle the stream")
    return max(figures.settled.values(), key=lambda scan: scan.snapshot.objects.bytes_total)


def _draw(definition: Any, scan: SettledScan, axes: list[str] | None, path: Path, title: str) -> None:
    from millpond.cli.map_picture import draw_map
    from millpond.query.object_map import map_columns, object_map

    x, y = map_columns(definition, axes)
    drawn = object_map(scan.snapshot.objects, scan.keep, scan.predicate, scan.snapshot.schema, x, y)
    draw_map(drawn, definition.schema, path, title)
