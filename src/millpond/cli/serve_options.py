"""The options of `millpond serve` that are settings: one for each row of the settings table, made from it.

A command takes them by `@with_settings`: it gets what was given as one mapping, `given`, in the form that
`serve.settings_sources.choose` takes. Defaults stay out of it, so that a lower source can still speak.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field
from typing import Annotated, Any, get_type_hints

import typer

from millpond.serve.settings import kind_of, known_settings, shown_default

_METAVARS = {
    "text": "TEXT",
    "list": "TEXT",
    "bytes": "SIZE",
    "seconds": "DURATION",
    "count": "NUMBER",
    "number": "NUMBER",
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """`command(context, …, given=…)` with an option for every setting in place of `given`."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "given"]
    hints = get_type_hints(command, include_extras=True)
    options = {
        (name if section == "serve" else f"pond_{name}"): _option(section, setting)
        for section, settings in known_settings().items()
        for name, setting in settings.items()
    }

    def run(*positional: Any, **named: Any) -> None:
        given = {name: named.pop(name) for name in options if name in named}
        command(*positional, **named, given=given)

    parameters = [each.replace(annotation=hints[each.name]) for each in own]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in options.items()
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _option(section: str, setting: Field[Any]) -> Any:
    flag = f"--{'' if section == 'serve' else 'pond-'}{setting.name.replace('_', '-')}"
    kind = kind_of(setting)
    text = f"{setting.metadata['doc'].replace('`', '')} [{shown_default(setting)}]"
    if kind == "flag":
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text, show_default=False)]
    of: Any = list[str] if kind == "list" else str
    metavar = "|".join(setting.metadata["choices"]) if kind == "choice" else _METAVARS[kind]
    more = " May be repeated." if kind == "list" else ""
    return Annotated[of | None, typer.Option(flag, help=text + more, show_default=False, metavar=metavar)]
