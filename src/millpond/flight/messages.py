"""What comes to the Flight door as bytes, as requests; and what it says beside batches, as JSON.

A ticket is a `Fetch`, or a `Read` that ends, with its "do"; without one it is a `LiveTicket`. The command of a
descriptor is an `Append` for a put, a `Read` for an exchange. An action's type is the "do" of a `Call`, its body the
rest. Everything is untrusted: what is not a request is `InvalidInput`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from pyarrow import flight

from millpond.errors import InvalidInput, InvalidValue, MillpondError, NoSuchRoute, TooLarge
from millpond.log.engine import Ack
from millpond.model.definition import check_durability
from millpond.model.offsets import OffsetRange, Position
from millpond.wire.failures import decode_failure
from millpond.wire.requests import Append, Call, Fetch, Read, StreamRequest
from millpond.wire.ticket import TICKET_BYTES_MAX, LiveTicket, decode_ticket

T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
# Short by nature: a sequence, a credit.
_NOTE_BYTES_MAX = 10_000


class _Peek(msgspec.Struct, frozen=True):
    do: str | None = None


class BatchNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Beside a batch that is put."""

    sequence: _Count | None = None


class Credit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a follower says: so many bytes more may be sent. 0 only says that it is there."""

    credit: _Count = 0


class AckNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a put is told of each batch: its `Ack`, and how many rows it had; or, once and last, that it failed after so
    many acknowledged batches."""

    ranges: dict[int, OffsetRange] = {}
    durability: str = ""
    duplicate: bool = False
    rows: int = 0
    failure: msgspec.Raw = msgspec.Raw(b"")
    acknowledged: int = 0
    filtered: int = 0

    @property
    def ack(self) -> Ack:
        return Ack(self.ranges, check_durability(self.durability), self.duplicate, self.filtered)


class PushNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a follower is told, beside a batch or without one (a heartbeat): where it stands, what the batch takes of
    its credit, and, once and last, that this is the end or what went wrong."""

    position: Mapping[int, int] = {}
    bytes: int = 0
    end: bool = False
    failure: msgspec.Raw = msgspec.Raw(b"")
    generation: int = 1

    @classmethod
    def at(cls, position: Position, **more: Any) -> PushNote:
        """For one that stands there."""
        return cls(position, generation=position.generation, **more)


_CALL_NAMES = {kind.__struct_config__.tag: kind for kind in Call.__args__}


def action_names() -> list[tuple[str, str]]:
    """Every action there is, with what it does."""
    return [(str(name), _first_line(kind)) for name, kind in _CALL_NAMES.items()]


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def decode_action(kind: str, body: bytes, bytes_max: int = TICKET_BYTES_MAX) -> Call:
    """The request of an action."""
    if kind not in _CALL_NAMES:
        near = difflib.get_close_matches(kind[:100], [name for name, _ in action_names()], 3)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise NoSuchRoute(f"no action {kind[:100]!r}", hint=f"{meant}list_actions() names all there are")
    _check_size(body, bytes_max, "an action")
    fields = _decoded(body or b"{}", dict[str, Any], "the body of an action")
    if fields.setdefault("do", kind) != kind:
        raise InvalidInput(f"an action {kind!r} whose body says another", hint='leave "do" out of the body')
    call: Call = _decoded(msgspec.json.encode(fields), Call, f"a request {kind!r}")
    return call


def decode_got(ticket: bytes, bytes_max: int = TICKET_BYTES_MAX) -> Fetch | Read | LiveTicket:
    """What a ticket asks for."""
    _check_size(ticket, bytes_max, "a ticket")
    if _decoded(ticket, _Peek, "a ticket").do is None:
        return decode_ticket(ticket)
    request: Fetch | Read = _decoded(ticket, Fetch | Read, "a ticket")
    if isinstance(request, Read) and request.follow:
        raise InvalidInput("a get cannot follow a stream: it would never end", hint="follow it with DoExchange")
    return request


def decode_put(descriptor: flight.FlightDescriptor, bytes_max: int = TICKET_BYTES_MAX) -> Append:
    """Where a put goes."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return Append(stream_of(descriptor))
    request: Append = _command(descriptor, Append, bytes_max)
    return request


def decode_followed(descriptor: flight.FlightDescriptor, bytes_max: int = TICKET_BYTES_MAX) -> Read:
    """What an exchange follows."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return Read(stream_of(descriptor), start="latest", follow=True)
    request: Read = _command(descriptor, Read, bytes_max)
    return request


def decode_named(descriptor: flight.FlightDescriptor, bytes_max: int = TICKET_BYTES_MAX) -> str:
    """The stream that a descriptor is about: its path, or that of the request in its command."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return stream_of(descriptor)
    request: StreamRequest = _command(descriptor, Append | Read, bytes_max)
    return request.stream


def stream_of(descriptor: flight.FlightDescriptor) -> str:
    """The name in a descriptor's path, as one part or as several."""
    parts = descriptor.path or []
    try:
        return "/".join(part.decode() for part in parts)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"not a path of a stream: {error}", hint="a path is the stream's name, in UTF-8") from None


def _command(descriptor: flight.FlightDescriptor, kind: Any, bytes_max: int) -> Any:
    command = descriptor.command or b""
    _check_size(command, bytes_max, "a command")
    return _decoded(command, kind, "a command")


def decode_note(note: bytes | None, kind: type[T]) -> T:
    """What stands beside a batch, or without one."""
    data = note or b"{}"
    _check_size(data, _NOTE_BYTES_MAX, "a message beside a batch")
    decoded: T = _decoded(data, kind, "a message beside a batch")
    return decoded


def encode_request(request: Call | Fetch | Read | Append) -> bytes:
    """A request on its way out."""
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.end]
        raise InvalidValue(f"a text with {wrong!r} in it, which is no character", hint="texts are Unicode") from None


def encode_note(note: AckNote | PushNote | Credit | BatchNote) -> bytes:
    return msgspec.json.encode(note)


def failure_in(note: AckNote | PushNote) -> MillpondError | None:
    """The error that a note tells of."""
    return decode_failure(bytes(note.failure)) if note.failure else None


def _check_size(data: bytes, bytes_max: int, what: str) -> None:
    if len(data) > bytes_max:
        raise TooLarge(f"{what} of {len(data)} bytes is over the bound of {bytes_max}", hint="ask for less at once")


def _decoded(data: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not {what}: {str(error)[:200]}", hint="docs/flight.md shows what is understood") from None
