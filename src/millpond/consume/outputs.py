"""What a transaction is going to append, checked and held in this process until it commits."""

from __future__ import annotations

from typing import Any

from millpond.consume.streams import Streams
from millpond.errors import InvalidValue
from millpond.log.engine import StreamAppend
from millpond.model.definition import DURABILITIES, Durability


def strongest(durabilities: list[Durability]) -> Durability:
    """The one that promises most."""
    return min(durabilities, key=DURABILITIES.index)


class Buffered:
    """See `Outputs`. Not thread-safe."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.appends: list[StreamAppend] = []
        self.durabilities: list[Durability] = []

    def append(self, stream: str, rows: Any) -> int:
        found = self._streams.stream(stream)
        append = found.prepare(rows)
        self.add(append, found.definition.durability)
        return sum(part.rows for part in append.parts)

    def add(self, append: StreamAppend, durability: Durability) -> None:
        """Rows that were made ready elsewhere."""
        self.appends.append(append)
        self.durabilities.append(durability)

    def make_ready(self) -> None:
        """Called once it is certain that what it holds will be appended, and before anybody looks at it."""

    def discard(self) -> None:
        self.appends.clear()
        self.durabilities.clear()


def buffered(outputs: object) -> Buffered:
    """What this process holds; anything else was made by another desk."""
    if not isinstance(outputs, Buffered):
        raise InvalidValue(
            f"outputs of {type(outputs).__name__}", hint="commit a transaction where it was begun: desk.outputs()"
        )
    return outputs
