"""Reading a served stream from a place on. The node pushes batches, as many bytes ahead as the reader has room for.

A follower whose connection is lost, or whose node is restarted, goes on by itself at its position: each record comes
exactly once, because the position is that behind the last batch that was handed out. Without `follow` a lost
connection is an error: the end that the read was to have is not known any more.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType

import msgspec
import pyarrow as pa

from millpond.client.connection import Connection
from millpond.errors import Backpressure, Truncated, Unavailable
from millpond.flight.follower import Follower
from millpond.flight.link import FlightLink
from millpond.model.offsets import Position
from millpond.model.schema import OFFSET, STREAMLET
from millpond.query.overtaken import Overtaken
from millpond.wire.requests import Read

logger = logging.getLogger(__name__)

PAUSE_SECONDS_FIRST = 0.05
PAUSE_SECONDS_MAX = 2.0


class RemoteReader(Iterator[pa.RecordBatch]):
    """Made by `stream.read`. One thread iterates; any thread may close. `position` may be stored and given as
    `start`."""

    def __init__(self, connection: Connection, request: Read, give_up_seconds: float) -> None:
        self._connection, self._give_up_seconds = connection, give_up_seconds
        wanted = request.columns
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._link: FlightLink | None = None
        self._forgotten: weakref.finalize[..., RemoteReader] | None = None
        self._left = request.limit
        self._lost_since: float | None = None
        self._failures = 0
        self._held: pa.RecordBatch | None = None
        self._overtaken, request = _merging(request)
        self._request = request
        self._reader: Follower | None = self._opened(request)
        self._schema = self._reader.schema if wanted is None else _chosen(self._reader.schema, wanted)
        try:
            # Where it begins is asked for now: "latest" must not mean another place after a lost connection.
            while not self._reader.position and not self._reader.closed and self._held is None:
                self._held = self._reader.poll()
        except BaseException:
            self.close()
            raise
        self._position: Position | None = self._reader.position
        connection.ends(self)

    def _opened(self, request: Read) -> Follower:
        link: FlightLink | None = None
        if not request.follow:
            reader = self._connection.follow(request)
        else:
            link = self._connection.another()
            try:
                reader = link.follow(request)
            except BaseException:
                link.close()
                raise
        with self._lock:
            self._link = link
            # A reader that nobody has closed is let go of when it is forgotten: a follower's thread would keep it, and
            # its place at the node, for good.
            self._forgotten = weakref.finalize(self, _forget, reader, link)
            self._forgotten.atexit = False
        return reader

    @property
    def position(self) -> Position:
        """The next offset per streamlet: behind everything that was handed out, and behind what did not match."""
        return self._position if self._position is not None else Position({}, 1)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def closed(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed.is_set()

    def __next__(self) -> pa.RecordBatch:
        while not self._closed.is_set():
            batch = self.poll()
            if batch is not None:
                return batch
        raise StopIteration

    def poll(self) -> pa.RecordBatch | None:
        """The next batch; None at the end, or, with `follow`, if nothing arrived for a moment. For callers who have
        something else to look at now and then; `closed` tells the two apart."""
        if self._closed.is_set():
            return None
        try:
            return self._poll()
        except (Unavailable, Backpressure) as error:
            if self._closed.is_set():
                return None
            if self._connection.closed and self._request.follow:
                self.close()
                return None
            if not self._request.follow:
                self.close()
                raise
            self._lost(error)
            return None
        except Truncated:
            if not self._request.follow:
                self.close()
                raise
            # While the connection was lost. A follower goes over to the new generation, from its beginning.
            self._let_go()
            self._move_to(None)
            return None
        except BaseException:
            self.close()
            raise

    def _poll(self) -> pa.RecordBatch | None:
        reader = self._reader
        if reader is None:
            start = "earliest" if self._position is None else self._position.text
            again = msgspec.structs.replace(self._request, start=start, limit=self._left)
            reader = self._reader = self._opened(again)
        batch, self._held = self._held, None
        if batch is None:
            batch = reader.poll()
        if self._closed.is_set():
            self._let_go()  # closed while it was being opened
            return None
        self._move_to(reader.position or self._position)
        self._lost_since, self._failures = None, 0
        if batch is not None and self._overtaken is not None:
            batch = self._overtaken.without(batch)  # a lost connection was made again at the position
            self._overtaken.handed_out(batch, self.position)
        if batch is not None:
            if self._left is not None:
                self._left -= batch.num_rows
            if batch.schema.names != self._schema.names:
                batch = batch.select(self._schema.names)
            return batch if batch.num_rows else None
        if reader.closed:
            if self._request.follow and self._left != 0 and not self._closed.is_set():
                raise Unavailable("the node ended the stream", hint="it is being stopped, or started again")
            self.close()
        return None

    def _move_to(self, position: Position | None) -> None:
        known, self._position = self._position, position
        if self._overtaken is not None and (
            position is None or known is None or position.generation != known.generation
        ):
            self._overtaken = Overtaken()  # those were of a generation that is over

    def _lost(self, error: Unavailable | Backpressure) -> None:
        """Let go of the connection and wait a little, or give up."""
        self._let_go()
        now = time.monotonic()
        self._lost_since = now if self._lost_since is None else self._lost_since
        self._failures += 1
        if now - self._lost_since >= self._give_up_seconds:
            self.close()
            raise Unavailable(
                f"{self._request.stream} could not be followed for {now - self._lost_since:.0f} s: {error.message}",
                hint=f"when the node is back, read(start={self.position.text!r}, follow=True) goes on",
            ) from error
        pause = min(PAUSE_SECONDS_FIRST * 2 ** (self._failures - 1), PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
        logger.debug("%s: %s; going on in %.2f s", self._request.stream, error.message, pause)
        self._closed.wait(pause)

    def close(self) -> None:
        """End the iteration. A follower that waits in another thread ends within a moment."""
        self._closed.set()
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
            link, self._link = self._link, None
            if self._forgotten is not None:
                self._forgotten.detach()
        if reader is not None:
            reader.close()
        if link is not None:
            link.close()

    def __enter__(self) -> RemoteReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _merging(request: Read) -> tuple[Overtaken | None, Read]:
    """A follower of all streamlets in the order of time has to know which records it was sent."""
    if request.merge_within is None or not request.follow:
        return None, request
    if request.columns is not None:
        more = tuple(name for name in (STREAMLET, OFFSET) if name not in request.columns)
        request = msgspec.structs.replace(request, columns=(*request.columns, *more))
    return Overtaken(), request


def _chosen(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def _forget(reader: Follower, link: FlightLink | None) -> None:
    reader.forget()
    if link is not None:
        link.close()
