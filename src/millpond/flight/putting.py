"""A put: batches in, an acknowledgement for each, in order.

Two threads: the handler's reads batches, has them checked and submits them, without waiting for what it submitted
before; the other sends acknowledgements as they come. Each batch is kept whole or not at all, and none is kept after
one that was not.

Small batches that arrive while others are being committed are held back and submitted as one, when they are many or
when that commit is done: checking and writing costs as much for a thousand rows as for some thousands. A batch that
finds nothing under way is submitted at once. Batches with a sequence of their own are never put together, nor those
of a stream that spreads the rows of a batch over streamlets: who got which offsets would be lost.

gRPC lets nobody end a call while a thread reads from it, so a failure is told among the acknowledgements first, and
becomes the call's own status once the client has sent something more, or has stopped.

What a batch takes once it is decompressed is known only after Flight has decompressed it: pyarrow offers no bound
before. The right to write is checked before the first batch is read, and what is too large is refused right after it
was decoded; so one batch per put is what anybody with that right can make the node take. Columns of types that are
not safe to decode at all are refused before that.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

import msgspec
import pyarrow as pa
from pyarrow import flight

from millpond.errors import Backpressure, InvalidInput, InvalidRecord, PondClosed
from millpond.flight.errors import as_flight_error, failure_of
from millpond.flight.limits import Limits
from millpond.flight.messages import AckNote, BatchNote, decode_note, encode_note
from millpond.flight.metering import meter_of
from millpond.log.engine import Ack
from millpond.model.offsets import OffsetRange
from millpond.wire.access import Caller
from millpond.wire.desk import Desk
from millpond.wire.requests import Append

logger = logging.getLogger(__name__)

# How long the handler waits for room before it looks whether its client is still there.
_LOOK_SECONDS = 0.2
# Batches of this size gain nothing from being put together with others.
_LARGE_BYTES = 250_000
# What is held back is submitted when it is this much.
_TOGETHER_BYTES = 1_000_000


class Putting:
    """One put. `run` is called by the handler's thread."""

    def __init__(
        self,
        desk: Desk,
        caller: Caller,
        request: Append,
        context: flight.ServerCallContext,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
        limits: Limits,
        closing: threading.Event,
    ) -> None:
        self._desk, self._caller, self._request, self._limits = desk, caller, request, limits
        self._context, self._reader, self._writer, self._closing = context, reader, writer, closing
        self._meter = meter_of(context)
        self._sequence = request.sequence
        self._together = self._refused = False
        self._submitting = threading.Lock()  # taken before `_changed`, never inside it
        self._held: list[tuple[_Slot, Append, pa.RecordBatch]] = []  # read, and not submitted yet
        self._held_bytes = 0
        self._last: object = None  # what the last submit returned
        self._changed = threading.Condition()
        self._slots: deque[_Slot] = deque()  # in the order of batches; the acknowledging thread takes them
        self._under_way = 0  # submitted, and not committed yet
        self._bytes = 0  # read, and not committed yet
        self._read_all = False
        self._failure: BaseException | None = None
        self._acknowledged = 0

    def run(self) -> None:
        """Until the client has sent all, or something is wrong."""
        definition = self._desk.definition(self._caller, self._request)  # its rights, before anything of it is read
        alone = bool(self._request.producer or self._request.stage)
        self._together = not alone and not definition.sifts and (definition.streamlets == 1 or not definition.keys)
        check_plain(self._reader.schema)
        acknowledging = threading.Thread(target=self._acknowledge, name="millpond-acks", daemon=True)
        acknowledging.start()
        try:
            self._read()
            self._submit()
        finally:
            with self._changed:
                self._read_all = True
                self._changed.notify_all()
            acknowledging.join()
        if self._failure is not None:
            raise as_flight_error(self._failure, self._acknowledged) from self._failure

    # Batches in: the handler's thread.

    def _read(self) -> None:
        while self._failure is None:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            except pa.ArrowException as error:
                # Not Arrow, or the client has gone. What came before it is acknowledged first.
                self._refuse(error)
                return
            if chunk.data is not None and not self._take(chunk):
                return

    def _take(self, chunk: flight.FlightStreamChunk) -> bool:
        """Take in a batch; whether to go on."""
        batch = chunk.data
        slot = _Slot(self, batch.num_rows, batch.get_total_buffer_size())
        self._meter.bytes_in += slot.bytes
        try:
            self._wait_for_room(slot.bytes)
            request = self._numbered(chunk.app_metadata)
        except Exception as error:
            self._refuse(error)
            return False
        with self._changed:
            self._slots.append(slot)
            self._bytes += slot.bytes
            self._held.append((slot, request, batch))
            self._held_bytes += slot.bytes
            small = slot.bytes < _LARGE_BYTES and self._held_bytes < _TOGETHER_BYTES
            wait = self._together and small and self._under_way > 0
        if not wait:
            self._submit()
        return True

    def _submit(self) -> None:
        """Submit what is held back, unless something before it was refused. Either thread."""
        with self._submitting:
            with self._changed:
                held, self._held, self._held_bytes = self._held, [], 0
                self._under_way += len(held)
            if self._refused:
                return
            if len(held) > 1 and self._together:
                try:
                    self._submit_together(held)
                    return
                except InvalidInput:
                    pass  # each by itself tells which is wrong, and why
                except Exception as error:
                    self._submit_failed(held[0][0], error)
                    return
            for slot, request, batch in held:
                try:
                    self._last = self._desk.submit_batch(self._caller, request, batch, slot.told, self._last)
                except Exception as error:
                    self._submit_failed(slot, error)
                    return

    def _submit_failed(self, slot: _Slot, error: Exception) -> None:
        self._refused = True
        slot.told(None, error)

    def _submit_together(self, held: list[tuple[_Slot, Append, pa.RecordBatch]]) -> None:
        def told(ack: Ack | None, error: BaseException | None) -> None:
            at = 0
            for slot, _, _ in held:
                slot.told(None if ack is None else _part_of(ack, at, slot.rows), error)
                at += slot.rows

        # As a table: its columns are validated before anything is copied together.
        table = pa.Table.from_batches([batch for _, _, batch in held])
        self._last = self._desk.submit_batch(self._caller, self._request, table, told, self._last)

    def _numbered(self, note: pa.Buffer | None) -> Append:
        """The request of one batch: with its own sequence, or the one after the last."""
        if note is not None:
            own = decode_note(note.to_pybytes(), BatchNote).sequence
            self._sequence = self._sequence if own is None else own
        if self._sequence is None:
            return self._request
        request = msgspec.structs.replace(self._request, sequence=self._sequence)
        self._sequence += 1
        return request

    def _wait_for_room(self, size: int) -> None:
        waited = 0.0
        with self._changed:
            while self._failure is None and not self._has_room(size) and not self._context.is_cancelled():
                self._changed.wait(_LOOK_SECONDS)
                waited += _LOOK_SECONDS
                if len(self._slots) >= self._limits.put_acks_max and waited >= self._limits.idle_seconds:
                    raise Backpressure(
                        f"{len(self._slots)} acknowledgements wait to be read", hint="read them while you put"
                    )

    def _has_room(self, size: int) -> bool:
        fits = not self._bytes or self._bytes + size <= self._limits.put_bytes_max
        return fits and len(self._slots) < self._limits.put_acks_max

    def _refuse(self, error: BaseException) -> None:
        """What was read is not to be kept: after the acknowledgements of all before it, that is what is said."""
        slot = _Slot(self, 0, 0)
        slot.error, slot.done = error, True
        with self._changed:
            self._slots.append(slot)
            self._changed.notify_all()

    # Told by the committer's thread, which must not be kept.

    def told(self, slot: _Slot) -> None:
        with self._changed:
            # Done and no longer under way at one moment, for whoever waits for either.
            slot.done = True
            self._bytes -= slot.bytes
            self._under_way -= 1
            if self._slots and self._slots[0] is slot:
                self._changed.notify_all()

    # Acknowledgements out: a thread of its own.

    def _acknowledge(self) -> None:
        try:
            while (slots := self._next_told()) and self._failure is None:
                if self._held and not self._under_way:
                    self._submit()
                for slot in slots:
                    if slot.error is not None:
                        self._fail(slot.error)
                        return
                    assert slot.ack is not None
                    self._writer.write(encode_note(note_of(slot.ack, slot.rows)))
                    self._acknowledged += 1
        except PondClosed as error:
            self._fail(error)
        except Exception as error:
            logger.debug("a put's client has gone: %s", error)
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _next_told(self) -> list[_Slot]:
        """The next ones that are done, once there are some; none when there will be no more."""
        with self._changed:
            while not self._changed.wait_for(
                lambda: self._slots[0].done if self._slots else self._read_all, _LOOK_SECONDS
            ):
                # The handler may wait for its client for ever; the client ends the put when it hears of this.
                if self._closing.is_set() and not self._slots:
                    raise PondClosed("the node is closing", hint="put again when it is back")
            slots = []
            while self._slots and self._slots[0].done:
                slots.append(self._slots.popleft())
            self._changed.notify_all()
            return slots

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        note = AckNote(failure=msgspec.Raw(failure_of(error)), acknowledged=self._acknowledged)
        self._writer.write(encode_note(note))


class _Slot:
    """A batch that was submitted, and what became of it."""

    __slots__ = ("ack", "bytes", "done", "error", "putting", "rows")

    def __init__(self, putting: Putting, rows: int, size: int) -> None:
        self.putting, self.rows, self.bytes = putting, rows, size
        self.ack: Ack | None = None
        self.error: BaseException | None = None
        self.done = False

    def told(self, ack: Ack | None, error: BaseException | None) -> None:
        self.ack, self.error = ack, error
        self.putting.told(self)


def check_plain(schema: pa.Schema) -> None:
    """`InvalidRecord` for columns that are not to be decoded at all. Dictionaries may come in parts, which Arrow joins
    before anybody can look whether they are valid, and a bad one crashes the process; an extension type runs code of
    its own."""
    for field in schema:
        kind = _not_plain(field.type)
        if kind:
            raise InvalidRecord(
                f"column {field.name!r} comes as {kind} type {str(field.type)[:100]}",
                hint="put plain columns: dictionary_decode() or .storage gives one",
            )


def _not_plain(kind: pa.DataType) -> str:
    if isinstance(kind, pa.BaseExtensionType):
        return "extension"
    if pa.types.is_dictionary(kind):
        return "dictionary"
    return next((found for at in range(kind.num_fields) if (found := _not_plain(kind.field(at).type))), "")


def _part_of(ack: Ack, at: int, rows: int) -> Ack:
    """The acknowledgement of some rows of an append that went to one streamlet."""
    ((streamlet, offsets),) = ack.ranges.items() if rows else [(0, OffsetRange(0, 0))]
    start = offsets.start + at
    return Ack({streamlet: OffsetRange(start, start + rows)} if rows else {}, ack.durability, ack.duplicate)


def note_of(ack: Ack, rows: int) -> AckNote:
    """What a put is told of a batch."""
    return AckNote(ack.ranges, ack.durability, ack.duplicate, rows, filtered=ack.filtered)
