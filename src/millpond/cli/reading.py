"""Commands that read records without Spark: cat, get, scan, segments. They change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.session import session_of
from millpond.cli.streams import StreamName
from millpond.errors import InvalidValue
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.query import QueryReport

FORMS = ("ndjson", "csv", "arrow", "table")

Form = Annotated[
    str | None,
    typer.Option("--format", help="ndjson, csv, arrow or table; a terminal gets a table, a pipe gets ndjson"),
]
Columns = Annotated[
    str | None, typer.Option(help="which columns, e.g. vid,temp; _streamlet, _offset, _ingest_time too")
]
Limit = Annotated[int | None, typer.Option(min=0, help="at most so many records")]


def cat(
    context: typer.Context,
    name: StreamName,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, a time of ingestion, an offset, or 0:OFFSET,1:OFFSET,…")
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as records arrive, until Ctrl-C")] = False,
    limit: Limit = None,
    columns: Columns = None,
    where: Annotated[str | None, typer.Option(help="only records for which this SQL condition is true")] = None,
    merge_within: Annotated[
        str | None,
        typer.Option(help="all streamlets in the order of time; each record waits so long for those before it: 5s"),
    ] = None,
    form: Form = None,
) -> None:
    """Print a stream's records in order, settled and live, with _streamlet, _offset and _ingest_time.

    \b
    Examples:
      millpond cat grid/meters --limit 10
      millpond cat grid/meters --from 2026-01-31T12:00:00Z --format csv > readings.csv
      millpond cat grid/meters --from 0:1000,1:2000 --columns vid,temp --format arrow > some.arrow
    """
    from millpond.query import parse_start

    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    if follow and chosen == "table":
        chosen = "ndjson"  # a table needs its end to know its widths
    with session.open() as pond:
        reader = pond.stream(name).read(
            parse_start(start), follow=follow, columns=names(columns), where=where, merge_within=merge_within
        )
        with reader:
            session.output.records(limited(reader, limit), reader.schema, chosen)


def get(
    context: typer.Context,
    name: StreamName,
    key: Annotated[str, typer.Argument(help="the value of the key")],
    by: Annotated[str | None, typer.Option(help="a secondary key's column; otherwise the primary key")] = None,
    limit: Annotated[int, typer.Option(help="at most so many records")] = 10,
    form: Form = None,
) -> None:
    """Print the newest records of a key, newest first, from both halves.

    \b
    Examples:
      millpond get grid/meters m-17
      millpond get grid/meters Nice --by city --limit 100
    """
    from millpond.query import parse_value

    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with session.open() as pond:
        stream = pond.stream(name)
        keys = stream.definition.keys
        column = by if by is not None else keys[0] if keys else ""
        # What is no key is refused by the lookup itself, which knows what to do instead.
        value = parse_value(key, stream.schema, column) if column in keys else key
        found = stream.get(value, limit=limit) if by is None else stream.get(limit=limit, **{by: value})
        session.output.records(found.to_batches(), found.schema, chosen)
        if not found.num_rows:
            session.output.say(f"no record with {column} = {key}")


def scan(
    context: typer.Context,
    name: StreamName,
    where: Annotated[str | None, typer.Option(help="a SQL condition; all records otherwise")] = None,
    columns: Columns = None,
    limit: Limit = None,
    form: Form = None,
    explain: Annotated[bool, typer.Option("--explain", help="say what would be read and skipped, and stop")] = False,
    count: Annotated[bool, typer.Option("--count", help="print only how many records match")] = False,
) -> None:
    """Print the records that match, live and settled, without starting Spark. Their order is not promised.

    \b
    Examples:
      millpond scan grid/meters --where "temp > 30 AND city = 'Nice'" --columns vid,temp --limit 20
      millpond scan grid/meters --where "date >= TIMESTAMP '2026-01-31 00:00:00'" --explain
    """
    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with session.open() as pond:
        stream = pond.stream(name)
        report = stream.explain(where)
        if explain:
            session.output.one(asdict(report), text=explained(report))
        elif count:
            found = stream.count(where)
            session.output.one({"count": found}, text=str(found))
        else:
            session.output.detail(explained(report))
            batches = stream.scan_batches(where, columns=names(columns), limit=limit)
            schema = stream.scan(where, columns=names(columns), limit=0).schema
            session.output.records(batches, schema, chosen)


def segments(
    context: typer.Context,
    name: StreamName,
    read: Annotated[str | None, typer.Option(metavar="ID", help="print the records of this segment instead")] = None,
    form: Form = None,
) -> None:
    """List a stream's segments, settled and live, or print the records of one.

    \b
    Examples:
      millpond segments grid/meters
      millpond segments grid/meters --json | jq -r 'select(.state == "settled") | .id'
    """
    session = session_of(context)
    chosen = checked_form(form) or session.output.default_form()
    with session.open() as pond:
        stream = pond.stream(name)
        if read is not None:
            batches = stream.read_segment(read)
            with stream.read(start="latest") as reader:
                schema = reader.schema
            session.output.records(batches, schema, chosen)
            return
        listed = [
            {**asdict(segment), "offsets": None if segment.offsets is None else str(segment.offsets)}
            if not session.output.json
            else asdict(segment)
            for segment in stream.segments()
        ]
    session.output.several(listed, ["state", "streamlet", "offsets", "rows", "bytes", "id"])


def checked_form(form: str | None) -> str | None:
    """`form` if it is one."""
    if form is not None and form not in FORMS:
        raise InvalidValue(f"no format {form!r}", hint=f"one of {', '.join(FORMS)}")
    return form


def names(text: str | None) -> list[str] | None:
    """The columns of "vid,temp"."""
    return None if text is None else [name.strip() for name in text.split(",")]


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """At most so many records of them."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches if limit else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def explained(report: QueryReport) -> str:
    """What a query reads and skips, for people."""
    skipped = report.objects_total - report.objects_read
    why = ", ".join(f"{count} by {column}" for column, count in report.skipped_by.items())
    return (
        f"reads {report.objects_read} of {report.objects_total} objects "
        f"({format_bytes(report.bytes_read)} of {format_bytes(report.bytes_total)}), "
        f"skips {skipped}{f' ({why})' if why else ''}; "
        f"at most {report.rows_settled:,} settled and {report.rows_live:,} live records are looked at"
    )
