"""Raw events: streams without a schema take a body with headers and a time.

An event is a dict `{"body": bytes or str, "headers": {...}, "time": datetime}`, or just its body. Headers default to
none, the time to the moment of ingestion. In Arrow data and frames, too, both columns may be left out or null.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.ingest.bounds import map_entries
from millpond.model.schema import RAW_EVENTS, TIMESTAMP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What is checked: an event has a body. (The stored schema allows null, as every column of a raw stream does.)
CHECKED = pa.schema([field.with_nullable(field.name != "body") for field in RAW_EVENTS])


def fill_rows(rows: Any, now_micros: int | None) -> Any:
    """Events as dicts, with what they may leave out; None: a time that is left out stays so, for whoever takes the
    event in. Whatever is not an event is left for the check to name."""
    now = None if now_micros is None else _EPOCH + timedelta(microseconds=now_micros)
    if isinstance(rows, list | tuple):
        return [_fill_row(row, now) for row in rows]
    return _fill_row(rows, now)


def _fill_row(row: Any, now: datetime | None) -> Any:
    if isinstance(row, str | bytes | bytearray | memoryview):
        row = {"body": row}
    if not isinstance(row, Mapping):
        return row
    filled = dict(row)
    if filled.get("time") is None:
        filled["time"] = now
    if filled.get("headers") is None:
        filled["headers"] = {}
    body = filled.get("body")
    if isinstance(body, str):
        filled["body"] = _utf8(body)
    return filled


def fill_checked(row: tuple[Any, ...], now_micros: int) -> tuple[Any, ...]:
    """A checked event (in the plain values of `model.rows`), with what it may leave out."""
    time, headers, body = row
    return (now_micros if time is None else time, [] if headers is None else headers, body)


def _utf8(text: str) -> bytes | str:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate: passed on as text, which the check refuses with its place.
        return text


def fill_batch(batch: pa.RecordBatch, now_micros: int) -> pa.RecordBatch:
    """A checked batch of events, with what they may leave out, in the schema of raw streams."""
    time, headers, body = batch.columns
    if time.null_count:
        time = pc.fill_null(time, pa.scalar(now_micros, TIMESTAMP))
    if headers.null_count:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(_as_list(headers)), 0))
        keys, values = map_entries(headers).flatten()
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        headers = pa.MapArray.from_arrays(pa.array(starts), keys, values)
    return pa.RecordBatch.from_arrays([time, headers, body], schema=RAW_EVENTS)


def _as_list(headers: pa.MapArray) -> pa.ListArray:
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
    return headers.cast(pa.list_(pair))
