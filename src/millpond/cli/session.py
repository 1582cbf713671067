"""What the options of all commands add up to: which pond, and how to print. Every command gets it as `context.obj`.

A pond is a directory, opened in this process, or a URL, connected to. Both have the same methods, so commands do not
know which it is, but for the few that work on the directory itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millpond.cli.output import Output
from millpond.errors import InvalidValue

if TYPE_CHECKING:
    from millpond.client.pond import RemotePond
    from millpond.client.stream import RemoteStream
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream

    AnyPond = Pond | RemotePond
    AnyStream = Stream | RemoteStream


@dataclass(frozen=True)
class Access:
    """How a served pond is reached: the token to show, whom to trust, and who we are. Its text shows no secret."""

    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class Session:
    """One run of the command line."""

    pond: str
    output: Output
    named: bool = False  # whether --pond was on the line: a default or the environment may mean a pond of everyday
    access: Access = Access()

    @property
    def served(self) -> bool:
        """Whether the pond is a URL."""
        return "://" in self.pond

    @property
    def path(self) -> Path:
        """The pond's directory; `InvalidValue` if it is served elsewhere."""
        if self.served:
            from millpond.client.address import shown_url

            raise InvalidValue(
                f"this command works on a pond's own directory, not on {shown_url(self.pond)}",
                hint="name the directory with --pond DIR, on the machine that has it",
            )
        return Path(self.pond)

    def open(self, *, background: bool = False) -> AnyPond:
        """The pond, which is closed by leaving its `with`. Nothing settles behind a command unless `background`: what
        only looks at a pond does not change it."""
        return self.connect() if self.served else self.open_here(background=background)

    def connect(self) -> RemotePond:
        """As `open`, of a pond that is served."""
        from millpond.client.connect import connect

        access = self.access
        return connect(self.pond, access.token, ca=access.ca, certificate=access.certificate, key=access.key)

    def open_here(self, *, create: bool = False, background: bool = False, **options: Any) -> Pond:
        """As `open`, of a pond that is a directory."""
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
