"""The desk's part of writing in bulk: requests about stages and loads, answered by the stream's own `bulk`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.archive.load import LoadReport
from millpond.errors import InvalidInput
from millpond.ingest.arrow_stream import read_arrow_body
from millpond.log.engine import Ack
from millpond.wire import bulk_requests as bulk
from millpond.wire import requests as ask
from millpond.wire.access import Caller

if TYPE_CHECKING:
    from millpond.pond.stream import Stream

# One part of a report, decompressed; objects in it, and columns: three for each column of a stream.
_REPORT_BYTES_MAX = 64_000_000
_REPORT_ROWS_MAX = 100_000
_REPORT_COLUMNS_MAX = 4_000

Calls = dict[type[ask.Request], Callable[[Caller, Any], Any]]


def bulk_calls(stream_of: Callable[[ask.Request], Stream]) -> Calls:
    """What answers each request; `stream_of` finds a request's stream."""

    def commit_load(caller: Caller, request: bulk.CommitLoad) -> LoadReport | None:
        loading = stream_of(request).bulk.loading
        return loading.commit(request.load, request.version, read_report(request.report), request.part, request.parts)

    return {
        ask.Vacuum: lambda caller, request: stream_of(request).vacuum(request.older_than, preview=request.preview),
        ask.RebuildIndexes: lambda caller, request: stream_of(request).rebuild_indexes(everything=request.everything),
        bulk.CommitStaged: lambda caller, request: stream_of(request).bulk.commit_staged(
            request.stages, producer=request.producer, sequence=request.sequence
        ),
        bulk.ForgetStaged: lambda caller, request: stream_of(request).bulk.forget_staged(request.prefix),
        bulk.BeginLoad: lambda caller, request: stream_of(request).bulk.begin_load(
            request.owner, mark=request.mark, number=request.number
        ),
        bulk.RenewLoad: lambda caller, request: stream_of(request).bulk.loading.renew(request.load),
        bulk.CommitLoad: commit_load,
        bulk.AbortLoad: lambda caller, request: stream_of(request).bulk.loading.abort(request.load),
    }


def stage(stream: Stream, request: ask.Append, rows: Any) -> Ack:
    """Hold records in place of appending them."""
    assert request.stage is not None
    if request.producer or request.sequence is not None:
        raise InvalidInput("a staged put has a producer", hint="name the producer when the stages are committed")
    stream.bulk.stage(request.stage, rows)
    return Ack({}, stream.definition.durability)


def read_report(text: str) -> pa.Table:
    """What a task reported, from anybody: an Arrow stream in base64."""
    try:
        schema, batches = read_arrow_body(
            base64.b64decode(text, validate=True),
            decoded_bytes_max=_REPORT_BYTES_MAX,
            rows_max=_REPORT_ROWS_MAX,
            columns_max=_REPORT_COLUMNS_MAX,
        )
        return pa.Table.from_batches(list(batches), schema)
    except (binascii.Error, ValueError, pa.ArrowException) as error:
        raise InvalidInput(f"not a report of a load: {error}", hint="an Arrow stream, in base64") from None
