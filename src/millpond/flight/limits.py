"""The bounds that the Flight door keeps. What an append or a message may hold is bounded where it is decoded."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.wire.ticket import TICKET_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """`streams_max`: puts, gets and followers at once; each holds a thread or two and a batch or two. `calls_max`:
    actions and questions at once. `request_bytes_max`: one ticket, action or descriptor. `put_bytes_max`: of one put,
    read and not yet committed; `put_acks_max`: committed, and not yet taken by the client. `heartbeat_seconds`: how
    often a follower that has nothing to be sent is told so; one that says nothing for `idle_seconds` is cut off.
    `close_seconds`: how long a door that closes waits for those inside."""

    streams_max: int = 512
    calls_max: int = 128
    request_bytes_max: int = TICKET_BYTES_MAX
    put_bytes_max: int = 64_000_000
    put_acks_max: int = 65_536
    heartbeat_seconds: float = 5.0
    idle_seconds: float = 60.0
    close_seconds: float = 5.0
