"""Records from and to byte streams: newline-delimited JSON, CSV, Arrow IPC. What the CLI and other doors pipe through.

Readers yield batches of the stream's schema as the input arrives and never hold all of it; each is ready for an append.
For JSON, a batch is what one read of the source gave, so that a slow pipe is followed without delay and a fast one in
large batches; CSV is parsed in blocks of some megabytes. An error names the line; what was yielded before it was good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv

from millpond.errors import InvalidRecord, InvalidValue, TooLarge
from millpond.ingest import csv_text, raw
from millpond.ingest.arrow import to_batch
from millpond.ingest.decode import checked_to_batch
from millpond.ingest.json_lines import batch_to_lines
from millpond.ingest.json_rows import json_rows_of
from millpond.model.definition import StreamDefinition
from millpond.model.misfit import Place
from millpond.model.rows import codec_of
from millpond.model.units import format_bytes

FORMS = ("ndjson", "csv", "arrow")

# Large enough for any sane record, small enough that a file without newlines does not fill the memory.
LINE_BYTES_MAX = 64_000_000
_READ_BYTES = 1_000_000


def reader_of(form: str, source: BinaryIO, definition: StreamDefinition) -> Iterator[pa.RecordBatch]:
    """The records of `source`, in one of `FORMS`."""
    if form == "ndjson":
        return read_ndjson(source, definition)
    if form == "csv":
        return read_csv(source, definition)
    if form == "arrow":
        return read_arrow(source, definition)
    raise _no_form(form)


def read_ndjson(source: BinaryIO, definition: StreamDefinition, batch_rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Batches of at most `batch_rows` from one JSON object a line; errors name the line, counted from 1."""
    schema = expected(definition)
    rows, codec = json_rows_of(schema), codec_of(schema)
    line = 1
    for piece in _whole_lines(source):
        found = rows.lines(piece, _line_from(line))
        for start in range(0, len(found), batch_rows):
            yield checked_to_batch(codec, found[start : start + batch_rows], place=_line_from(line))
        line += piece.count(b"\n")


def expected(definition: StreamDefinition) -> pa.Schema:
    """What a record must have; what a raw event leaves out is filled in when it is appended."""
    return raw.CHECKED if definition.raw else definition.sent_schema


def read_json(text: bytes, definition: StreamDefinition) -> pa.RecordBatch:
    """The records of a JSON array of objects, or of a single object, as one batch; errors count them from 0."""
    schema = expected(definition)
    return checked_to_batch(codec_of(schema), json_rows_of(schema).array(text))


def _line_from(first: int) -> Place:
    return lambda index: f"line {first + index}"


def _whole_lines(source: BinaryIO) -> Iterator[bytes]:
    """What the source has, cut after newlines."""
    # `read1` gives what is there instead of waiting for more.
    read = getattr(source, "read1", source.read)
    data: bytes = read(_READ_BYTES).removeprefix(b"\xef\xbb\xbf")
    rest = b""
    while data:
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = b""
        rest += data[end:]
        if len(rest) > LINE_BYTES_MAX:
            raise TooLarge(f"a line of over {format_bytes(LINE_BYTES_MAX)}", hint="write one record a line")
        data = read(_READ_BYTES)
    if rest:
        yield rest


def read_csv(source: BinaryIO, definition: StreamDefinition) -> Iterator[pa.RecordBatch]:
    """Batches from CSV with a header; errors name the record, counted from 1 without the header."""
    return csv_text.read_csv(source, expected(definition))


def read_arrow(source: BinaryIO, definition: StreamDefinition) -> Iterator[pa.RecordBatch]:
    """Batches from an Arrow IPC stream, cast to the stream's schema; errors count rows from 0, in all of it."""
    schema, count = expected(definition), 0
    try:
        with pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield to_batch(schema, batch, place=_row_from(count))
                count += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecord(
            f"after {count} rows: not an Arrow stream: {error}", hint="write it with pyarrow.ipc.new_stream"
        ) from None


def _row_from(first: int) -> Place:
    return lambda index: f"row {first + index}"


class Writer(Protocol):
    """Writes batches of one schema. Leaving it finishes the text; the stream under it stays open."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def __enter__(self) -> Writer: ...

    def __exit__(self, *failure: object) -> None: ...


def writer_of(form: str, out: BinaryIO, schema: pa.Schema) -> Writer:
    """What writes batches of `schema` to `out` in one of `FORMS`."""
    if form == "ndjson":
        return _NdjsonWriter(out)
    if form == "csv":
        return _CsvWriter(out, schema)
    if form == "arrow":
        return _ArrowWriter(out, schema)
    raise _no_form(form)


def _no_form(form: str) -> InvalidValue:
    return InvalidValue(f"no form of records {form!r}", hint=f"one of {', '.join(FORMS)}")


class _NdjsonWriter:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, batch: pa.RecordBatch) -> None:
        self._out.write(batch_to_lines(batch))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *failure: object) -> None:
        pass


class _CsvWriter:
    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._writer: Any = pa_csv.CSVWriter(pa.PythonFile(out, "w"), csv_text.csv_schema(schema))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(csv_text.batch_to_csv(batch))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *failure: object) -> None:
        self._writer.close()


class _ArrowWriter:
    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._writer: Any = pa.ipc.new_stream(out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *failure: object) -> None:
        self._writer.close()
