"""Commands that consume as a member of a group, and that send dead letters back: consume, replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.session import session_of
from millpond.cli.streams import StreamName
from millpond.errors import InvalidValue

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.consume.consumer import Consumer
    from millpond.consume.protocol import Strategy

# What is written at a time before it is committed.
BATCH_RECORDS = 10_000
# No table: it needs its end to know its widths.
FORMS = ("ndjson", "csv", "arrow")


def consume(
    context: typer.Context,
    name: StreamName,
    group: Annotated[str, typer.Option(help="the consumer group to be a member of; made if it is not there")],
    strategy: Annotated[
        str, typer.Option(help="fifo, round_robin or hash: how its members share the records")
    ] = "fifo",
    by: Annotated[str | None, typer.Option(help="for hash: the column; otherwise the primary key")] = None,
    start: Annotated[
        str, typer.Option("--from", help="where a new group begins: as for cat; a group that is there goes on")
    ] = "earliest",
    limit: Annotated[int | None, typer.Option(min=0, help="end after so many records")] = None,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="end when nothing came for so long; 0s: when caught up")
    ] = "1s",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as records arrive, until Ctrl-C")] = False,
    lease: Annotated[str, typer.Option(help="unheard of for so long, others get what was not committed")] = "30s",
    instance: Annotated[str | None, typer.Option(help="a name of its own in the group")] = None,
    form: Annotated[str, typer.Option("--format", help="ndjson, csv or arrow")] = "ndjson",
) -> None:
    """Print the records that a consumer group has not processed, and commit what was written.

    Start it several times to share the work: each record goes to one of them. What was printed and not committed yet,
    because the command was killed, is printed again by the next one.

    \b
    Examples:
      millpond consume grid/meters --group billing --limit 100
      millpond consume grid/meters --group billing --follow | ./bill
      millpond consume grid/meters --group towns --strategy hash --by city
    """
    from millpond.query import parse_start

    session = session_of(context)
    if form not in FORMS:
        raise InvalidValue(f"no format {form!r} here", hint=f"one of {', '.join(FORMS)}")
    with session.open() as pond:
        how: Strategy = strategy  # type: ignore[assignment]  # what it is not, the group refuses
        first = parse_start(start)
        consumer = pond.consumer(name, group=group, strategy=how, by=by, start=first, lease=lease, instance=instance)
        try:
            with pond.stream(name).read("latest") as reader:
                schema = reader.schema
            batches = _committed(consumer, limit, None if follow else wait)
            written = session.output.records(batches, schema, form)
        finally:
            consumer.close(commit=False)
    session.output.say(f"{written:,} records of {name} for {group}")
    if consumer.missed:
        session.output.warn(f"{consumer.missed:,} records were gone before {group} came to them")


def _committed(consumer: Consumer, limit: int | None, wait: str | None) -> Iterator[pa.RecordBatch]:
    """Batches, each committed once whoever prints it asks for the next: it has been written and flushed then."""
    left = limit
    while left is None or left > 0:
        many = BATCH_RECORDS if left is None else min(left, BATCH_RECORDS)
        found = 0
        for batch in consumer.poll(max_records=many, timeout=wait):
            yield batch
            consumer.commit()
            found += batch.num_rows
        if not found:
            return
        if left is not None:
            left -= found


def replay(
    context: typer.Context,
    name: StreamName,
    group: Annotated[str | None, typer.Option(help="only what this group gave up on")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="at most so many records")] = None,
) -> None:
    """Send dead letters back: append the records that consumers gave up on to their stream again, each once.

    They are in STREAM/dead, with the reason. All groups of the stream see what is sent back.

    \b
    Examples:
      millpond cat grid/meters/dead --columns reason,text
      millpond replay grid/meters --limit 1
    """
    session = session_of(context)
    with session.open() as pond:
        report = pond.replay(name, group=group, limit=limit)
    session.output.one(
        asdict(report), text=f"{report.records:,} records sent back to {name}, {report.waiting:,} are waiting"
    )
