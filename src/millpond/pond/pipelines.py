"""The pond's board of pipelines: what their runners have reported. In memory: who runs reports again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millpond.clock import Clock
from millpond.errors import TooLarge
from millpond.wire import requests as ask
from millpond.wire.access import Caller
from millpond.wire.pipelines import PipelineReport

# Reports are small, but anybody who may write somewhere may send them.
PIPELINES_MAX = 1_000


class Board:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: dict[tuple[str, str], tuple[float, PipelineReport]] = {}

    def report(self, report: PipelineReport) -> None:
        """How a pipeline does now."""
        with self._lock:
            key = (report.sink, report.name)
            if key not in self._reports and len(self._reports) >= PIPELINES_MAX:
                raise TooLarge(f"{PIPELINES_MAX} pipelines have reported already", hint="start the node again")
            self._reports[key] = (self._clock.monotonic_seconds(), report)

    def list(self) -> list[PipelineReport]:
        """How each does that was heard of since the pond was opened, by name."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            found = [replace(report, heard_seconds=round(now - at, 1)) for at, report in self._reports.values()]
        return sorted(found, key=lambda report: (report.name, report.sink))


def pipeline_calls(
    board: Board, sees: Callable[[Caller, str], bool]
) -> dict[type[ask.Request], Callable[[Caller, Any], Any]]:
    """The handlers of a desk. A caller is shown the pipelines whose sink they have a right on."""

    def report(caller: Caller, request: ask.ReportPipeline) -> PipelineReport:
        told = {name: getattr(request, name) for name in request.__struct_fields__ if name != "stream"}
        found = PipelineReport(sink=request.stream, **told)
        board.report(found)
        return found

    def listed(caller: Caller, request: ask.ListPipelines) -> list[PipelineReport]:
        return [each for each in board.list() if sees(caller, each.sink)]

    return {ask.ReportPipeline: report, ask.ListPipelines: listed}
