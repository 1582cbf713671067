"""The files of the web console: `/` is the page, `/console/…` is what it consists of.

They lie in the package and are the same for everyone: what is secret comes from the REST API only. Paths are keys of a
table of the files that exist, so no path can lead outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class ConsoleFile(NamedTuple):
    """One file, and what it is."""

    media: str
    body: bytes


def console_files() -> Mapping[str, ConsoleFile]:
    """All of them, by the path of their URL. Reads the files: ask once."""
    found = {}
    for file in resources.files("millpond.serve").joinpath("console").iterdir():
        media = _MEDIA.get(file.name[file.name.rfind(".") :])
        if media is not None:
            found[f"/console/{file.name}"] = ConsoleFile(media, file.read_bytes())
    found["/"] = found.pop("/console/index.html")
    return found
