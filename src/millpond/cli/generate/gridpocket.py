"""`millpond generate gridpocket`: meter readings into a pipe or into a stream, at once or as time goes by."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.session import session_of
from millpond.errors import InvalidValue, StreamNotFound
from millpond.model.units import parse_seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.cli.session import AnyPond, AnyStream
    from millpond.gridpocket import Readings

# As `put` sends them.
APPEND_ROWS = 10_000


def gridpocket(
    context: typer.Context,
    meters: Annotated[int, typer.Option(min=1, max=100_000_000, help="how many meters")] = 1_000,
    days: Annotated[float, typer.Option(min=0, help="for how many days")] = 1.0,
    start: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="the first reading, UTC")
    ] = datetime(2026, 1, 1),
    every: Annotated[str, typer.Option(help="how often a meter is read: a multiple of 15m")] = "15m",
    seed: Annotated[int, typer.Option(help="another seed is another country")] = 7,
    pace: Annotated[
        float, typer.Option(min=0, help="1: as time goes by; 900: a quarter of an hour a second; 0: at once")
    ] = 0.0,
    into: Annotated[
        str | None, typer.Option(metavar="STREAM", help="append to this stream, made if there is none")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="ndjson, csv or arrow, for a pipe")] = None,
) -> None:
    """Make readings of electricity meters all over France, in the order of time: always the same for a seed.

    \b
    Examples:
      millpond generate gridpocket --meters 10 --every 6h
      millpond generate gridpocket --meters 50000 --days 2 --format arrow | millpond put grid/meters --format arrow
      millpond generate gridpocket --meters 5000 --days 30 --pace 900 --into grid/meters
    """
    from millpond.gridpocket import SCHEMA, Readings

    if form not in (None, "ndjson", "csv", "arrow"):
        raise InvalidValue(f"no format {form!r}", hint="ndjson, csv or arrow")
    output = session_of(context).output
    made = Readings(
        meters,
        start.replace(tzinfo=UTC),
        timedelta(days=days),
        timedelta(seconds=parse_seconds(every)),
        seed,
    )
    if into is None:
        output.records(paced(made, pace, APPEND_ROWS), SCHEMA, form)
        return
    with session_of(context).open(background=True) as pond, output.progress("readings", total=len(made)) as bar:
        stream, sent, began = _stream(pond, into), 0, time.monotonic()
        for batch in paced(made, pace, APPEND_ROWS):
            stream.append(batch)
            sent += batch.num_rows
            bar.at(sent)
    seconds = time.monotonic() - began
    output.one(
        {"stream": into, "rows": sent, "seconds": round(seconds, 3)},
        text=f"{sent:,} readings of {meters:,} meters are in {into}, after {seconds:.1f} s",
    )


def paced(made: Readings, pace: float, rows: int) -> Iterator[pa.RecordBatch]:
    """The readings, each moment of theirs no earlier than it is due. At no pace, all at once."""
    if not pace:
        yield from made.batches(rows=rows)
        return
    clock = _Clock(pace)
    for number in range(made.moments):
        clock.wait_until((number * made.every).total_seconds())
        yield from made.batches(number * made.meters, (number + 1) * made.meters, rows)


@dataclass
class _Clock:
    """Time that goes so many times as fast, from now on."""

    pace: float

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def wait_until(self, seconds: float) -> None:
        time.sleep(max(0.0, self._began + seconds / self.pace - time.monotonic()))


def _stream(pond: AnyPond, name: str) -> AnyStream:
    from millpond.gridpocket import SCHEMA

    try:
        return pond.stream(name)
    except StreamNotFound:
        layout = "kdtree:latitude,longitude,buckets=128"
        return pond.create_stream(name, SCHEMA, keys=["vid", "city"], event_time="date", layout=layout)
