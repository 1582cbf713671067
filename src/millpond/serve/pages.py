"""What a browser is shown: the console, the description of the routes, and the OpenAPI document.

Nothing of a pond is in them, so nobody is asked who they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import msgspec

from millpond.serve.console_files import console_files
from millpond.serve.docs_page import STYLE, docs_page
from millpond.serve.openapi import document


@dataclass(frozen=True)
class Page:
    """A file for a browser, and the headers that it goes out with."""

    media: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    etag: str

    def is_known(self, if_none_match: str) -> bool:
        """Whether a browser that sends this has the page already."""
        return any(
            tag.strip().removeprefix("W/") in (self.etag, "*") for tag in if_none_match.split(",") if tag.strip()
        )


# Only what this server itself gives may run, style or be called; nobody may put the page into a frame; and the browser
# refuses every way of turning text into markup (trusted types), so that a record can never become part of a page.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def find_page(path: str) -> Page | None:
    """The page of a path, if there is one."""
    return _pages().get(path)


@cache
def _pages() -> dict[str, Page]:
    return {
        "/openapi.json": _page("application/json", msgspec.json.encode(document())),
        "/docs": _page("text/html; charset=utf-8", docs_page()),
        "/docs.css": _page("text/css; charset=utf-8", STYLE.encode()),
        **{path: _page(file.media, file.body) for path, file in console_files().items()},
    }


def _page(media: str, body: bytes) -> Page:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "cache-control": "no-cache",
        "etag": etag,
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return Page(media, body, tuple((name.encode(), value.encode()) for name, value in headers.items()), etag)
