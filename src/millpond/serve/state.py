"""How the node does, as the health routes tell it: starting, ready, or stopping, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from millpond.errors import Unavailable
from millpond.wire.desk import Desk

Phase = Literal["starting", "ready", "stopping"]


class NodeState:
    """Written by the server, read by the doors. `desk` is there while the node takes requests."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self.recovered: tuple[int, int] = (0, 0)
        self.ailments: Callable[[], list[str]] = list
        self._desk: Desk | None = None

    def ready(self, desk: Desk, ailments: Callable[[], list[str]]) -> None:
        """The pond is open. `ailments` are asked for what keeps it from taking appends."""
        self.ailments, self.phase, self._desk = ailments, "ready", desk

    def stop(self) -> None:
        """No new requests; those under way are finished."""
        self.phase, self._desk = "stopping", None

    @property
    def stopping(self) -> bool:
        return self.phase == "stopping"

    @property
    def desk(self) -> Desk:
        """The desk; `Unavailable`, with the reason, while there is none: not yet, or not any more."""
        if self._desk is None:
            raise Unavailable(self._why_not(), hint="wait until GET /readyz says so; what was acknowledged is safe")
        return self._desk

    def reasons(self) -> list[str]:
        """Why the node is not ready; none if it is."""
        if self._desk is None:
            return [self._why_not()]
        return self.ailments()

    def _why_not(self) -> str:
        if self.stopping:
            return "the server is stopping"
        done, total = self.recovered
        return f"the journal is being recovered: {100 * done / total:.0f} %" if total else "the pond is being opened"
