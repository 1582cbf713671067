"""The command `put`: records from files or a pipe into a stream, batch by batch, each acknowledged before the next.

What was acknowledged stays, whatever happens to the rest. With `--producer` a batch is known by its number, so the same
input can be put again after a failure and nothing of it is there twice: batches are then cut by count alone, every
time in the same places. A number older than the pond remembers was acknowledged long ago, because `put` sends number
n only after n - 1 was acknowledged.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.progress import Progress
from millpond.cli.session import session_of
from millpond.cli.source import form_of, open_source
from millpond.cli.streams import StreamName
from millpond.errors import InvalidRecord, InvalidValue, StaleSequence, Unavailable
from millpond.model.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.cli.session import AnyStream
    from millpond.model.definition import Durability

BATCH_ROWS = 10_000


def put(
    context: typer.Context,
    name: StreamName,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="stdin if none is named, or for -")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="ndjson, csv or arrow; otherwise by the file's name, or ndjson")
    ] = None,
    producer: Annotated[
        str | None, typer.Option(help="a name for this input: putting it again adds nothing twice")
    ] = None,
    durability: Annotated[str | None, typer.Option(help="disk, os or memory, if not as the stream has it")] = None,
) -> None:
    """Append records from files or a pipe.

    They go in batches of 10,000, each all or nothing. A row that does not fit ends it with its line, column and value;
    what was acknowledged before stays.

    \b
    Examples:
      cat readings.ndjson | millpond put grid/meters
      millpond put grid/meters monday.csv tuesday.csv
      millpond put grid/meters readings.ndjson --producer import-2026-01
    """
    from millpond.model.definition import check_durability

    session = session_of(context)
    sources: list[Path | None] = [*files] if files else [None]
    for path in sources:
        if path is not None and str(path) != "-" and not path.is_file():
            raise InvalidValue(f"{path} is not a file", hint="name files to read, or - for stdin")
        form_of(path, form)
    how = check_durability(durability) if durability else None
    if sources == [None] and sys.stdin.isatty():
        session.output.say("reading NDJSON from the terminal; Ctrl-D ends it")
    with session.open(background=True) as pond:
        stream = pond.stream(name)
        work = Putting(stream, producer or "", how, served=session.served)
        began = time.monotonic()
        try:
            with session.output.progress(f"put {name}", unit="bytes", total=_size(sources)) as bar:
                for path in sources:
                    work.put(path, form_of(path, form), bar)
            work.report.complete = True
        finally:
            report = work.report
            report.seconds = round(time.monotonic() - began, 3)
            session.output.say(report.told())
            if session.output.json:
                session.output.one(asdict(report))


def _size(sources: list[Path | None]) -> int | None:
    if any(path is None or str(path) == "-" for path in sources):
        return None
    return sum(path.stat().st_size for path in sources if path is not None)


@dataclass
class PutReport:
    """What became of the input. `complete`: all of it was taken. `rows_open`: how many behind those acknowledged may or
    may not have been kept, because the answer was lost."""

    stream: str
    durability: str
    rows: int = 0
    batches: int = 0
    rows_known: int = 0
    rows_open: int = 0
    bytes: int = 0
    seconds: float = 0.0
    complete: bool = False

    def told(self) -> str:
        """For people."""
        known = f", {self.rows_known:,} were there already" if self.rows_known else ""
        rest = "" if self.complete else "; nothing was kept of what follows them"
        if self.rows_open:
            rest = (
                f"; the next batch, {self.rows_open:,} rows, may or may not have been kept, and nothing behind it: "
                "under a --producer the same input can be put again, and nothing of it is there twice"
            )
        return (
            f"acknowledged {self.rows:,} rows in {self.batches:,} batches ({self.durability}), "
            f"{format_bytes(self.bytes)} read in {self.seconds:.2f} s{known}{rest}"
        )


class Putting:
    """One run of `put`. Its report is right at any moment, also after an interruption."""

    def __init__(self, stream: AnyStream, producer: str, durability: Durability | None, *, served: bool) -> None:
        self._stream, self._producer, self._durability, self._served = stream, producer, durability, served
        self._sequence = 0
        self.report = PutReport(stream.name, durability or stream.definition.durability)

    def put(self, path: Path | None, form: str, bar: Progress) -> None:
        """Everything one source has."""
        from millpond.ingest.text import reader_of

        def told(count: int) -> None:
            self.report.bytes += count
            bar.advance(count, f"{self.report.rows + self.report.rows_known:,} rows")

        with open_source(path, told, BATCH_ROWS) as source:
            batches: Iterable[pa.RecordBatch] = reader_of(form, source, self._stream.definition)
            if self._producer:
                batches = of_equal_size(batches, BATCH_ROWS)
            try:
                for batch in batches:
                    for start in range(0, batch.num_rows, BATCH_ROWS):
                        self._append(batch.slice(start, BATCH_ROWS))
            except InvalidRecord as error:
                if path is not None:
                    raise InvalidRecord(f"{path}: {error.message}", hint=error.hint) from None
                raise

    def _append(self, batch: pa.RecordBatch) -> None:
        with _uninterrupted():
            try:
                if not self._producer:
                    self._stream.append(batch, durability=self._durability)
                    known = False
                else:
                    known = self._append_once(batch)
            except Unavailable:
                if self._served:
                    self.report.rows_open = batch.num_rows
                raise
            if known:
                self.report.rows_known += batch.num_rows
            else:
                self.report.rows += batch.num_rows
                self.report.batches += 1

    def _append_once(self, batch: pa.RecordBatch) -> bool:
        """Append under the next number; whether it was there already."""
        number, self._sequence = self._sequence, self._sequence + 1
        try:
            answer = self._stream.append(batch, producer=self._producer, sequence=number, durability=self._durability)
        except StaleSequence:
            return True
        there = sum(len(offsets) for offsets in answer.ranges.values())
        if there != batch.num_rows:
            raise InvalidValue(
                f"batch {number} of producer {self._producer!r} has {batch.num_rows} rows, but was acknowledged "
                f"with {there}: the input is not the same",
                hint="put what is new as an input of its own, with another --producer",
            )
        return answer.duplicate


def of_equal_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches of exactly so many rows, but for the last."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, rows - count)
            batch = batch.slice(piece.num_rows)
            waiting.append(piece)
            count += piece.num_rows
            if count == rows:
                yield pa.concat_batches(waiting)
                waiting, count = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A Ctrl-C in here takes effect behind it: what is on its way is acknowledged and counted first. A second one does
    not wait for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False

    def remember(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
