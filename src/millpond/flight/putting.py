"""A put: batches in, an acknowledgement for each, in order."""

from __future__ import annotations

import msgspec
from pyarrow import flight

from millpond.flight.errors import as_flight_error, failure_of
from millpond.flight.limits import Limits
from millpond.flight.messages import AckNote, BatchNote, decode_note, encode_note
from millpond.log.engine import Ack
from millpond.wire.access import Caller
from millpond.wire.desk import Desk
from millpond.wire.requests import Append


class Putting:
    """One put. `run` is called by the handler's thread."""

    def __init__(
        self,
        desk: Desk,
        caller: Caller,
        request: Append,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
        limits: Limits,
    ) -> None:
        self._desk, self._caller, self._request, self._limits = desk, caller, request, limits
        self._reader, self._writer = reader, writer
        self._next = request.sequence
        self._acknowledged = 0

    def run(self) -> None:
        """Until the client has sent all, or something is wrong."""
        self._desk.definition(self._caller, self._request)  # before anything of it is read
        try:
            for chunk in self._reader:
                if chunk.data is not None:
                    self._take(chunk)
        except Exception as error:
            note = AckNote(failure=msgspec.Raw(failure_of(error)), acknowledged=self._acknowledged)
            self._writer.write(encode_note(note))
            raise as_flight_error(error, self._acknowledged) from error

    def _take(self, chunk: flight.FlightStreamChunk) -> None:
        note = decode_note(chunk.app_metadata.to_pybytes() if chunk.app_metadata is not None else None, BatchNote)
        sequence = self._next if note.sequence is None else note.sequence
        if sequence is not None:
            self._next = sequence + 1
        request = msgspec.structs.replace(self._request, sequence=sequence)
        ack = self._desk.append(self._caller, request, chunk.data)
        self._writer.write(encode_note(note_of(ack, chunk.data.num_rows)))
        self._acknowledged += 1


def note_of(ack: Ack, rows: int) -> AckNote:
    """What a put is told of a batch."""
    return AckNote(ack.ranges, ack.durability, ack.duplicate, rows)
