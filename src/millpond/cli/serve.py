"""The command `serve`: a pond for other processes, by REST and Arrow Flight. Its options are the settings' table."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from millpond.cli.session import session_of
from millpond.serve.settings import kind_of, known_settings
from millpond.serve.settings_sources import PREFIXES, choose, config_file

_HEADS = {
    "address": "Where it listens",
    "access": "Whom it lets in",
    "limits": "How much it takes",
    "log": "What it says",
}


def serve(context: typer.Context, directory: Path | None, config: Path | None, create: bool, **options: Any) -> None:
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
    from millpond.serve.server import PondServer

    session = session_of(context)
    path = directory if directory is not None else session.path
    chosen = choose(options, dict(os.environ), config_file(path, config))
    logs.configure(chosen.serve.log_format, chosen.serve.log_level)

    def listening(rest: int, flight: int | None) -> None:
        scheme, host = ("https" if chosen.serve.tls else "http"), chosen.serve.host
        session.output.say(
            f"serving {path}: {scheme}://{host}:{rest}" + (f", Flight on port {flight}" if flight else "")
        )
        if session.output.json:
            session.output.one({"rest_port": rest, "flight_port": flight})

    PondServer(path, chosen.serve, chosen.pond, create=create, listening=listening).run()


def _options() -> list[Parameter]:
    """An option for every setting."""
    found = []
    for section, settings in known_settings().items():
        for name, setting in settings.items():
            option = name if section == "serve" else f"pond_{name}"
            flag = f"--{option.replace('_', '-')}"
            kind = kind_of(setting)
            # Text, read as the table says: a default here would hide what the environment and the file say.
            shown = "" if setting.default in ("", ()) else f" [{setting.default}]"
            helped = typer.Option(
                flag,
                *([f"--no-{flag[2:]}"] if kind == "flag" else []),
                help=f"{setting.metadata['doc']}{shown}",
                metavar=None if kind == "flag" else kind.upper(),
                show_default=False,
            )
            if kind == "flag":
                helped = typer.Option(f"{flag}/--no-{flag[2:]}", help=helped.help, show_default=False)
            of: Any = bool if kind == "flag" else list[str] if kind == "list" else str
            found.append(
                Parameter(option, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[of | None, helped])
            )
    return found


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the parameters that typer reads from its signature."""
    fixed = [
        Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        Parameter(
            "directory",
            Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[Path | None, typer.Argument(metavar="[DIR]", help="the pond; otherwise --pond")],
        ),
        Parameter(
            "config",
            Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[Path | None, typer.Option(help="a TOML file, in place of millpond.toml in the pond")],
        ),
        Parameter(
            "create",
            Parameter.POSITIONAL_OR_KEYWORD,
            default=False,
            annotation=Annotated[bool, typer.Option("--create", help="make the pond if it is not there")],
        ),
    ]
    command.__signature__ = Signature([*fixed, *_options()])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in [*fixed, *_options()]}
    return command


serve = _with_options(serve)
assert set(PREFIXES) == set(known_settings())
