"""What groups need of a pond: its streams, to read them and to append to them."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from millpond.log.engine import StreamAppend
from millpond.model.definition import StreamDefinition
from millpond.query import Halves


class ConsumedStream(Protocol):
    """A stream of the pond. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> StreamDefinition:
        """`StreamNotFound` once it was dropped."""
        ...

    @property
    def halves(self) -> Halves: ...

    def prepare(self, rows: Any) -> StreamAppend:
        """Rows of any form that `append` takes, checked and ready to be appended together with others."""
        ...


class Streams(Protocol):
    """Thread-safe."""

    def stream(self, name: str) -> ConsumedStream:
        """`StreamNotFound` if there is none."""
        ...

    def make_dead(self, name: str, schema: pa.Schema) -> ConsumedStream:
        """The stream for dead letters, made if it is not there."""
        ...
