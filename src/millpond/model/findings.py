"""Findings: what verification has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be. An error means that data is missing or wrong; a warning, that it is not
    but something costs time or wants a look. `path` is relative to the stream's (or the pond's) directory."""

    severity: Severity
    path: str
    message: str
    hint: str
