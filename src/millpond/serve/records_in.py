"""Records that come in by one request: from the body, by its content type, to what an append takes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from millpond.errors import TooLarge, UnsupportedMediaType
from millpond.ingest.arrow_stream import read_arrow_body
from millpond.ingest.text import read_json, reader_of
from millpond.model.definition import StreamDefinition
from millpond.serve import cloudevents
from millpond.serve.bodies import check_json_depth
from millpond.serve.forms import ARROW, CSV, JSON, NDJSON, media_type
from millpond.serve.settings import ServeSettings

# By content type, the forms of many records.
_READ_AS = {NDJSON: "ndjson", "application/jsonl": "ndjson", "application/ndjson": "ndjson", CSV: "csv"}
TAKEN = (JSON, *_READ_AS, ARROW, cloudevents.STRUCTURED, cloudevents.BATCHED)

# Content types of many records, which a single event is never of.
MANY = frozenset(media.encode() for media in (*_READ_AS, ARROW, cloudevents.STRUCTURED, cloudevents.BATCHED))

# Headers of a request that are the connection's or a secret, and not the event's.
_NOT_OF_THE_EVENT = frozenset(
    (
        "authorization",
        "proxy-authorization",
        "cookie",
        "host",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "content-encoding",
        "expect",
        "accept",
        "accept-encoding",
        "origin",
        "referer",
        "idempotency-key",
        "millpond-producer",
        "millpond-sequence",
    )
)


def decode_records(
    definition: StreamDefinition, headers: Mapping[str, str], body: bytes, settings: ServeSettings
) -> Any:
    """The records, in a form that an append takes; `InvalidRecord` says where they are wrong."""
    media = media_type(headers.get("content-type", ""))
    if media == ARROW:
        return _read_arrow(body, settings)
    found = _decode_text(definition, media, headers, body, settings)
    rows = found.num_rows if isinstance(found, pa.RecordBatch | pa.Table) else len(found)
    check_rows(rows, settings)
    return found


def check_rows(rows: int, settings: ServeSettings) -> None:
    """`TooLarge` for more records than one request may hold."""
    if rows > settings.batch_rows_max:
        raise TooLarge(
            f"a request of at least {rows:,} records is over the bound of {settings.batch_rows_max:,}",
            hint="send several requests; batch_rows_max of the server is the bound",
        )


def _read_arrow(body: bytes, settings: ServeSettings) -> pa.Table:
    found = read_arrow_body(
        body,
        decoded_bytes_max=settings.decoded_bytes_max,
        rows_max=settings.batch_rows_max,
        columns_max=settings.columns_max,
    )
    return pa.Table.from_batches(found.batches, found.schema)


def _decode_text(
    definition: StreamDefinition, media: str, headers: Mapping[str, str], body: bytes, settings: ServeSettings
) -> Any:
    if not definition.raw or media in _READ_AS or media in (cloudevents.STRUCTURED, cloudevents.BATCHED):
        if media != CSV:
            check_json_depth(body, settings.json_depth_max)
        check_rows(body.count(b"\n") if media in _READ_AS else 0, settings)
    if media in (cloudevents.STRUCTURED, cloudevents.BATCHED):
        events = cloudevents.from_json(body, batched=media == cloudevents.BATCHED)
        return _cloud_rows(events, definition)
    if cloudevents.is_binary(headers):
        return _cloud_rows([cloudevents.from_headers(headers, body)], definition)
    if media in _READ_AS:
        batches = list(reader_of(_READ_AS[media], io.BytesIO(body), definition))
        return pa.Table.from_batches(batches, batches[0].schema) if batches else []
    if definition.raw:
        return [raw_event(headers, body)]
    if media == JSON or media.endswith("+json") or not media:
        return read_json(body, definition)
    raise UnsupportedMediaType(
        f"{definition.name} takes no {media[:100]!r}",
        hint=f"send {', '.join(TAKEN)}; a stream of raw events takes anything",
    )


def raw_event(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """A request as an event: its body as it is, and the headers that are about it."""
    kept = {name: value for name, value in headers.items() if name not in _NOT_OF_THE_EVENT}
    return {"body": body, "headers": kept}


def _cloud_rows(events: list[dict[str, Any]], definition: StreamDefinition) -> Any:
    rows = cloudevents.to_rows(events, definition)
    if definition.raw or not rows:
        return rows
    # Values are JSON's: through the same reading as any other JSON, so that times and bytes are understood.
    return read_json(msgspec.json.encode(rows), definition)
