"""`python -m millpond` is `millpond`."""

from __future__ import annotations

from millpond.cli.main import app

if __name__ == "__main__":
    app()
