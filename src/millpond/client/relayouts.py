"""A relayout of a stream of a served pond: begun, planned and committed at its node, rewritten wherever Spark runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.archive.relayout import RelayoutReport, Unit
from millpond.client.bulk import report_parts
from millpond.wire import relayout_requests as relayout
from millpond.wire.relayout import RelayoutTicket, UnitAnswer, decode_unit

if TYPE_CHECKING:
    from millpond.client.connection import Connection


class RemoteRelayouts:
    """A `Relayouts`. Thread-safe."""

    def __init__(self, connection: Connection, stream: str, stream_id: int) -> None:
        self._connection, self._stream, self._id = connection, stream, stream_id

    def begin(self, owner: str, object_bytes_min: int | None) -> RelayoutTicket:
        request = relayout.BeginRelayout(self._stream, owner, object_bytes_min, id=self._id)
        ticket: RelayoutTicket = self._connection.ask(request, RelayoutTicket)
        return ticket

    def plan(self, relayout_id: str) -> list[Unit]:
        found = self._connection.table(relayout.PlanRelayout(self._stream, relayout_id, id=self._id))
        return [decode_unit(unit) for unit in found.column("unit").to_pylist()]

    def renew(self, relayout_id: str) -> None:
        self._connection.ask(relayout.RenewRelayout(self._stream, relayout_id, id=self._id), None)

    def commit(self, relayout_id: str, unit: Unit, reports: Sequence[pa.Table]) -> RelayoutReport | None:
        answer = UnitAnswer(False)
        for part, report in enumerate(reports):
            pieces = report_parts(report)
            for piece, text in enumerate(pieces):
                place = unit.start, unit.loaded, part
                request = relayout.CommitRelayout(
                    self._stream, relayout_id, *place, text, piece, len(pieces), id=self._id
                )
                answer = self._connection.ask(request, UnitAnswer)
        return answer.report

    def end(self, relayout_id: str) -> None:
        self._connection.ask(relayout.EndRelayout(self._stream, relayout_id, id=self._id), None)
