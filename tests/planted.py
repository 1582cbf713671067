"""A secret that is planted in a test and looked for in everything that a program said: it must be nowhere.

    planted = Planted(token)
    planted.assert_absent(log="\\n".join(served.log), answers=answers, metrics=page)

Looked for are the secret, any longer piece of it (a log that shows the first half has told enough), and the forms in
which programs write bytes: escaped for URLs, JSON and Python, in hex, and in base64 at every alignment.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

# Half of what a token's secret has: less of it helps nobody to guess the rest.
PIECE = 16


class Planted:
    """One secret: a whole token (`mp_<id>_<secret>`, of which the id may be seen), or any other text."""

    def __init__(self, secret: str) -> None:
        if secret.startswith("mp_") and secret.count("_") >= 2:
            secret = secret.split("_", 2)[2]
        if len(secret) < PIECE:
            raise ValueError(f"a planted secret has at least {PIECE} characters, so that it is not found by chance")
        self._forms = {form: list(_pieces(form)) for form in _forms(secret)}

    def found_in(self, output: str | bytes) -> list[str]:
        """The pieces of the secret that are there, in whatever form."""
        data = output.encode(errors="surrogateescape") if isinstance(output, str) else output
        data = data.lower()
        return [
            piece.decode(errors="replace")
            for pieces in self._forms.values()
            for piece in pieces
            if piece.lower() in data
        ]

    def assert_absent(self, **outputs: str | bytes) -> None:
        """That none of the named outputs shows it. An output that is empty was not captured."""
        for name, output in outputs.items():
            assert output, f"there is nothing in {name}: was it captured?"
            found = self.found_in(output)
            assert not found, f"{name} shows {len(found)} pieces of the secret, the first of them {found[0]!r}"

    def assert_absent_under(self, directory: Path) -> None:
        """That no file in a directory shows it, by content or by name."""
        files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        assert files, f"there are no files under {directory}"
        for path in files:
            assert not self.found_in(path.read_bytes()), f"{path} holds the secret"
            assert not self.found_in(str(path)), f"{path} is named by the secret"


def _forms(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield quote(secret, safe="").encode()
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    yield json.dumps(secret)[1:-1].encode()
    yield repr(secret)[1:-1].encode()
    for before in range(3):
        # What stands before it moves it against the groups of three; the ends depend on the neighbours.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            start = -(-before * 4 // 3)
            stop = (before + len(raw)) * 4 // 3
            yield encode(bytes(before) + raw)[start:stop]


def _pieces(form: bytes) -> Iterator[bytes]:
    for at in range(0, max(1, len(form) - PIECE + 1)):
        yield form[at : at + PIECE]
