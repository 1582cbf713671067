"""What a pond and its streams say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.log.engine import LogStatus
from millpond.model.definition import Durability
from millpond.pond.settling import SettleState


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream: where it begins to be live, where it ends, how much of it is where, and how settling goes."""

    name: str
    id: int
    generation: int
    streamlets: int
    durability: Durability
    boundary: Mapping[int, int]
    head: Mapping[int, int]
    rows_live: int
    rows_settled: int
    bytes_live: int
    bytes_settled: int
    objects: int
    version: int
    settling: SettleState
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PondStatus:
    """The whole pond. `write_amplification` is what was written to disk in all over what was appended, since the pond
    was opened (K1)."""

    path: str
    id: str
    streams: tuple[StreamStatus, ...]
    log: LogStatus
    write_amplification: float | None
    warnings: tuple[str, ...] = ()
