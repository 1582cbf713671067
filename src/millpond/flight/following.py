"""A follower: batches are pushed as they arrive, as far as its credit goes.

Two threads: the handler's hears what the client says (credit, or only that it is there), the other pushes. gRPC lets
nobody end a call while a thread reads from it, so what goes wrong is told in a message first (`PushNote.failure`), and
becomes the call's own status once the client has stopped writing.

Flow control: the client grants bytes; a batch takes what its note says; nothing is sent at zero or below. So at most
one batch is sent beyond what was granted, and the node holds no more for a slow follower than that batch.

A follower that has nothing to be sent gets a heartbeat now and then, and answers it. One that says nothing at all for
long has gone without a word, or is none: its connection is cut.
"""

from __future__ import annotations

import threading
import time

import msgspec
import pyarrow as pa
from pyarrow import flight

from millpond.errors import InvalidInput, MillpondError, PondClosed, Unavailable
from millpond.flight.errors import as_flight_error, failure_of
from millpond.flight.limits import Limits
from millpond.flight.messages import Credit, PushNote, decode_note, encode_note
from millpond.flight.metering import meter_of
from millpond.flight.sockets import cut_peer
from millpond.wire.desk import PatientReader

# How long the pushing thread waits for credit before it looks whether its client is still there.
_LOOK_SECONDS = 0.2
# A client that has not asked for the next batch after so long is slow.
SLOW_SECONDS = 2.0


class Following:
    """One exchange. `run` is called by the handler's thread."""

    def __init__(
        self,
        context: flight.ServerCallContext,
        source: PatientReader,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        limits: Limits,
        closing: threading.Event,
    ) -> None:
        self._context, self._source, self._limits, self._closing = context, source, limits, closing
        self._reader, self._writer, self._meter = reader, writer, meter_of(context)
        self._changed = threading.Condition()
        self._credit = 0
        self._said_all = self._cut = False
        self._failure: Exception | None = None
        self._sent = self._heard = time.monotonic()
        self._polled: float | None = None  # when a batch was taken from the source, and it holds the next ones

    def rest_if_slow(self) -> None:
        """Called now and then from a thread that has nothing else to do: while a client takes nothing, or grants
        nothing, only the batch that is being sent is held for it."""
        since = self._polled
        if since is not None and time.monotonic() - since > SLOW_SECONDS:
            self._polled = None
            self._source.rest()

    def run(self) -> None:
        """Until the client has gone, or there is no more to send."""
        pusher = threading.Thread(target=self._push, name="millpond-push", daemon=True)
        pusher.start()
        try:
            self._listen()
        finally:
            with self._changed:
                self._said_all = True
                self._changed.notify()
            pusher.join()
        if self._failure is not None:
            raise as_flight_error(self._failure) from self._failure

    # What the client says.

    def _listen(self) -> None:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            note = chunk.app_metadata
            try:
                if chunk.data is not None:
                    raise InvalidInput("a follower sent a batch", hint="it is sent batches; to append, use DoPut")
                granted = decode_note(note.to_pybytes() if note is not None else None, Credit).credit
            except MillpondError as error:
                self._failure = self._failure or error
                return
            self._heard = time.monotonic()
            with self._changed:
                self._credit += granted
                self._changed.notify()

    # What it is sent.

    def _push(self) -> None:
        try:
            self._writer.begin(self._source.schema)
            self._say(PushNote.at(self._source.position))  # where it begins: "latest" is a place now
            while self._wanted():
                self._check_heard()
                if self._has_credit():
                    self._push_next()
                self._beat_if_due()
                if self._source.closed:
                    break
            if not self._source.closed:  # cut short, which is not an end: whoever reads must know
                raise PondClosed("the node is closing", hint="read on from the position when it is back")
            self._say(PushNote.at(self._source.position, end=True))
        except Exception as error:
            self._failure = self._failure or error
            self._tell_failure(error)
            if self._cut:
                cut_peer(self._context.peer())
        finally:
            self._source.close()

    def _wanted(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return not self._closing.is_set() and not self._context.is_cancelled()

    def _check_heard(self) -> None:
        silent = time.monotonic() - self._heard
        if silent > self._limits.idle_seconds and not self._said_all:
            self._cut = True
            raise Unavailable(
                f"nothing was heard of a follower for {silent:.0f} s", hint="answer heartbeats: grant credit, or 0"
            )

    def _has_credit(self) -> bool:
        with self._changed:
            if self._credit <= 0 and self._said_all:
                self._source.close()  # there will never be more
            elif self._credit <= 0:
                self._changed.wait(_LOOK_SECONDS)
            return self._credit > 0

    def _push_next(self) -> None:
        self._polled = None
        batch = self._source.poll()
        if batch is None:
            return
        self._polled = time.monotonic()
        batch = _apart(batch)
        size = batch.get_total_buffer_size()  # its own: `nbytes` would look at each for what of it is used
        with self._changed:
            self._credit -= size
        self._writer.write_with_metadata(batch, encode_note(PushNote.at(self._source.position, bytes=size)))
        self._meter.bytes_out += size
        self._sent = time.monotonic()

    def _beat_if_due(self) -> None:
        if time.monotonic() - self._sent >= self._limits.heartbeat_seconds:
            self._say(PushNote.at(self._source.position))

    def _say(self, note: PushNote) -> None:
        self._writer.write_metadata(encode_note(note))
        self._sent = time.monotonic()

    def _tell_failure(self, error: Exception) -> None:
        try:
            self._say(PushNote.at(self._source.position, failure=msgspec.Raw(failure_of(error))))
        except Exception as gone:  # the call's status says it as well, if there is anybody left to hear it
            self._failure = self._failure or gone


def _apart(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy: a slice keeps all that it is a slice of in memory, for as long as it takes to send it. In memory of the
    system's, which is given back at once: Arrow's own pool keeps what each thread has freed. By way of its message, of
    which nothing but the slice is written, and a tenth as long as `take` needs for a single record."""
    return pa.ipc.read_record_batch(batch.serialize(memory_pool=pa.system_memory_pool()), batch.schema)
