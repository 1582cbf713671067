"""The process that keeps a pond and its doors open: started, served, drained, closed.

The REST door answers from the first moment, so that `/readyz` can say how far recovery is; the pond is opened beside
it, and the Flight door with the pond. A stop goes the other way: no new requests, those under way get
`drain_seconds`, the doors are closed, the journal is synced. A second signal does not wait for requests; what was
acknowledged is synced all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import uvicorn
import uvloop

from millpond.errors import InvalidValue, MillpondError, Unavailable
from millpond.flight import FlightDoor
from millpond.flight.limits import Limits
from millpond.pond.bounds import Bounds
from millpond.pond.desk import PondDesk
from millpond.pond.gate import Gate
from millpond.pond.opening import open_pond
from millpond.pond.pond import Pond
from millpond.pond.tokens import Mode, TokenGate
from millpond.serve.limits import RateLimiter
from millpond.serve.metrics import MetricsPage
from millpond.serve.protocol import BoundedProtocol, protocol_class
from millpond.serve.rest import RestDoor
from millpond.serve.settings import ServeSettings, check_exposure
from millpond.serve.state import NodeState
from millpond.telemetry import DoorCounters
from millpond.wire.tls import Tls

logger = logging.getLogger(__name__)

# Recovery says how far it is about this often.
_SAY_SECONDS = 2.0
# Connections that are slow to send a request are looked for every second.
_TICKS_PER_LOOK = 10


class PondServer:
    """One pond, one process. `run` blocks until a signal, or until `stop` is called from another thread.
    `listening(rest_port, flight_port)` is called when both doors are open."""

    def __init__(
        self,
        path: Path,
        settings: ServeSettings,
        pond_settings: Mapping[str, int | float],
        *,
        create: bool = False,
        listening: Callable[[int, int | None], None] = lambda rest, flight: None,
    ) -> None:
        self._path, self._settings, self._pond_settings = path, settings, pond_settings
        self._create, self._listening = create, listening
        self._state, self._counters = NodeState(), DoorCounters()
        self._pond: Pond | None = None
        self._door: FlightDoor | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Uvicorn | None = None
        self._metrics: MetricsPage | None = None

    def run(self) -> None:
        """Serve. Raises what kept the pond from being opened or closed."""
        gate = TokenGate(str(self._path), cast(Mode, self._settings.tokens))
        check_exposure(self._settings, gate.closed)
        tls = _tls(self._settings)
        with _bound(self._settings.host, self._settings.port) as listener:
            config = self._config(tls)
            self._server = _Uvicorn(config, self._settings.request_seconds)
            self._counters.watch("rest", self._connections)
            rest = RestDoor(
                self._state,
                self._settings,
                self._counters,
                self._render_metrics if self._settings.metrics else None,
            )
            config.app = rest
            try:
                config.load()
            except ssl.SSLError as error:
                raise InvalidValue(
                    f"TLS: {error}", hint="tls_certificate and tls_key name PEM files that belong together"
                ) from None
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(listener, gate, tls))
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """As a signal: once to drain, twice to hurry. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled)

    def _config(self, tls: Tls | None) -> uvicorn.Config:
        settings = self._settings
        config = uvicorn.Config(
            app="",
            http=protocol_class(settings.connections_max),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(settings.idle_seconds),
            timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
            ssl_certfile=settings.tls_certificate or None,
            ssl_keyfile=settings.tls_key or None,
            ssl_ca_certs=settings.tls_client_roots or None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_roots else ssl.CERT_NONE,
        )
        return config

    def _connections(self) -> int:
        return 0 if self._server is None else len(self._server.server_state.connections)

    # In the loop.

    async def _serve(self, listener: socket.socket, gate: Gate, tls: Tls | None) -> None:
        assert self._server is not None
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: whoever runs us calls `stop`
                self._loop.add_signal_handler(number, self._signalled)
        port = listener.getsockname()[1]
        serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        opening = asyncio.create_task(asyncio.to_thread(self._open, gate, tls))
        try:
            await opening
            self._say_ready(port)
        except BaseException as error:
            self._failure = error
            self._server.should_exit = True
        try:
            await serving
        finally:
            await asyncio.to_thread(self._close)

    def _signalled(self) -> None:
        assert self._server is not None
        if not self._state.stopping:
            logger.info("stopping: finishing what is under way", extra={"drain_seconds": self._settings.drain_seconds})
            self._state.stop()
            self._server.should_exit = True
        else:
            logger.warning("stopping at once; what was acknowledged is still synced")
            self._server.force_exit = True

    # Opening and closing, in a thread.

    def _open(self, gate: Gate, tls: Tls | None) -> None:
        began = said = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal said
            self._state.recovered = (done, total)
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                logger.info("recovering the journal", extra={"done_bytes": done, "total_bytes": total})

        options: dict[str, Any] = {"create": self._create, "progress": progress, **self._pond_settings}
        pond = self._pond = open_pond(self._path, **options)
        rates = RateLimiter(self._settings.requests_per_second, self._settings.requests_burst)
        bounds = Bounds(self._settings.columns_max, self._settings.name_length_max)
        desk = PondDesk(pond, gate, rates.check, bounds)
        if self._settings.flight:
            where = (self._settings.host, self._settings.flight_port)
            limits = Limits(
                streams_max=self._settings.followers_max,
                calls_max=self._settings.calls_max,
                idle_seconds=self._settings.idle_seconds,
            )
            try:
                door = self._door = FlightDoor(desk, *where, tls=tls, limits=limits, counters=self._counters)
            except (pa.ArrowException, OSError) as error:
                raise InvalidValue(
                    f"the Flight door cannot listen on port {self._settings.flight_port}: {error}",
                    hint="is a server running there? --flight-port takes another, 0 a free one, --no-flight none",
                ) from None
            desk.flight = (door.port, tls is not None)
        self._metrics = MetricsPage(pond, self._counters)
        # What is there now stays: the collector need not look at it again and again while requests come and go.
        gc.collect()
        gc.freeze()
        self._state.ready(desk, lambda: _ailments(pond))
        logger.info(
            "the pond is open",
            extra={"pond": pond.path, "streams": len(pond.streams()), "seconds": round(time.monotonic() - began, 3)},
        )
        for warning in pond.log.status().warnings:
            logger.warning(warning)

    def _say_ready(self, port: int) -> None:
        flight = None if self._door is None else self._door.port
        scheme = "https" if self._settings.tls else "http"
        logger.info("listening", extra={"rest": f"{scheme}://{self._settings.host}:{port}", "flight_port": flight})
        self._listening(port, flight)

    def _close(self) -> None:
        self._state.stop()
        if self._door is not None:
            self._door.close()
        if self._pond is not None:
            try:
                self._pond.close()
                logger.info("the pond is closed: everything acknowledged is on disk")
            except MillpondError as error:
                self._failure = self._failure or error

    def _render_metrics(self, accept: str) -> tuple[bytes, str]:
        if self._metrics is None:
            raise Unavailable("the pond is not open yet", hint="wait until GET /readyz says so")
        return self._metrics.render(accept)


class _Uvicorn(uvicorn.Server):
    """Signals are the server's own to handle; slow connections are looked for."""

    def __init__(self, config: uvicorn.Config, head_seconds: float) -> None:
        super().__init__(config)
        self._head_seconds = head_seconds

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_LOOK == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.close_if_slow(self._head_seconds)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _ailments(pond: Pond) -> list[str]:
    status, free, kept = pond.log.status(), pond.log.free_bytes(), pond.log.settings.disk_reserve_bytes
    found = [f"appends are refused: {status.refused}"] if status.refused else []
    if free < kept:
        found.append(f"appends are refused: the disk has {free:,} bytes free, and {kept:,} are held back")
    return found


def _tls(settings: ServeSettings) -> Tls | None:
    if not settings.tls:
        return None
    try:
        roots = Path(settings.tls_client_roots).read_bytes() if settings.tls_client_roots else None
        return Tls(Path(settings.tls_certificate).read_bytes(), Path(settings.tls_key).read_bytes(), roots)
    except OSError as error:
        raise InvalidValue(f"TLS: {error}", hint="name readable PEM files") from None


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """The REST door's socket, bound before anything else is done: a port that is taken is the commonest mistake."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidValue(
            f"cannot listen on {host}:{port}: {error}",
            hint="is a server running there? --port takes another, 0 a free one",
        ) from None
    with bound:
        # Those that are accepted inherit it: a client whose machine has gone is noticed, though nothing is sent to it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        yield bound
