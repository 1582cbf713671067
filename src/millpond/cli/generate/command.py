"""The commands of `millpond generate`. What they print fits any pond."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.generate import prometheus
from millpond.cli.generate.gridpocket import gridpocket
from millpond.cli.session import session_of
from millpond.errors import InvalidValue

generate = typer.Typer(name="generate", rich_markup_mode=None)
generate.command()(gridpocket)

# host:port, or [v6]:port.
_TARGET = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")


@generate.callback()
def about() -> None:
    """Print ready files for Grafana and Prometheus, or make meter readings.

    \b
    Examples:
      millpond generate gridpocket --meters 10 --every 6h
      millpond generate grafana-dashboard > millpond.json
      millpond generate prometheus-config > prometheus.yml
    """


@generate.command()
def grafana_dashboard(context: typer.Context) -> None:
    """Print a Grafana dashboard of everything a node shows.

    \b
    Example:
      millpond generate grafana-dashboard > millpond.json
    """
    from millpond.cli.generate import grafana

    made = grafana.dashboard()
    session_of(context).output.one(made, text=json.dumps(made, indent=2, ensure_ascii=False))


@generate.command()
def prometheus_config(
    context: typer.Context,
    target: Annotated[str, typer.Option(help="where the node answers: HOST:PORT")] = "127.0.0.1:7070",
    credentials_file: Annotated[
        Path | None, typer.Option(help="where Prometheus finds the token that it shows, on its own machine")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="the node speaks TLS")] = False,
    ca_file: Annotated[
        Path | None, typer.Option(help="where Prometheus finds who signed the node's certificate; means --tls")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="print the alert rules that the config names")] = False,
) -> None:
    """Print a Prometheus configuration that scrapes a node, or the alert rules that belong beside it.

    The token needs the right to read everything: `millpond token create --right read`.

    \b
    Examples:
      millpond generate prometheus-config --target pond.example:7070 --credentials-file token > prometheus.yml
      millpond generate prometheus-config --rules > millpond-rules.yml
    """
    if not _TARGET.fullmatch(target):
        raise InvalidValue(f"target {target!r} is not HOST:PORT", hint="e.g. --target 127.0.0.1:7070, without http://")
    output = session_of(context).output
    if rules:
        output.one({"rules": prometheus.rules()}, text=prometheus.rules())
        return
    token, ca = (None if path is None else str(path) for path in (credentials_file, ca_file))
    text = prometheus.config(target, token, tls, ca)
    output.one({"config": text}, text=text)
    output.say(f"alert rules: millpond generate prometheus-config --rules > {prometheus.RULES_FILE}")
