"""Where the committer's appends go: the side of the log that gives heads, recognises retries and publishes.

All calls come from the committer's thread. What `publish` was given is readable when it returns, all of it at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from millpond.log.embedded.journal import JournalFile, Written
from millpond.log.embedded.recovery import Floors
from millpond.log.producers import Ranges


class Target(Protocol):
    """Where committed appends go: requests of the kind that it knows. All calls come from the committer's thread."""

    def known(self, stream: int, producer: str, sequence: int) -> Ranges | None:
        """The offsets of an earlier append with this producer and sequence; may raise for a stale one."""
        ...

    def head(self, stream: int, streamlet: int) -> int:
        """The next free offset, as published."""
        ...

    @property
    def truncated(self) -> Mapping[int, int]:
        """The generation of streams that were truncated since the log was opened."""
        ...

    def publish(self, requests: list[Any], written: Written | None) -> None:
        """Let readers see these appends, all at once. `written` is None for those not written yet."""
        ...

    def placed_later(self, request: Any, file: JournalFile, places: list[int]) -> None:
        """An append that was published before it was written has a place now."""
        ...

    def state(self, unwritten: Sequence[Any]) -> bytes:
        """What a new journal file must begin with: everything that was written, without `unwritten`."""
        ...

    floors: Floors
    """Those that the journal has."""

    def floors_now(self, unwritten: Sequence[Any]) -> Floors:
        """Where streams that are never archived begin, as far as they are written."""
        ...
