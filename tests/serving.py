"""The real server as a process of its own, for tests: started, asked, stopped, and its log looked at."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
# Two busy cores make a start take its time.
START_SECONDS = 60.0
STOP_SECONDS = 60.0


@dataclass
class Served:
    """A server that runs. `log` holds what it has said on standard error, a line each."""

    process: subprocess.Popen[bytes]
    pond: Path
    rest_port: int
    flight_port: int
    log: list[str] = field(default_factory=list)
    token: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def flight(self) -> str:
        return f"grpc://127.0.0.1:{self.flight_port}"

    def client(self, **options: Any) -> httpx.Client:
        """One that asks this server, with its token. It looks at no proxy of the environment's."""
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, **{"timeout": 60.0, **options})

    def create(self, name: str, **definition: Any) -> None:
        with self.client() as client:
            client.put(f"/v1/streams/{name}", json=definition).raise_for_status()

    def rss_bytes(self) -> int:
        """The memory that the process holds now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process is gone")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, and wait until it is dead."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.terminate()
        return self.wait()

    def complaints(self) -> list[str]:
        """The lines of the log that no healthy server writes: tracebacks, errors, warnings, what is not JSON. That
        somebody sent what is not HTTP says nothing of the server."""
        found = []
        for line in self.log:
            try:
                said = json.loads(line)
                level, logger = said["level"], said["logger"]
            except (ValueError, KeyError, TypeError):
                if line and not line.startswith("serving "):
                    found.append(line)
                continue
            if level not in ("debug", "info") and logger != "uvicorn.error":
                found.append(line)
        return found


@contextmanager
def serving(pond: Path, *options: str, env: dict[str, str] | None = None, token: str | None = None) -> Iterator[Served]:
    """A server on free ports of loopback, for as long as the block lasts; what is left of it is killed."""
    command = [sys.executable, "-W", "error", "-m", "millpond", "serve", str(pond), "--create", "--json"]
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [*command, "--port", "0", "--flight-port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, **(env or {})},
    )
    log: list[str] = []
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    readers = [
        threading.Thread(target=_read_lines, args=(process.stdout, said.put), daemon=True),
        threading.Thread(target=_read_lines, args=(process.stderr, lambda line: log.append(_text(line))), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        try:
            ports = json.loads(said.get(timeout=START_SECONDS))
        except (queue.Empty, ValueError) as error:
            raise AssertionError(f"the server did not start: {process.poll()}, {log}") from error
        yield Served(process, pond, ports["rest_port"], ports["flight_port"], log, token)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_SECONDS)
        for reader in readers:
            reader.join(STOP_SECONDS)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _read_lines(pipe: Any, put: Any) -> None:
    for line in pipe:
        put(line)
    put(b"")  # whoever waits for a line that never came


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\n")


def wait_until(true: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> None:
    """Look again and again, because the other process says nothing of its own accord."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.02)
