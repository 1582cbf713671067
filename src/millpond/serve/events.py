"""Single events: most of all requests, so they take a way of their own with as few steps as can be.

The body is decoded into a checked row, which goes to the committer's queue; the answer comes back to the loop with
those of the whole group. No thread waits for it. Whatever a request adds to that (a key, a producer, another form) is
left to the ordinary way.
"""

from __future__ import annotations

import asyncio

import msgspec

from millpond.log.engine import Ack, Told
from millpond.serve.asked import Receive, read_body
from millpond.serve.bodies import check_json_depth
from millpond.serve.matching import match
from millpond.serve.protocol import QuickAnswers
from millpond.serve.records_in import MANY, raw_event
from millpond.serve.reply import Reply
from millpond.serve.settings import ServeSettings
from millpond.serve.state import NodeState
from millpond.serve.waiting import Answers
from millpond.wire.access import Caller
from millpond.wire.desk import Desk
from millpond.wire.requests import Append

EVENTS = "/v1/streams/{name}/records"

# Requests with one of these are no plain single events.
_NOT_PLAIN = (b"content-encoding", b"idempotency-key", b"millpond-producer", b"millpond-sequence", b"ce-specversion")
_JSON = frozenset((b"application/json", b""))
_ROUTES_KEPT = 10_000
_PATH_BYTES_KEPT = 1_000
# A larger one takes the ordinary way, in a thread: others wait while the loop decodes it.
EVENT_BYTES_MAX = 1_000_000


def caller_of(desk: Desk, headers: dict[bytes, bytes]) -> Caller:
    """Who sends a request with these headers."""
    shown = headers.get(b"authorization")
    if shown is None:
        return desk.authenticate(None)
    scheme, _, token = shown.decode("latin-1").partition(" ")
    return desk.authenticate(token.strip() if scheme.lower() == "bearer" else "")


class EventRoute:
    """Made in any thread, called in one event loop."""

    def __init__(self, state: NodeState, settings: ServeSettings) -> None:
        self._state, self._settings = state, settings
        self._answers: Answers | None = None
        self._quick = QuickAnswers()
        self._routes: dict[bytes, Append] = {}

    def route(self, raw_path: bytes) -> Append | None:
        """The append that a path stands for; None if it is another route's."""
        try:
            return self._routes[raw_path]
        except KeyError:
            pass
        found = match("POST", raw_path) if raw_path.endswith(b"/records") else None
        if found is None or found.route.handler != "append":
            return None
        request = Append(found.name)
        if len(raw_path) <= _PATH_BYTES_KEPT:  # whoever sends it has not said who they are yet
            if len(self._routes) >= _ROUTES_KEPT:
                self._routes.clear()
            self._routes[raw_path] = request
        return request

    async def take(
        self, request: Append, headers: dict[bytes, bytes], receive: Receive, reply: Reply
    ) -> tuple[bool, bytes | None, Caller | None]:
        """Append one JSON object, or any body to a stream of raw events. False, with the body if it was read and the
        caller if they are known, if the request is not as plain as that."""
        if not headers.keys().isdisjoint(_NOT_PLAIN):
            return False, None, None
        desk = self._state.desk
        caller = caller_of(desk, headers)
        intake = desk.intake(caller, request)
        kind = headers.get(b"content-type", b"")
        if intake.definition.raw:
            if intake.definition.file or kind.partition(b";")[0].strip().lower() in MANY:
                return False, None, caller
            body = await read_body(receive, headers, self._settings)
            if len(body) > EVENT_BYTES_MAX:
                return False, body, caller
            future, told = self._expect()
            intake.submit(raw_event({n.decode("latin-1"): v.decode("latin-1") for n, v in headers.items()}, body), told)
        else:
            if kind not in _JSON:
                return False, None, caller
            body = await read_body(receive, headers, self._settings)
            if len(body) > EVENT_BYTES_MAX or (body[:1] != b"{" and body.lstrip()[:1] != b"{"):
                return False, body, caller
            check_json_depth(body, self._settings.json_depth_max)
            future, told = self._expect()
            intake.submit_json(body, told)
        await reply.acknowledge(self._quick, ack_json(await future))
        return True, body, caller

    def _expect(self) -> tuple[asyncio.Future[Ack], Told]:
        if self._answers is None:
            self._answers = Answers(asyncio.get_running_loop())
        return self._answers.expect()


def ack_json(ack: Ack) -> bytes:
    """An acknowledgement. By hand where it is of one record, which is most of the time."""
    if len(ack.ranges) == 1 and not ack.filtered:
        ((streamlet, offsets),) = ack.ranges.items()
        return b'{"ranges":{"%d":{"start":%d,"stop":%d}},"durability":"%b","duplicate":%b,"filtered":0}' % (
            streamlet,
            offsets.start,
            offsets.stop,
            ack.durability.encode(),
            b"true" if ack.duplicate else b"false",
        )
    return msgspec.json.encode(ack)
