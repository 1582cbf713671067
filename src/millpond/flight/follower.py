"""A follower, from the client's side: pushed batches, and the credit that keeps them coming.

A thread of its own takes what arrives, so that a node that has gone silent is noticed and a slow caller still answers
heartbeats. What it holds is bounded: the node sends no more than was granted, and a batch's bytes are granted again
when the caller has taken it.
"""

from __future__ import annotations

import logging
import queue
import threading
from types import TracebackType

import pyarrow as pa
from pyarrow import flight

from millpond.errors import InvalidValue, MillpondError, Unavailable
from millpond.flight.errors import as_ours, raised_as_ours
from millpond.flight.messages import Credit, PushNote, decode_note, encode_note, encode_request, failure_in
from millpond.flight.patience import within
from millpond.model.offsets import Position
from millpond.wire.requests import Read

logger = logging.getLogger(__name__)

# How long `poll` waits before it says that nothing has arrived.
_MOMENT_SECONDS = 0.2
_Arrived = tuple[pa.RecordBatch | None, PushNote]


class Follower:
    """Made by `FlightLink.follow`. See `wire.desk.Reader`: one thread polls; any thread may close."""

    def __init__(
        self,
        client: flight.FlightClient,
        location: str,
        request: Read,
        options: flight.FlightCallOptions,
        window_bytes: int,
        timeout_seconds: float,
    ) -> None:
        """`timeout_seconds`: how long the node may say nothing at all."""
        if window_bytes < 1:
            raise InvalidValue(f"a window of {window_bytes} bytes", hint="at least 1; 16 MB is plenty")
        self._location, self._window_bytes, self._timeout_seconds = location, window_bytes, timeout_seconds
        self._arrived: queue.SimpleQueue[_Arrived | None] = queue.SimpleQueue()  # None: nothing more will
        self._failure: MillpondError | None = None
        self._closed = threading.Event()
        self._writing = threading.Lock()
        self._position = Position({}, 1)
        self._owed_bytes = 0
        self._silent_seconds = 0.0
        with raised_as_ours(location):
            descriptor = flight.FlightDescriptor.for_command(encode_request(request))
            self._writer, self._reader = within(
                timeout_seconds,
                location,
                lambda: client.do_exchange(descriptor, options),
                lambda late: late[1].cancel(),
            )
            try:
                self.schema: pa.Schema = within(timeout_seconds, location, self._opened)
            except BaseException:
                self.close()
                raise
        self._taking = threading.Thread(target=self._take, name="millpond-follow", daemon=True)
        self._taking.start()

    def _opened(self) -> pa.Schema:
        self._grant(self._window_bytes)
        return self._reader.schema

    @property
    def position(self) -> Position:
        """The next offset per streamlet: behind everything that was handed out, and behind what did not match."""
        return self._position

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def poll(self, timeout_seconds: float = _MOMENT_SECONDS) -> pa.RecordBatch | None:
        """The next batch; None at the end, or if nothing arrived for a moment."""
        if self._closed.is_set():
            return None
        try:
            arrived = self._arrived.get(timeout=timeout_seconds)
        except queue.Empty:
            self._silent_seconds += timeout_seconds
            if self._silent_seconds < self._timeout_seconds:
                return None
            self.close()
            raise Unavailable(
                f"{self._location} has said nothing for {self._silent_seconds:.0f} s", hint="is it there? follow again"
            ) from None
        self._silent_seconds = 0.0
        if arrived is None:
            self.close()
            if self._failure is not None:
                raise self._failure
            return None
        batch, note = arrived
        self._position = Position(note.position, note.generation)
        if batch is not None:
            self._took(note.bytes)
        return batch

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> pa.RecordBatch:
        while not self._closed.is_set():
            batch = self.poll()
            if batch is not None:
                return batch
        raise StopIteration

    def _took(self, size: int) -> None:
        # Not for every small batch: a grant is a message.
        self._owed_bytes += size
        if self._owed_bytes * 4 >= self._window_bytes:
            owed, self._owed_bytes = self._owed_bytes, 0
            try:
                self._grant(owed)
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                # It has ended; what arrived before is handed out first.
                self._failure = self._failure or as_ours(error, self._location)

    def _grant(self, size: int) -> None:
        with self._writing:
            self._writer.write_metadata(encode_note(Credit(size)))

    def _take(self) -> None:
        """In a thread of its own: everything that arrives."""
        try:
            while True:
                chunk = self._reader.read_chunk()
                note = decode_note(chunk.app_metadata.to_pybytes() if chunk.app_metadata else None, PushNote)
                self._failure = self._failure or failure_in(note)
                if self._failure is not None:
                    break
                if note.end:
                    self._arrived.put((None, note))
                    break
                if chunk.data is None:
                    self._grant(0)
                self._arrived.put((chunk.data, note))
        except StopIteration:
            if not self._closed.is_set():
                self._failure = self._failure or Unavailable(f"{self._location} ended the read", hint="follow again")
        except (flight.FlightError, pa.ArrowException, OSError, MillpondError) as error:
            ours = error if isinstance(error, MillpondError) else as_ours(error, self._location)
            self._failure = self._failure or ours
        finally:
            self._arrived.put(None)
            if self._closed.is_set():
                self._close_writer()

    def close(self) -> None:
        """End it. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._reader.cancel()
            self._close_writer()

    def forget(self) -> None:
        """End it without waiting for anything, for whoever must not: a finalizer runs in whatever thread there is, also
        in one that is just writing here."""
        if not self._closed.is_set():
            self._closed.set()
            self._reader.cancel()  # which ends the thread, and that closes the rest

    def _close_writer(self) -> None:
        try:
            with self._writing:
                self._writer.close()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            logger.debug("closing a read: %s", error)  # it was cut short, which is what was wanted

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
