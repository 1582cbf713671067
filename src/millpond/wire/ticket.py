"""The message by which a live range is asked for, and its strict decoding.

A ticket says everything: which records (stream, generation, offsets per streamlet), which columns, and a predicate
that rows may be left out by. It holds no reference to a query or to anything the node would have to remember.

On the wire it is JSON, e.g.

    {"stream":7,"generation":1,"ranges":{"0":[120,480]},"columns":["vid","temp"],"predicate":{"is":"compare",...}}

Invariant: what `decode_ticket` returns is within bounds and of the right types; everything else is `InvalidInput`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from millpond.errors import InvalidInput, InvalidPredicate, TooLarge
from millpond.model.definition import STREAMLETS_MAX
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import JSON_BYTES_MAX, Predicate, decode, encode
from millpond.model.schema import COLUMNS_MAX, SYSTEM_COLUMNS

# A predicate at its bound, and every column by a long name.
TICKET_BYTES_MAX = JSON_BYTES_MAX + 2**20

_Id = Annotated[int, msgspec.Meta(ge=0)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# The last one is that of loads.
_Streamlet = Annotated[int, msgspec.Meta(ge=0, le=STREAMLETS_MAX)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class LiveTicket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The records of `ranges` (streamlet -> [start, stop)); `columns` in the order wanted; `predicate` is loose:
    rows for which it is not true may be left out, and need not be. `cutoff_micros` is not: what was ingested before has
    expired for this query."""

    stream: _Id
    generation: _Number
    ranges: dict[_Streamlet, OffsetRange]
    columns: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1, max_length=COLUMNS_MAX + len(SYSTEM_COLUMNS))]
    predicate: Predicate | None = None
    cutoff_micros: _Number | None = None


class _OnTheWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: _Id
    generation: _Number
    ranges: dict[_Streamlet, tuple[_Number, _Number]]
    columns: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1, max_length=COLUMNS_MAX + len(SYSTEM_COLUMNS))]
    predicate: msgspec.Raw = msgspec.Raw(b"null")
    cutoff_micros: _Number | None = None


_DECODER = msgspec.json.Decoder(_OnTheWire)
_HINT = "tickets are made by Millpond itself: are both ends of the same version?"


def encode_ticket(ticket: LiveTicket) -> bytes:
    """The ticket as bytes."""
    ranges = {streamlet: (offsets.start, offsets.stop) for streamlet, offsets in ticket.ranges.items()}
    predicate = msgspec.Raw(b"null" if ticket.predicate is None else encode(ticket.predicate))
    cutoff = ticket.cutoff_micros
    return msgspec.json.encode(_OnTheWire(ticket.stream, ticket.generation, ranges, ticket.columns, predicate, cutoff))


def decode_ticket(data: bytes) -> LiveTicket:
    """The ticket in untrusted bytes."""
    if len(data) > TICKET_BYTES_MAX:
        raise TooLarge(f"a ticket of {len(data)} bytes is over the bound of {TICKET_BYTES_MAX}", hint=_HINT)
    try:
        plain = _DECODER.decode(data)
        ranges = {streamlet: OffsetRange(*offsets) for streamlet, offsets in plain.ranges.items()}
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not a ticket: {error}", hint=_HINT) from error
    if len(set(plain.columns)) != len(plain.columns):
        raise InvalidInput("not a ticket: a column is named twice", hint=_HINT)
    raw = bytes(plain.predicate)
    try:
        predicate = None if raw == b"null" else decode(raw)
    except InvalidPredicate as error:
        raise InvalidInput(f"not a ticket: {error.message}", hint=_HINT) from error
    return LiveTicket(plain.stream, plain.generation, ranges, plain.columns, predicate, plain.cutoff_micros)
