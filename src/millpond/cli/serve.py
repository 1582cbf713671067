"""The command `serve`: a pond for other processes, by REST and Arrow Flight. Its options are the settings' table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from millpond.cli.serve_options import with_settings
from millpond.cli.session import session_of
from millpond.serve.settings_sources import choose, config_file


@with_settings
def serve(
    context: typer.Context,
    given: Mapping[str, Any],
    directory: Annotated[Path | None, typer.Argument(metavar="DIR", help="the pond; otherwise --pond")] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file, in place of millpond.toml in the pond")] = None,
    create: Annotated[bool, typer.Option("--create", help="make the pond if it is not there")] = False,
) -> None:
    """Serve a pond: REST with a console and Arrow Flight, until Ctrl-C or SIGTERM.

    It listens on this machine only, unless told otherwise. What a stop finds under way is finished; a second signal
    does not wait for it. Settings come from these options, then the environment (MILLPOND_SERVE_PORT), then
    millpond.toml in the pond, which has the sections [serve] and [pond].

    \b
    Examples:
      millpond serve ./pond
      millpond serve ./pond --port 7070 --flight-port 7071 --log-format text
      millpond serve ./pond --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem
    """
    from millpond.serve import logs
    from millpond.serve.memory import save_memory

    save_memory()  # before anything else is loaded that starts threads
    from millpond.serve.server import PondServer

    session = session_of(context)
    path = directory if directory is not None else session.path
    chosen = choose(given, os.environ, config_file(path, config))
    logs.configure(chosen.serve.log_format, chosen.serve.log_level)

    def listening(rest: int, flight: int | None) -> None:
        scheme, host = ("https" if chosen.serve.tls else "http"), chosen.serve.host
        session.output.say(
            f"serving {path}: {scheme}://{host}:{rest}" + (f", Flight on port {flight}" if flight else "")
        )
        if session.output.json:
            session.output.one({"rest_port": rest, "flight_port": flight})

    PondServer(path, chosen.serve, chosen.pond, create=create, listening=listening).run()
