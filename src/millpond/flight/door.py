"""The Flight door: open from its making until it is closed, within a bounded time whatever its callers do."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from millpond.flight.limits import Limits
from millpond.flight.server import FlightServer
from millpond.flight.sockets import cut_connections
from millpond.telemetry import DoorCounters
from millpond.wire.desk import Desk
from millpond.wire.tls import Tls

_DEFAULT = Limits()


class FlightDoor:
    """Thread-safe. `token`: for those who hand it on to whoever is to call."""

    def __init__(
        self,
        desk: Desk,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        tls: Tls | None = None,
        limits: Limits = _DEFAULT,
        counters: DoorCounters | None = None,
    ) -> None:
        self._host, self._token, self._limits = host, token, limits
        self._scheme = "grpc" if tls is None else "grpc+tls"
        at = f"[{host}]" if ":" in host else host
        self._server = FlightServer(desk, f"{self._scheme}://{at}:{port}", tls, limits, counters or DoorCounters())
        self._port: int = self._server.port
        self._closing = threading.Lock()

    @property
    def location(self) -> str:
        at = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{at}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def token(self) -> str:
        return self._token

    @property
    def tls(self) -> Mapping[str, bytes]:
        """What a caller needs beyond the token: nothing, for a door that a pond opens for itself."""
        return {}

    def close(self) -> None:
        """Refuse new calls, end the streams that are being served, and wait for them. Those who do not go within
        `close_seconds` are cut off. Idempotent."""
        with self._closing:
            if self._server.closing.is_set():
                return
            self._server.closing.set()
            # Flight waits for its callers without an end, so somebody else waits for it.
            ending = threading.Thread(target=self._server.shutdown, name="millpond-flight-close", daemon=True)
            ending.start()
            ending.join(self._limits.close_seconds)
            if ending.is_alive():
                cut_connections(self._port)
                ending.join(self._limits.close_seconds)

    def __repr__(self) -> str:
        return f"FlightDoor({self.location})"
