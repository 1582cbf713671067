"""Writing in bulk to a stream of a served pond: see `wire.bulk`.

Questions whose answer was lost are asked again: a load is known by its owner and its id, and a staged commit by its
producer and sequence.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.archive.load import Load, LoadReport
from millpond.errors import PondClosed, Unavailable
from millpond.log.engine import Ack
from millpond.model.definition import StreamDefinition
from millpond.wire import bulk_requests as bulk
from millpond.wire.bulk import LoadTicket
from millpond.wire.served import Door

if TYPE_CHECKING:
    from millpond.client.connection import Connection
    from millpond.client.stream import RemoteStream

# How long a commit is asked for again while the node cannot be reached.
AGAIN_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
# What a part of a report takes on the wire, before base64.
_PART_BYTES = 1_000_000
_PART_ROWS = 2_000


class RemoteBulk:
    """A `Bulk`. Thread-safe."""

    def __init__(self, connection: Connection, stream: RemoteStream) -> None:
        self._connection, self._stream = connection, stream

    @property
    def definition(self) -> StreamDefinition:
        return self._stream.definition

    def door(self) -> Door:
        return self._stream.door()

    def commit_staged(self, stages: Sequence[str], *, producer: str = "", sequence: int | None = None) -> Ack:
        request = bulk.CommitStaged(self._stream.name, tuple(stages), producer, sequence, id=self._stream.id)
        ack: Ack = self._again(request, Ack) if producer else self._connection.ask(request, Ack)
        return ack

    def forget_staged(self, prefix: str) -> None:
        self._connection.ask(bulk.ForgetStaged(self._stream.name, prefix, id=self._stream.id), None)

    def begin_load(self, owner: str, *, mark: str = "", number: int = 0) -> LoadTicket | None:
        request = bulk.BeginLoad(self._stream.name, owner, mark, number, id=self._stream.id)
        ticket: LoadTicket | None = self._again(request, LoadTicket | None)
        return ticket

    def renew_load(self, load: Load) -> None:
        self._connection.ask(bulk.RenewLoad(self._stream.name, load.id, id=self._stream.id), None)

    def commit_load(self, load: Load, report: pa.Table) -> LoadReport:
        parts = report_parts(report)
        done: LoadReport | None = None
        for number, part in enumerate(parts):
            request = bulk.CommitLoad(
                self._stream.name, load.id, load.version, part, number, len(parts), id=self._stream.id
            )
            done = self._again(request, LoadReport | None)
        if done is None:
            raise Unavailable("the node did not say what became of a load", hint="are both ends of the same version?")
        return done

    def abort_load(self, load: Load) -> None:
        self._connection.ask(bulk.AbortLoad(self._stream.name, load.id, id=self._stream.id), None)

    def _again(self, request: Any, kind: Any) -> Any:
        until = time.monotonic() + AGAIN_SECONDS
        while True:
            try:
                return self._connection.ask(request, kind)
            except PondClosed:
                raise
            except Unavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)


def report_parts(report: pa.Table) -> list[str]:
    """A report as texts that each fit into a request."""
    return [part for at in range(0, max(1, report.num_rows), _PART_ROWS) for part in _fit(report.slice(at, _PART_ROWS))]


def _fit(report: pa.Table) -> list[str]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, report.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(report)
    data = sink.getvalue()
    if data.size > _PART_BYTES and report.num_rows > 1:
        half = report.num_rows // 2
        return [*_fit(report.slice(0, half)), *_fit(report.slice(half))]
    return [base64.b64encode(data.to_pybytes()).decode()]
