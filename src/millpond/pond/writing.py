"""Writing to a stream: whatever was handed over becomes parts for the log, and is appended as safely as asked.

What is refused is counted, whoever asked. What is taken in follows the stream's definition; an append that began before
it was altered goes on with what it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import Backpressure, MillpondError, StreamNotFound
from millpond.files import ByteFile
from millpond.ingest import Ingest, NotPlain
from millpond.ingest.batching import Batching, OnError
from millpond.ingest.bounds import check_numbered
from millpond.ingest.producer import Producer, name_and_start
from millpond.log.engine import Ack, LogEngine, Part, StreamAppend, Told
from millpond.model.definition import Durability, StreamDefinition, check_durability
from millpond.model.units import Duration, Size
from millpond.pond.direct_way import DirectWay
from millpond.query import Halves
from millpond.settings import Settings
from millpond.telemetry import StreamTelemetry, Tally


class StreamWriting:
    """The part of `Stream` that takes records in: by value, by batch, without waiting, or through a producer."""

    def __init__(
        self,
        definition: StreamDefinition,
        log: LogEngine,
        clock: Clock,
        settings: Settings,
        refused: Tally,
        on_producer: Callable[[Producer], None],
        halves: Halves,
    ) -> None:
        self._name, self._log, self._clock, self._settings = definition.name, log, clock, settings
        self._refused, self._on_producer = refused, on_producer
        self.telemetry = StreamTelemetry()
        self._become(definition)
        self.halves = halves
        self.file = ByteFile(halves, clock, settings.append_bytes_max)

    @property
    def name(self) -> str:
        return self._name

    @property
    def definition(self) -> StreamDefinition:
        """As created and altered; `StreamNotFound` once it was dropped."""
        if self._definition is None:
            raise StreamNotFound(f"stream {self._name!r} was dropped", hint="pond.streams() lists what is there")
        return self._definition

    def append(
        self, rows: Any, *, producer: str = "", sequence: int | None = None, durability: Durability | None = None
    ) -> Ack:
        """Append records: a dict, a list of dicts, a `RecordBatch`, a `Table` or a pandas DataFrame. All or nothing.

        Returns once the records are as safe as the stream's durability (or the one given here) says; the answer
        names it and the offsets. With a producer and a sequence that goes upwards, a retry is recognised and gets the
        first one's offsets. Raises `InvalidRecord` naming row, column and value, or a `Backpressure` error when there
        is no room; nothing is kept then.
        """
        try:
            return self._append(rows, producer, sequence, durability)
        except MillpondError as error:
            self._refused.error(error)
            raise

    def _append(self, rows: Any, producer: str, sequence: int | None, durability: Durability | None) -> Ack:
        if type(rows) is dict and self._plain_rows and durability is None and not producer and sequence is None:
            try:
                return self._append_row(rows, self._durability)
            except NotPlain:
                pass  # it takes code that is not ours to read it: not in a thread that others wait for
        if self.definition.file:
            return self.file.append(rows, producer=producer, sequence=sequence, durability=durability)
        parts, left_out, options = self._prepare(rows, producer, sequence, durability)
        ack = self._log.append(self.definition.id, parts, **options)
        return replace(ack, filtered=left_out) if left_out else ack

    def submit_batch(
        self,
        rows: pa.RecordBatch | pa.Table,
        told: Told,
        *,
        producer: str = "",
        sequence: int | None = None,
        durability: Durability | None = None,
        after: object = None,
        epoch: int | None = None,
    ) -> object:
        """As `append`, without waiting for the commit: see `LogEngine.submit`. `epoch`: of one who holds a file alone;
        appends to files do wait, each for the one before it."""
        try:
            if self.definition.file or epoch is not None:
                told(
                    self.file.append(rows, producer=producer, sequence=sequence, durability=durability, epoch=epoch),
                    None,
                )
                return None
            parts, left_out, options = self._prepare(rows, producer, sequence, durability)
            if left_out:
                told = _told_filtered(told, left_out)
            return self._log.submit(self.definition.id, parts, told, after=after, **options)
        except MillpondError as error:
            self._refused.error(error)
            raise

    def _prepare(
        self, rows: Any, producer: str, sequence: int | None, durability: Durability | None
    ) -> tuple[list[Part], int, dict[str, Any]]:
        """Parts for the log, how many records the stream's filter left out, and how to append the parts."""
        definition = self.definition
        chosen = definition.durability if durability is None else check_durability(durability)
        check_numbered(producer, sequence)
        ingest = self._ingest
        now = self._clock.now_micros()
        return *ingest.sift(rows, now), {
            "ingest_micros": now,
            "durability": chosen,
            "producer": producer,
            "sequence": sequence or 0,
            "schema_version": ingest.definition.schema_version,
        }

    def prepare(self, rows: Any) -> StreamAppend:
        """Rows as `append` takes them, checked, to be appended together with others: see
        `LogEngine.append_together`."""
        try:
            parts, _, options = self._prepare(rows, "", None, None)
        except MillpondError as error:
            self._refused.error(error)
            raise
        return StreamAppend(self.definition.id, parts, options["ingest_micros"], options["schema_version"])

    def submit_json(self, text: bytes, told: Told) -> None:
        """Append one record given as a JSON object, at the stream's durability, without waiting: `told` is called when
        it is safe. What is wrong with the record is raised here."""
        try:
            self._submit(self._ingest.json_row(text), self._durability, told)
        except MillpondError as error:
            self._refused.error(error)
            raise

    def submit(self, row: Mapping[str, Any], told: Told) -> None:
        """As `submit_json`, for a dict."""
        try:
            self._submit(self._ingest.checked_row(row), self._durability, told)
        except MillpondError as error:
            self._refused.error(error)
            raise

    def producer(
        self,
        name: str | None = None,
        *,
        batch_bytes: Size = "1MB",
        linger: Duration = "5ms",
        max_in_flight: int = 8,
        buffer: Size = "64MB",
        wait: Duration = "30s",
        give_up: Duration = "2m",
        durability: Durability | None = None,
        on_error: OnError | None = None,
    ) -> Producer:
        """For many small appends: batches them, sends them on without waiting, and never doubles a record.

        A batch goes when it has `batch_bytes`, or `linger` after its first record; at most `max_in_flight` at a time.
        `buffer`: how much may wait to be acknowledged; `append` then waits, up to `wait`. `give_up`: how long it is
        tried while there is no room or no answer. `on_error(error, records)` is called, in a thread of the
        producer's, for records that failed. `name`: of one producer at a time; one is made up if none is given.
        """

        chosen = None if durability is None else check_durability(durability)

        def append(batch: pa.RecordBatch, sequence: int) -> Ack:
            return self.append(batch, producer=called, sequence=sequence, durability=chosen)

        called, first = name_and_start(name, self._clock.now_micros())
        batching = Batching.of(batch_bytes, linger, max_in_flight, buffer, wait, give_up)
        made = Producer(
            called,
            first,
            lambda newer: self._ingest,
            lambda name: DirectWay(append),
            batching,
            retried=(Backpressure,),
            on_error=on_error,
        )
        self._on_producer(made)
        return made

    def _become(self, definition: StreamDefinition | None) -> None:
        """Take appends as this definition has them; None: the stream was dropped."""
        if definition is not None:
            ingest = Ingest(definition, self._settings.append_bytes_max, self.telemetry.filtered.add)
            appender = self._log.row_appender
            self._append_row = appender(definition.id, ingest.encode_rows, definition.schema_version)
            self._submit = appender(definition.id, ingest.encode_checked, definition.schema_version).submit
            self._ingest, self._durability, self._plain_rows = ingest, definition.durability, ingest.takes_plain_rows
        self._definition: StreamDefinition | None = definition


def _told_filtered(told: Told, left_out: int) -> Told:
    def tell(ack: Ack | None, error: BaseException | None) -> None:
        told(None if ack is None else replace(ack, filtered=left_out), error)

    return tell
