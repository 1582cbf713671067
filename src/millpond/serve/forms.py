"""The forms records have over HTTP: which one a request brings, and which one it wants back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from millpond.errors import NotAcceptable
from millpond.ingest.csv_text import batch_to_csv, csv_schema
from millpond.ingest.json_lines import batch_to_lines

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"

# What may be asked for by `format=`, and how it is called.
MEDIA_TYPE_OF = {"json": JSON, "ndjson": NDJSON, "csv": CSV, "arrow": ARROW, "sse": EVENTS}
_FORM_OF = {media: form for form, media in MEDIA_TYPE_OF.items()} | {
    "application/jsonl": "ndjson",
    "application/ndjson": "ndjson",
    "application/vnd.apache.arrow.file": "",  # a file needs its end first
}
PAGE_FORMS = ("json", "ndjson", "csv", "arrow")
FOLLOW_FORMS = ("ndjson", "sse")

# What one piece of an answer is meant to hold, so that a slow reader keeps little of it in memory.
PIECE_BYTES = 128_000


def media_type(header: str) -> str:
    """A content type without its parameters."""
    return header.partition(";")[0].strip().lower()


def chosen_form(named: str | None, accept: str, forms: tuple[str, ...]) -> str:
    """One of `forms`, by name or by what the caller accepts; the first one if it does not say."""
    if named is not None:
        if named in forms:
            return named
        raise NotAcceptable(f"no records in the form {named!r} here", hint=f"format is one of {', '.join(forms)}")
    if not accept.strip():
        return forms[0]
    for _, media in sorted(_accepted(accept), key=lambda pair: -pair[0]):
        if media in ("*/*", "application/*") or (media == "text/*" and "csv" in forms):
            return "csv" if media == "text/*" else forms[0]
        if _FORM_OF.get(media) in forms:
            return _FORM_OF[media]
    raise NotAcceptable(
        f"no records as {accept[:200]!r} here", hint=f"Accept one of {', '.join(MEDIA_TYPE_OF[form] for form in forms)}"
    )


def _accepted(header: str) -> Iterator[tuple[float, str]]:
    for part in header.split(","):
        media, *parameters = part.split(";")
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if quality > 0:
            yield quality, media.strip().lower()


def small_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about `PIECE_BYTES`; rows are never cut."""
    rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def written(form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The body of an answer in one of `PAGE_FORMS`, piece by piece."""
    if form == "ndjson":
        return (batch_to_lines(piece) for batch in batches for piece in small_pieces(batch))
    if form == "csv":
        return _written_csv(schema, batches)
    if form == "arrow":
        return _written_arrow(schema, batches)
    return _written_json(batches)


def _written_json(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An object with all of them: `{"records": [...]}`."""
    yield b'{"records":['
    between = b""
    for batch in batches:
        for piece in small_pieces(batch):
            # A line holds no newline of its own: those of texts are escaped.
            yield between + batch_to_lines(piece)[:-1].replace(b"\n", b",\n")
            between = b",\n"
    yield b"]}"


def _written_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    import pyarrow.csv as pa_csv

    sink = _Sink()
    with pa_csv.CSVWriter(pa.PythonFile(sink, "w"), csv_schema(schema)) as writer:
        yield sink.take()
        for batch in batches:
            for piece in small_pieces(batch):
                writer.write_batch(batch_to_csv(piece))
                yield sink.take()
    yield sink.take()


def _written_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        yield sink.take()
        for batch in batches:
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


class _Sink:
    """A file that gives away what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken
