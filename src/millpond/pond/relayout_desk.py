"""The desk's part of models and relayouts, answered by the stream itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.pond.bulk_desk import Calls, read_report
from millpond.pond.relayouting import LEASE_SECONDS
from millpond.wire import relayout_requests as relayout
from millpond.wire import requests as ask
from millpond.wire.access import Caller
from millpond.wire.desk import Batches
from millpond.wire.relayout import UnitAnswer, encode_unit

if TYPE_CHECKING:
    from millpond.pond.stream import Stream

_UNITS = pa.schema([("unit", pa.binary())])


def relayout_calls(stream_of: Callable[[ask.Request], Stream]) -> Calls:
    """What answers each request; `stream_of` finds a request's stream."""

    def commit(caller: Caller, request: relayout.CommitRelayout) -> UnitAnswer:
        report = read_report(request.report)
        return stream_of(request).relayouting.commit_part(
            request.relayout, request.start, request.loaded, request.part, report, request.piece, request.pieces
        )

    return {
        relayout.Analyse: lambda caller, request: stream_of(request).analyse(
            period=request.period, better_by=request.better_by, swap=request.swap
        ),
        relayout.TakeModel: lambda caller, request: stream_of(request).relayouting.current_model(),
        relayout.PutModel: lambda caller, request: stream_of(request).relayouting.put_model(
            request.model, request.layout, request.instead_of
        ),
        relayout.Relayout: lambda caller, request: stream_of(request).relayout(
            object_bytes_min=request.object_bytes_min
        ),
        relayout.BeginRelayout: lambda caller, request: stream_of(request).relayouting.begin(
            f"{caller.id}/{request.owner}", request.object_bytes_min, LEASE_SECONDS
        ),
        relayout.RenewRelayout: lambda caller, request: stream_of(request).relayouting.renew(request.relayout),
        relayout.CommitRelayout: commit,
        relayout.EndRelayout: lambda caller, request: stream_of(request).relayouting.end(request.relayout),
    }


def relayout_plan(stream: Stream, request: relayout.PlanRelayout) -> Batches:
    """The units of a relayout, a row each."""
    units = stream.relayouting.plan(request.relayout)

    def batches() -> Iterator[pa.RecordBatch]:
        for unit in units:
            yield pa.RecordBatch.from_arrays([pa.array([encode_unit(unit)], pa.binary())], schema=_UNITS)

    return Batches(_UNITS, batches())
