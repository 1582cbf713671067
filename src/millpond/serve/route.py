"""What a route is: one method of one path, what it takes and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from millpond.serve.parameters import NoQuery

RECORDS = "records"
TEXT = "text"
DELIVERIES = "deliveries"


@dataclass(frozen=True)
class Route:
    """One method of one path. `handler` is the name of its method at the door; `gives` is a type, or RECORDS, TEXT or
    DELIVERIES, or None for an answer without a body; `right` is None where nobody is asked who they are."""

    method: str
    path: str
    handler: str
    summary: str
    gives: Any
    query: type[Struct] = NoQuery
    takes: Any = None
    status: int = 200
    right: str | None = "a valid token"
    errors: tuple[int, ...] = ()

    @property
    def of_stream(self) -> bool:
        return "{name}" in self.path
