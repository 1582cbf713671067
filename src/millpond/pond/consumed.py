"""A pond's streams as consumer groups need them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from millpond.pond.stream import Stream


class _Pond(Protocol):
    def stream(self, name: str) -> Stream: ...

    def create_stream(self, name: str, schema: pa.Schema | None = None, *, exist_ok: bool = False) -> Stream: ...


class PondStreams:
    """See `millpond.consume.streams.Streams`."""

    def __init__(self, pond: _Pond) -> None:
        self._pond = pond
        self.stream = pond.stream

    def make_dead(self, name: str, schema: pa.Schema) -> Stream:
        return self._pond.create_stream(name, schema, exist_ok=True)
