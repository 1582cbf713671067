"""How a pipeline does: what its runner tells the node, and what the node tells whoever looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from millpond.wire.request_base import Count

State = Literal["starting", "running", "waiting", "stopped", "failed"]
Text = Annotated[str, msgspec.Meta(max_length=4_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]

# The consumer groups of pipelines are called so, with the pipeline's name behind it.
GROUP_PREFIX = "pipeline/"
# A runner that was not heard of for so long is gone.
SILENT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """A pipeline as its runner last reported it. `waiting`: it failed, and starts again by itself. `behind`: records of
    its sources that it has not read. `batch` and the figures after it are those of the last micro-batch; `rows` of all
    since it started. `heard_seconds`: how long ago that was, told by the node."""

    name: Name
    sources: Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)]
    sink: Name
    state: State
    batch: int = -1
    rows: Count = 0
    batch_rows: Count = 0
    batch_seconds: float = 0.0
    behind: Count = 0
    restarts: Count = 0
    failure: Text = ""
    heard_seconds: float = 0.0
