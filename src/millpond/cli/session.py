"""What the options of all commands add up to: which pond, and how to print. Every command gets it as `context.obj`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millpond.cli.output import Output

if TYPE_CHECKING:
    from millpond.pond.pond import Pond


@dataclass(frozen=True)
class Session:
    """One run of the command line."""

    path: Path
    output: Output
    named: bool = False  # whether --pond was on the line: a default or the environment may mean a pond of everyday

    def open(self, *, create: bool = False, background: bool = False, **options: Any) -> Pond:
        """The pond, which is closed by leaving its `with`. Nothing settles behind a command unless `background`: what
        only looks at a pond does not change it."""
        from millpond.pond.opening import open_pond

        with self.output.progress("recovering the journal", unit="bytes") as bar:
            pond = open_pond(self.path, create=create, background=background, progress=bar.at, **options)
        for warning in pond.log.status().warnings:
            self.output.detail(warning)
        return pond


def session_of(context: typer.Context) -> Session:
    """The session of a command's context."""
    found = context.obj
    assert isinstance(found, Session)
    return found
