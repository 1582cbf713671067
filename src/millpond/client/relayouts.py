"""A relayout of a stream of a served pond: begun, planned and committed at its node, rewritten wherever Spark runs.

So is the analysis: the history, the objects and the model come from the node, and the new model goes there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.archive.analysis import Analysis, analysed, past_queries
from millpond.archive.layout.registry import decode_model, make_layout
from millpond.archive.relayout import RelayoutReport, Unit
from millpond.client.bulk import report_parts
from millpond.errors import InvalidValue
from millpond.model.definition import StreamDefinition
from millpond.query.snapshot import Snapshot
from millpond.wire import relayout_requests as relayout
from millpond.wire.relayout import CurrentModel, RelayoutTicket, UnitAnswer, decode_unit
from millpond.wire.requests import Queries

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

    def analyse(
        self, spark: Any, definition: StreamDefinition, snapshot: Snapshot, seconds: float, better_by: float, swap: bool
    ) -> Analysis:
        """See `Stream.analyse`: made here, with the sample that executors read."""
        known: CurrentModel = self._connection.ask(relayout.TakeModel(self._stream, id=self._id), CurrentModel)
        if definition.layout is None:
            raise InvalidValue(f"{self._stream} has no layout by now", hint="try again")
        layout = make_layout(definition.layout)
        current = decode_model(known.model) if known.model else None
        settled, recorded = snapshot.settled, self._connection.table(Queries(self._stream, id=self._id))
        model, found = analysed(
            definition,
            layout,
            current,
            settled,
            past_queries(recorded, settled.schema),
            importlib.import_module("millpond.spark.relayout").sampling(spark, definition, settled.root),
            seconds=seconds,
            better_by=better_by,
        )
        if not swap:
            return replace(found, swapped=False)
        if found.swapped:
            text, before = model.encode().decode(), "" if current is None else current.id
            self._connection.ask(relayout.PutModel(self._stream, text, str(layout.spec), before, id=self._id), None)
        return found

    def end(self, relayout_id: str) -> None:
        self._connection.ask(relayout.EndRelayout(self._stream, relayout_id, id=self._id), None)
