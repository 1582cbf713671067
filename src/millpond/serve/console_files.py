"""The files of the web console, as the REST door hands them out: `/` is the page, `/console/…` is what it consists of.

The files lie in the package, are read once, and are the same for everyone: what is secret comes from the REST API only.
A path is looked up in a table of the files that exist, so no path can lead outside. The page may load and call nothing
but its own server, and no text can become script or style (`CONTENT_SECURITY_POLICY`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

# Trusted types make the browser itself refuse every way of turning text into markup.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class ConsoleFile(NamedTuple):
    """One file, and the headers that it goes out with."""

    content_type: str
    body: bytes
    headers: Mapping[str, str]

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether a browser that sends this `If-None-Match` has the file already: answer 304 without the body."""
        offered = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
        return "*" in offered or self.headers["etag"] in offered


def console_file(path: str) -> ConsoleFile | None:
    """The file at a path of a URL, `/` or `/console/…`; None if there is none."""
    return _files().get(path)


@cache
def _files() -> Mapping[str, ConsoleFile]:
    found = {}
    for file in resources.files("millpond.serve").joinpath("console").iterdir():
        content_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            found[f"/console/{file.name}"] = _console_file(content_type, file.read_bytes())
    found["/"] = found.pop("/console/index.html")
    return found


def _console_file(content_type: str, body: bytes) -> ConsoleFile:
    return ConsoleFile(
        content_type,
        body,
        {
            # Asked for again each time, so that an upgraded server never meets an old page; unchanged, it costs a 304.
            "cache-control": "no-cache",
            "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
        },
    )
