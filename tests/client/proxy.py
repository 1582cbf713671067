"""A TCP proxy that cuts connections: after so many bytes, at once, or only the answers. Nothing in it is ours."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

_CHUNK_BYTES = 16_384


class Cut(NamedTuple):
    """After how many bytes a connection is cut, in each direction; None: never. What was sent before arrives, so a cut
    of what comes `down` loses answers to requests that were served."""

    up_bytes: int | None = None
    down_bytes: int | None = None


class Proxy:
    """Listens on loopback. `plan(number)` says when the connection of that number is cut."""

    def __init__(self, target_port: int, plan: Callable[[int], Cut] = lambda number: Cut()) -> None:
        self._target_port, self._plan = target_port, plan
        self._lock = threading.Lock()
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._dead: list[tuple[socket.socket, socket.socket]] = []
        self._silent: list[socket.socket] = []
        self.connections = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except ConnectionRefusedError:
                _reset(near)
                continue
            except OSError:
                return  # closed
            with self._lock:
                cut = self._plan(self.connections)
                self.connections += 1
                self._open.append((near, far))
            for source, sink, limit in ((near, far, cut.up_bytes), (far, near, cut.down_bytes)):
                threading.Thread(target=self._pass_on, args=(near, far, source, sink, limit), daemon=True).start()

    def _pass_on(
        self, near: socket.socket, far: socket.socket, source: socket.socket, sink: socket.socket, limit: int | None
    ) -> None:
        passed = 0
        try:
            while data := source.recv(_CHUNK_BYTES):
                with self._lock:
                    if (near, far) in self._dead:
                        return
                    if source in self._silent:
                        continue
                if limit is not None and passed + len(data) >= limit:
                    sink.sendall(data[: limit - passed])
                    with self._lock:
                        self.cuts += 1
                    break
                sink.sendall(data)
                passed += len(data)
        except OSError:
            pass  # the other direction has cut it
        self._end(near, far)

    def _end(self, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            if (near, far) not in self._open:
                return
            self._open.remove((near, far))
        _reset(near)
        _reset(far)

    def stall(self) -> None:
        """Let nothing through on the connections that there are, and do not end them either: a cable that is pulled.
        Connections that are made later are as they should be."""
        with self._lock:
            self._dead += self._open
            self._open = []

    def lose_answers(self) -> None:
        """Of what comes down on the connections that there are, nothing arrives any more; what goes up does."""
        with self._lock:
            self._silent += [far for _, far in self._open]

    def cut(self) -> None:
        """Cut every connection that there is."""
        with self._lock:
            there = list(self._open)
            self.cuts += len(there)
        for near, far in there:
            self._end(near, far)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for near, far in self._dead:
            _reset(near)
            _reset(far)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reset(connection: socket.socket) -> None:
    """Close it as a machine that has lost its memory does."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other end was quicker
    connection.close()
