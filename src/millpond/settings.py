"""The settings of a pond: one table, from which validation, the docs page and the command line are derived."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from millpond.errors import InvalidValue

# What the system's timers take, with room to spare.
_WAIT_SECONDS_MAX = 86_400
# A journal frame has four bytes for its length.
_FRAME_BYTES_MAX = 4_000_000_000


def _setting(default: Any, doc: str, *, low: float = 0, high: float = float("inf")) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high})


@dataclass(frozen=True)
class Settings:
    """How an embedded pond uses memory, disk and time. Every field has its unit in its name."""

    memory_bytes: int = _setting(1_000_000_000, "Live records kept in memory by the whole pond.", low=16_000_000)
    segment_bytes: int = _setting(8_000_000, "A segment is sealed when it has grown to this.", low=64_000)
    journal_file_bytes: int = _setting(128_000_000, "A journal file is rolled at this size.", low=64_000)
    append_bytes_max: int = _setting(256_000_000, "The largest single append.", low=1_000, high=_FRAME_BYTES_MAX)
    transaction_bytes_max: int = _setting(
        256_000_000, "The most that one transaction appends, over all of its streams.", low=1_000, high=_FRAME_BYTES_MAX
    )
    staged_bytes_max: int = _setting(1_000_000_000, "The most that may be staged and not committed.", low=1_000)
    staged_seconds: float = _setting(
        3_600.0, "How long a stage is held after the last put to it.", low=1, high=_WAIT_SECONDS_MAX
    )
    group_bytes_max: int = _setting(64_000_000, "The most that one group commit takes at once.", low=1_000)
    flush_seconds: float = _setting(
        1.0, "How long `os` and `memory` appends may wait for a sync.", low=0.01, high=_WAIT_SECONDS_MAX
    )
    disk_reserve_bytes: int = _setting(
        64_000_000, "Appends are refused when less is free, so that settling and compaction still have room."
    )
    memory_wait_seconds: float = _setting(
        5.0, "How long an append waits for memory before it is refused.", high=_WAIT_SECONDS_MAX
    )
    producers_max: int = _setting(
        10_000, "Producers and idempotency keys remembered per stream; the longest idle is forgotten first.", low=1
    )
    block_segments: int = _setting(
        16, "Segments in a block: what settles as one object, where layout and time partition allow.", low=1
    )
    object_bytes_min: int = _setting(
        8_000_000,
        "What an object of a stream with a layout has in memory at least, when the pond settles by itself or a job "
        "loads: fewer buckets are used where all of them would be smaller. `settle()` uses all.",
    )
    small_object_bytes: int = _setting(32_000_000, "Objects under this are merged in the background.")
    retry_seconds_max: float = _setting(60.0, "The longest pause between attempts of a failing settle.", low=0.01)
    pin_seconds: float = _setting(
        300.0,
        "How long settled records stay in memory for groups that have not processed them; 0: not at all.",
    )
    query_history_max: int = _setting(
        10_000, "Queries on record in `_pond/queries`, with their predicates and the literals in them; 0: none."
    )
    query_history_seconds: float = _setting(2_592_000.0, "How long a query stays on record.", low=1)
    streams_max: int = _setting(100_000, "Streams in a pond.", low=1)
    journal_clean_ratio: float = _setting(0.25, "A journal file with less live data is copied forward and removed.")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, low, high = getattr(self, each.name), each.metadata["low"], each.metadata["high"]
            known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not known or not low <= value <= high:
                most = "" if high == float("inf") else f", at most {high:,}"
                raise InvalidValue(
                    f"setting {each.name} = {value!r}", hint=f"{each.metadata['doc']} At least {low:,}{most}."
                )
        if self.segment_bytes > self.memory_bytes:
            raise InvalidValue("segment_bytes is larger than memory_bytes", hint="a segment must fit in memory")

    @property
    def block_bytes(self) -> int:
        """The rows of one block, as they are in memory."""
        return self.segment_bytes * self.block_segments


def settings_table() -> list[tuple[str, Any, str]]:
    """Name, default and meaning of every setting, for docs and help."""
    return [(each.name, each.default, each.metadata["doc"]) for each in fields(Settings)]
