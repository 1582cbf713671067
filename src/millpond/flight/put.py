"""A put, from the client's side: batches go out one after the other, and acknowledgements come back in their order.

A thread of its own reads the acknowledgements, so that a caller who writes much before it looks at any never blocks the
node. What went wrong at the node arrives among them, and is raised by whatever the caller does next.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

import pyarrow as pa
from pyarrow import flight

from millpond.errors import InvalidValue, MillpondError, Unavailable
from millpond.flight.errors import as_ours
from millpond.flight.messages import AckNote, BatchNote, decode_note, encode_note, encode_request, failure_in
from millpond.log.engine import Ack
from millpond.wire.requests import Append

# How long to wait for a node to end a put that is given up.
_LET_GO_SECONDS = 1.0


class Put:
    """Made by `FlightLink.put`. One thread writes; one thread, the same or another, takes acknowledgements."""

    def __init__(
        self,
        client: flight.FlightClient,
        location: str,
        request: Append,
        options: flight.FlightCallOptions,
        timeout_seconds: float,
    ) -> None:
        self._client, self._location, self._request, self._options = client, location, request, options
        self._timeout_seconds = timeout_seconds
        self._writer: flight.FlightStreamWriter | None = None
        self.schema: pa.Schema | None = None
        self._acks: queue.SimpleQueue[Ack | None] = queue.SimpleQueue()  # None: there are no more
        self._failure: MillpondError | None = None
        self._written = self._taken = 0
        self._ended = False
        self._writing = threading.Lock()  # gRPC takes one write at a time, the last one included
        self._ended_writing = self._writer_closed = False
        self._abandoned = False

    @property
    def waiting(self) -> int:
        """How many batches were written whose acknowledgement nobody has taken."""
        return self._written - self._taken

    @property
    def usable(self) -> bool:
        """Whether nothing is known that would keep it from taking another batch."""
        return not self._ended and self._failure is None and (self._writer is None or self._hearing.is_alive())

    def write(self, batch: pa.RecordBatch, sequence: int | None = None) -> None:
        """Send a batch. Blocks while the node has as much as it takes. All batches have one schema."""
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise InvalidValue("this put is done", hint="start another one")
        batch = _plain(batch)
        try:
            if self._writer is None:
                self._begin(batch.schema)
            assert self._writer is not None
            with self._writing:
                if self._ended_writing or self._abandoned:
                    raise self._failure or Unavailable(f"{self._location} ended the put", hint="start another one")
                if sequence is None:
                    self._writer.write_batch(batch)
                else:
                    self._writer.write_with_metadata(batch, encode_note(BatchNote(sequence)))
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._why(error) from error
        finally:
            if self._abandoned:
                self._let_go()  # it was abandoned in the meantime
        self._written += 1

    def _begin(self, schema: pa.Schema) -> None:
        descriptor = flight.FlightDescriptor.for_command(encode_request(self._request))
        self._writer, reader = self._client.do_put(descriptor, schema, self._options)
        self.schema = schema
        self._hearing = threading.Thread(target=self._hear, args=(reader,), name="millpond-acks", daemon=True)
        self._hearing.start()

    def _hear(self, reader: flight.FlightMetadataReader) -> None:
        try:
            while True:
                data = reader.read()
                if data is None:
                    break
                note = decode_note(data.to_pybytes(), AckNote)
                failure = failure_in(note)
                if failure is not None:
                    self._failure = failure
                    self._end_writing()  # which is what the node waits for
                    break
                self._acks.put(note.ack)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self._failure = self._failure or as_ours(error, self._location)
        except MillpondError as error:
            self._failure = self._failure or error
        finally:
            self._acks.put(None)

    def _end_writing(self) -> None:
        with self._writing:
            if self._writer is not None and not self._ended_writing:
                self._ended_writing = True
                self._attempt(self._writer.done_writing)

    def next_ack(self, timeout_seconds: float | None = None) -> Ack:
        """The acknowledgement of the next batch. Raises what went wrong with it, or with one before."""
        if not self.waiting and self._failure is None:
            raise InvalidValue("no batch waits for its acknowledgement", hint="write one first")
        try:
            ack = self._acks.get(timeout=self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        except queue.Empty:
            raise Unavailable(f"{self._location} has not acknowledged a batch in time", hint="is it there?") from None
        if ack is None:
            self._acks.put(None)
            if self._failure is None:
                self._failure = self._why_ended()
            raise self._failure
        self._taken += 1
        return ack

    def _why_ended(self) -> MillpondError:
        """Why the node ended the put without a word among the acknowledgements, as it does with whoever may not put at
        all: closing tells."""
        self._ended = True
        try:
            self._close_writer()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            return as_ours(error, self._location)
        return self._failure or Unavailable(f"{self._location} ended the put", hint="start another one")

    def acks(self) -> Iterator[Ack]:
        """The acknowledgements of all that was written up to now, as they come."""
        while self.waiting:
            yield self.next_ack()

    def done(self) -> None:
        """Nothing more will be written: wait until the node has taken everything. Raises what went wrong;
        acknowledgements can still be taken afterwards. Idempotent."""
        if self._ended or self._writer is None:
            self._ended = True
            if self._failure is not None:
                raise self._failure
            return
        self._ended = True
        self._end_writing()
        self._hearing.join(self._timeout_seconds)
        if self._hearing.is_alive():
            raise Unavailable(f"{self._location} has not acknowledged everything in time", hint="is it there?")
        self._attempt(self._close_writer)
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Let go of it, whatever has become of what was written."""
        if self._ended:
            return
        self._ended = self._abandoned = True
        if self._writing.acquire(timeout=_LET_GO_SECONDS):
            self._writing.release()
            self._let_go()
        # Otherwise a write hangs; the thread that is in it lets go, if that ever ends.

    def _let_go(self) -> None:
        if self._writer is None:
            return
        self._end_writing()
        # The node ends what is done. A writer that nobody has closed complains when it is forgotten.
        self._hearing.join(_LET_GO_SECONDS)
        if not self._hearing.is_alive():
            self._attempt(self._close_writer)

    def _close_writer(self) -> None:
        # Once, and never during a write: gRPC aborts the process otherwise.
        with self._writing:
            if self._writer is not None and not self._writer_closed:
                self._ended_writing = self._writer_closed = True
                self._writer.close()

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self._failure = self._failure or as_ours(error, self._location)

    def _why(self, error: Exception) -> MillpondError:
        """What went wrong: the node says it among the acknowledgements, which may arrive a moment later."""
        if self._writer is not None:
            self._hearing.join(min(self._timeout_seconds, 5.0))
        if self._failure is None:
            self._failure = as_ours(error, self._location)
        return self._failure

    def __enter__(self) -> Put:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.done()
        else:
            self.abandon()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose dictionaries are written out: the node takes none."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
