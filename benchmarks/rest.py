"""The REST door under load: single events against an application that only reads them, and many records a request.

wrk drives both from 64 connections. The baseline is a bare ASGI callable that reads the body and answers 204, under the
same server with the same HTTP parser and event loop. Both take turns, and what counts is the median of the turns.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.figures import report, talk

CONNECTIONS = 64
SECONDS = 3
TURNS = 5
LINES = 1_000

_RECORD = {"vid": "m-0000017", "city": "Nice", "temp": 21.5, "note": "a record of about a hundred bytes, give"}
_BARE = """
import sys, uvicorn

async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})

uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", ws="none", lifespan="off",
            log_level="error", access_log=False, server_header=False)
"""
_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "{media}"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
"""


def rest() -> bool:
    """Single events at `disk`, and NDJSON of 1,000 records a request."""
    if shutil.which("wrk") is None:
        talk("wrk is missing: make setup installs it on Debian, otherwise install it")
        return False
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        one = _script(directory, "one", "application/json", json.dumps(_RECORD).encode())
        many = _script(directory, "many", "application/x-ndjson", (json.dumps(_RECORD) + "\n").encode() * LINES)
        with _bare() as bare, _served(directory) as ours:
            singles, plain, lines = [], [], []
            for _ in range(TURNS):
                plain.append(_requests_per_second(one, f"http://127.0.0.1:{bare}/", CONNECTIONS))
                singles.append(_requests_per_second(one, f"{ours}/v1/streams/bench/events/records", CONNECTIONS))
                lines.append(LINES * _requests_per_second(many, f"{ours}/v1/streams/bench/lines/records", 4))
    for name, found in (("bare", plain), ("events", singles), ("lines", lines)):
        talk(f"{name}, per second: {[round(rate) for rate in found]}")
    middle = sorted(zip(singles, plain, strict=True), key=lambda turn: turn[0] / turn[1])[TURNS // 2]
    met = report(
        "REST single events at disk ÷ a bare ASGI application", *middle, ">= 0.4", "requests/s", connections=CONNECTIONS
    )
    middle = sorted(zip(lines, singles, strict=True), key=lambda turn: turn[0] / turn[1])[TURNS // 2]
    return report("REST NDJSON, 1,000 records a request ÷ single events", *middle, ">= 20", "records/s") and met


def _script(directory: Path, name: str, media: str, body: bytes) -> Path:
    (directory / f"{name}.body").write_bytes(body)
    script = directory / f"{name}.lua"
    script.write_text(_SCRIPT.format(media=media, body=directory / f"{name}.body"))
    return script


def _requests_per_second(script: Path, url: str, connections: int) -> float:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said, said
    found = re.search(r"Requests/sec:\s+([\d.]+)", said)
    assert found is not None, said
    return float(found[1])


@contextlib.contextmanager
def _bare() -> Iterator[int]:
    port = 17_181
    process = subprocess.Popen([sys.executable, "-c", _BARE, str(port)])
    try:
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(transport=transport, trust_env=False) as client:
            client.post(f"http://127.0.0.1:{port}/", content=b"x")
        yield port
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _served(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "millpond", "serve", str(directory / "pond"), "--create", "--json", "--port", "0"]
    process = subprocess.Popen([*command, "--flight-port", "0", "--log-level", "error"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['rest_port']}"
        with httpx.Client(base_url=url, trust_env=False) as client:
            for name in ("events", "lines"):
                schema = "vid string, city string, temp double, note string"
                made = client.put(f"/v1/streams/bench/{name}", json={"schema": schema, "keys": ["vid"], "settle": None})
                made.raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait()
