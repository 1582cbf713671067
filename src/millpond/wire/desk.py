"""The desk: where every door brings its requests. One protocol, so that doors know neither each other nor the pond.

Whoever implements it checks the caller's right before anything else, in one place for all requests. A door's part is to
find out who calls (`authenticate`), to keep its own bounds, and to translate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from millpond.log.engine import Ack, Told
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import Position
from millpond.wire.access import Caller
from millpond.wire.requests import Append, Call, Fetch, Read, StreamRequest
from millpond.wire.ticket import LiveTicket


class Batches(NamedTuple):
    """What a fetch gives: errors of the request are raised before there is one, later ones while iterating."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Reader(Protocol):
    """A read that is under way. One thread polls; any thread may close."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def position(self) -> Position:
        """The next offset per streamlet, and of which generation."""
        ...

    @property
    def closed(self) -> bool: ...

    def poll(self) -> pa.RecordBatch | None:
        """The next batch; None at the end (`closed` then), or when nothing arrived for a moment."""
        ...

    def close(self) -> None: ...


class PatientReader(Reader, Protocol):
    """One that may be kept waiting for long, as doors do whose client is slow."""

    def rest(self) -> None:
        """Hold nothing until the next poll. From any thread."""
        ...


class Intake(Protocol):
    """Takes single records of one stream, for a caller who may. For one request: rights are not looked at again."""

    @property
    def definition(self) -> StreamDefinition: ...

    def submit_json(self, text: bytes, told: Told) -> None:
        """Append one JSON object, without waiting: see `RowAppender.submit`."""
        ...

    def submit(self, row: Mapping[str, Any], told: Told) -> None:
        """Append one record given as a dict, without waiting."""
        ...


class Desk(Protocol):
    """Thread-safe. Every method but `authenticate`, `definition` and `intake` may block."""

    def authenticate(self, token: str | None) -> Caller:
        """Who shows this token; `Unauthenticated` if nobody may who shows that. Quick."""
        ...

    def call(self, caller: Caller, request: Call) -> Any:
        """The answer, as the request's class says."""
        ...

    def fetch(self, caller: Caller, request: Fetch) -> Batches: ...

    def live(self, caller: Caller, ticket: LiveTicket) -> Batches:
        """What Spark's executors fetch; takes the right to read the stream that the ticket names."""
        ...

    def read(self, caller: Caller, request: Read) -> PatientReader: ...

    def append(self, caller: Caller, request: Append, rows: Any) -> Ack:
        """Append rows of any form that `Stream.append` takes."""
        ...

    def definition(self, caller: Caller, request: StreamRequest) -> StreamDefinition:
        """What the request's stream is, for those who decode records; takes the right that the request takes. Quick."""
        ...

    def intake(self, caller: Caller, request: Append) -> Intake:
        """Where single records of a stream are put without waiting, at the stream's durability. Quick."""
        ...

    def submit_batch(
        self, caller: Caller, request: Append, batch: pa.RecordBatch | pa.Table, told: Told, after: object = None
    ) -> object:
        """Append a batch without waiting until it is safe: see `LogEngine.submit`, also for `after`."""
        ...
