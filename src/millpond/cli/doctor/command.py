"""The command `millpond doctor`: run every check, show them, say how to mend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.doctor import machine
from millpond.cli.doctor.findings import Checked
from millpond.cli.doctor.pond import check_pond
from millpond.cli.exits import Exit
from millpond.cli.session import session_of


def doctor(
    context: typer.Context,
    spark: Annotated[bool, typer.Option("--spark", help="also start Spark and ask it something")] = False,
) -> None:
    """Check this machine and this pond, and say how to mend what is wrong. Works without a pond; changes nothing.

    \b
    Examples:
      millpond doctor
      millpond doctor --json | jq 'select(.state != "ok")'
    """
    session = session_of(context)
    checks = list(_examine(session.path, spark))
    if session.output.json:
        session.output.several(
            [{key: value for key, value in asdict(each).items() if key != "exit"} for each in checks], []
        )
    else:
        width = max(len(each.check) for each in checks)
        for each in checks:
            session.output.line(f"{each.state:<5} {each.check:<{width}}  {each.found}")
            if each.mend:
                session.output.line(f"{'':<5} {'':<{width}}  mend: {each.mend}")
    wrong = [each for each in checks if each.state == "fail"]
    odd = sum(each.state == "warn" for each in checks)
    session.output.say(f"{len(checks)} checks: {len(wrong)} failed, {odd} to look at")
    if wrong:
        raise typer.Exit(Exit.DAMAGED if any(each.exit == Exit.DAMAGED for each in wrong) else wrong[0].exit)


def _examine(path: Path, spark: bool) -> Iterator[Checked]:
    yield machine.check_python()
    yield machine.check_packages()
    java = machine.check_java()
    yield java
    yield machine.check_spark(start=spark and java.state == "ok")
    yield machine.check_memory()
    yield machine.check_open_files()
    yield machine.check_ports()
    yield machine.check_clock()
    yield from check_pond(path)
