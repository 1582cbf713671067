"""What the two ends of a door agree on: messages, errors on the wire, and the protocols that doors are served from.

`millpond.wire.live` is apart: only the end that has the data needs it.
"""

from millpond.wire.failures import Failure, decode_failure, encode_failure
from millpond.wire.served import Change, Door, ServedPond, ServedStream
from millpond.wire.ticket import LiveTicket, decode_ticket, encode_ticket

__all__ = [
    "LiveTicket",
    "encode_ticket",
    "decode_ticket",
    "Failure",
    "encode_failure",
    "decode_failure",
    "Door",
    "ServedStream",
    "ServedPond",
    "Change",
]
