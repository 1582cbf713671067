"""The REST door: an ASGI application over a desk.

A request passes, in this order: where it is addressed to (`Host`, `Origin`), which route it is of, who sends it, how
often they do, its parameters; then its handler. Rights are the desk's to check. Single events, which are most of all
requests, take a way of their own (`events`).

Whatever blocks runs in threads, at most `calls_max` at once, followed streams in threads of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import Response, StreamingResponse

from millpond.errors import MethodNotAllowed, MillpondError, TooManyRequests
from millpond.serve import handlers
from millpond.serve.asked import Asked, Gone, Receive, Scope, Send
from millpond.serve.events import EVENTS, EventRoute, caller_of
from millpond.serve.group_handlers import GROUP_HANDLERS
from millpond.serve.hosts import HostCheck
from millpond.serve.logs import CutShort
from millpond.serve.matching import Match, allowed_methods, match, read_query
from millpond.serve.pages import find_page
from millpond.serve.problems import answer_of
from millpond.serve.reply import Reply
from millpond.serve.settings import ServeSettings
from millpond.serve.state import NodeState
from millpond.telemetry import DoorCounters
from millpond.wire.access import Caller

logger = logging.getLogger(__name__)
access = logging.getLogger("millpond.access")

Result = TypeVar("Result")

# What is asked of a browser with every answer that it may show.
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
# A request that takes longer leaves a line in the log.
SLOW_SECONDS = 1.0
_ADDRESSES_KEPT = 1_000
_HANDLERS = handlers.HANDLERS | GROUP_HANDLERS


class RestDoor:
    """One per server. Made in any thread, called in one event loop."""

    def __init__(
        self,
        state: NodeState,
        settings: ServeSettings,
        counters: DoorCounters,
        metrics: Callable[[str], tuple[bytes, str]] | None = None,
    ) -> None:
        self.state, self.settings, self.counters, self.metrics = state, settings, counters, metrics
        self._hosts = HostCheck(settings.allowed_hosts, settings.host, settings.allowed_origins)
        self._addresses: dict[tuple[bytes | None, bytes | None], tuple[tuple[bytes, bytes], ...]] = {}
        self._events = EventRoute(state, settings)
        self._log_all = settings.access_log and access.isEnabledFor(logging.DEBUG)
        self._calls = anyio.CapacityLimiter(settings.calls_max)
        self._following = anyio.CapacityLimiter(settings.followers_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "websocket.close", "code": 1008})

    # The way of every request.

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        reply = Reply(send)
        route, bytes_in = "", 0
        caller: Caller | None = None
        headers = dict(scope["headers"])
        try:
            reply.beside = self._check_address(headers)
            body = None
            if scope["method"] == "OPTIONS" and reply.beside:
                await reply.whole(204, _PREFLIGHT, b"")
                return
            if scope["method"] == "POST" and not scope["query_string"]:
                event = self._events.route(scope["raw_path"])
                if event is not None:
                    route = EVENTS
                    done, body, caller = await self._events.take(event, headers, receive, reply)
                    if done:
                        bytes_in = len(body or b"")
                        return
            found = self._match(scope)
            if found is None:
                route = "page"
                await self._show(scope, reply)
                return
            route = found.route.path
            asked = self._admit(scope, receive, found, body, caller)
            caller = asked.caller
            response = await self._handle(asked)
            bytes_in = asked.bytes_in
            if isinstance(response, StreamingResponse):
                response.raw_headers += [*SAFE_HEADERS, *reply.beside]
                await response(scope, receive, reply.send)
            else:
                told = [pair for pair in response.raw_headers if pair[0] != b"content-length"]
                await reply.whole(response.status_code, (*told, *SAFE_HEADERS), bytes(response.body))
        except Gone:
            reply.status = 499
        except MillpondError as error:
            await self._refuse(scope, reply, error)
        except Exception as error:
            logger.exception("a request failed", extra={"route": route})
            await self._refuse(scope, reply, error)
        finally:
            seconds = time.perf_counter() - began
            self.counters.request("rest", route, scope["method"], reply.status, seconds, bytes_in, reply.bytes_out)
            if self._log_all or reply.status >= 400 or seconds > SLOW_SECONDS:
                self._log(scope["method"], route, reply.status, seconds, "-" if caller is None else caller.id)

    def _log(self, method: str, route: str, status: int, seconds: float, caller: str) -> None:
        """A line for what went wrong or was slow; every request only where that is asked for by the level."""
        if not self.settings.access_log:
            return
        level = logging.DEBUG
        if status >= 500:
            level = logging.WARNING
        elif status >= 400 or seconds > SLOW_SECONDS:
            level = logging.INFO
        if access.isEnabledFor(level):
            extra = {
                "method": method,
                "route": route,
                "status": status,
                "ms": round(1e3 * seconds, 1),
                "caller": caller,
            }
            access.log(level, "request", extra=extra)

    def _check_address(self, headers: dict[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
        """Whether a request may come, as it is addressed; the headers that a page of another origin needs to see."""
        key = (headers.get(b"host"), headers.get(b"origin"))
        known = self._addresses.get(key)
        if known is None:
            host, origin = (None if value is None else value.decode("latin-1") for value in key)
            self._hosts.check(host, origin)
            if len(self._addresses) >= _ADDRESSES_KEPT:
                self._addresses.clear()
            known = self._addresses[key] = _cross_origin(key[1])
        return known

    def _match(self, scope: Scope) -> Match | None:
        """The route; None for the pages that people look at."""
        if scope["method"] == "GET" and find_page(scope["path"]) is not None:
            return None
        return match(scope["method"], scope["raw_path"])

    async def _show(self, scope: Scope, reply: Reply) -> None:
        page = find_page(scope["path"])
        assert page is not None
        known = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1")
        headers = ((b"content-type", page.media.encode()), *page.headers)
        if page.is_known(known):
            await reply.whole(304, headers, b"")
        else:
            await reply.whole(200, headers, page.body)

    def _admit(self, scope: Scope, receive: Receive, found: Match, body: bytes | None, known: Caller | None) -> Asked:
        """The request, with its caller: `known` if somebody has asked already."""
        query = found.route.query
        if found.route.right is None:
            return Asked(scope, receive, found, read_query(query, scope["query_string"]), _NOBODY_ASKS, _NOBODY, body)
        desk = self.state.desk
        caller = known or caller_of(desk, dict(scope["headers"]))
        return Asked(scope, receive, found, read_query(query, scope["query_string"]), desk, caller, body)

    async def _handle(self, asked: Asked) -> Response:
        handler: handlers.Handler = _HANDLERS[asked.route.handler]
        return await handler(self, asked)

    async def _refuse(self, scope: Scope, reply: Reply, error: BaseException) -> None:
        if isinstance(error, MillpondError):
            self.counters.rejected(error.code)
        if reply.status:  # the answer is under way: cutting it short is all that tells
            code = error.code if isinstance(error, MillpondError) else "error"
            logger.info("an answer was cut short", extra={"code": code})
            raise CutShort from error
        status, headers, body = answer_of(error)
        if isinstance(error, MethodNotAllowed):
            headers.append((b"allow", ", ".join(allowed_methods(scope["raw_path"])).encode()))
        await reply.whole(status, (*headers, *SAFE_HEADERS), body)

    # For handlers.

    async def blocking(self, call: Callable[..., Result], *args: Any) -> Result:
        """Run something that may wait, in a thread."""
        if self._calls.statistics().tasks_waiting > self.settings.calls_max:
            raise TooManyRequests(
                f"{self.settings.calls_max} calls are under way and as many wait",
                hint="try again in a moment, or raise the setting calls_max",
            )
        return await anyio.to_thread.run_sync(call, *args, limiter=self._calls)

    async def watching(self, call: Callable[..., Result], *args: Any) -> Result:
        """As `blocking`, for followers: in threads of their own, and left behind if the client goes."""
        return await anyio.to_thread.run_sync(call, *args, limiter=self._following, abandon_on_cancel=True)

    async def waiting(self, call: Callable[..., Result], *args: Any) -> Result:
        """As `watching`, for one call that waits for records: it counts as a follower."""
        self.check_followers()
        self.followers += 1
        try:
            return await self.watching(call, *args)
        finally:
            self.followers -= 1

    def check_followers(self) -> None:
        """`TooManyRequests` if nobody more can follow."""
        if self.followers >= self.settings.followers_max:
            raise TooManyRequests(
                f"{self.settings.followers_max} streams are being followed",
                hint="close some, or raise the setting followers_max",
            )

    followers = 0


def _cross_origin(origin: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
    """What lets a page read an answer. Origins that may not call never get here."""
    if origin is None:
        return ()
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"millpond-next, retry-after"),
        (b"vary", b"origin"),
    )


# What a page of an allowed origin may send.
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, content-encoding, idempotency-key, millpond-producer, millpond-sequence, "
        b"last-event-id",
    ),
    (b"access-control-max-age", b"600"),
)


_NOBODY = Caller("-", "-", ())
_NOBODY_ASKS: Any = None
