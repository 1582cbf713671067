"""The board of pipelines of a served pond."""

from __future__ import annotations

from dataclasses import asdict

from millpond.client.connection import Connection
from millpond.wire import requests as ask
from millpond.wire.pipelines import PipelineReport


class RemoteBoard:
    """Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def report(self, report: PipelineReport) -> None:
        """How a pipeline does now."""
        fields = asdict(report)
        del fields["heard_seconds"]
        self._connection.ask(ask.ReportPipeline(fields.pop("sink"), **fields), PipelineReport)

    def list(self) -> list[PipelineReport]:
        """How each does that was heard of since the node was started, by name."""
        found: list[PipelineReport] = self._connection.ask(ask.ListPipelines(), list[PipelineReport])
        return found
