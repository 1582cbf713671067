"""A served pond and a browser to look at it with: the real server in a process of its own, Debian's Chromium.

Whatever a page writes to the browser's console as an error, throws, or has refused by the content security policy fails
the test at its end, unless the test said that it would come.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

# Two busy cores: what takes a moment elsewhere may take a while.
PATIENCE_MILLISECONDS = 30_000
START_SECONDS = 120
STOP_SECONDS = 60

# What the page of a stream meets when it is dropped: its tail is cut, and what it asked meanwhile is not found.
GONE = "ERR_INCOMPLETE_CHUNKED|status of 404"

_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
_LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
window.alert = (text) => window.violations.push(`alert: ${text}`);
"""


class Served:
    """A server of ours. After `stop`, `start` brings it back on the same port."""

    def __init__(self, pond: Path, *options: str) -> None:
        self._pond, self._options, self._port = pond, options, 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "millpond", "serve", str(self._pond), "--create", "--no-flight"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port), *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        said: Queue[str | None] = Queue()
        threading.Thread(target=self._listen, args=(self._process, said), daemon=True).start()
        heard = []
        while (line := said.get(timeout=START_SECONDS)) is not None:
            heard.append(line)
            if found := _ADDRESS.search(line):
                self._port = int(found[1])
                return
        raise AssertionError(f"the server did not start:\n{''.join(heard)}")

    @staticmethod
    def _listen(process: subprocess.Popen[str], said: Queue[str | None]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.put(line)
        said.put(None)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """The answer to a request that has to succeed."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def create(self, stream: str, schema: str | None = "vid string, temp double", **more: Any) -> None:
        self.call("PUT", f"/v1/streams/{stream}", {"schema": schema, **more})

    def append(self, stream: str, *records: dict[str, Any]) -> None:
        self.call("POST", f"/v1/streams/{stream}/records", list(records))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all; each test has streams of its own."""
    server = Served(tmp_path_factory.mktemp("console") / "pond")
    yield server
    server.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Servers for tests that need one to themselves."""
    started: list[Served] = []

    def start(*options: str, pond: Path = tmp_path / "pond") -> Served:
        started.append(Served(pond, *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("there is no chromium: run `make setup` as root, or `apt-get install chromium`", pytrace=False)
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    # Chromium's own sandbox does not start as root.
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=args)
        yield browser
        browser.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a page of a server's console in a window of its own. `expected`: what may be in the browser's console."""
    opened: list[tuple[Page, list[str]]] = []
    contexts = []

    def open_one(
        server: Served,
        path: str = "/",
        *,
        expected: str = r"\Z.",
        width: int = 1280,
        height: int = 800,
        scheme: Any = "light",
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        context.add_init_script(_LISTEN)
        page = context.new_page()
        errors: list[str] = []
        page.on("console", lambda said: _note(errors, said.type, said.text, expected))
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened.append((page, errors))
        page.goto(server.url + path)
        return page

    yield open_one
    found = [(errors, page.evaluate("window.violations")) for page, errors in opened]
    for context in contexts:
        context.close()
    assert found == [([], [])] * len(found)


def _note(errors: list[str], kind: str, text: str, expected: str) -> None:
    if kind in ("error", "warning") and not re.search(expected, text):
        errors.append(text)
