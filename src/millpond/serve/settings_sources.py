"""Where settings come from: the command line over the environment over a TOML file over the defaults.

One scheme for the server's own settings and the pond's:

|  | the server's `port` | the pond's `memory_bytes` |
|---|---|---|
| command line | `--port 7070` | `--pond-memory-bytes 4GB` |
| environment | `MILLPOND_SERVE_PORT=7070` | `MILLPOND_POND_MEMORY_BYTES=4GB` |
| TOML | `port = 7070` under `[serve]` | `memory_bytes = "4GB"` under `[pond]` |

A size or a duration is written with its unit ("16MB", "60s") or as a bare number of the unit in its name. A name that
is not known is an error that names the nearest one: a limit with a typing mistake in it would be no limit.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any

from millpond.errors import InvalidValue
from millpond.model.units import parse_bytes, parse_seconds
from millpond.serve.settings import ServeSettings, bounds, check_value, kind_of, known_settings
from millpond.settings import Settings

# What is read if it lies in the pond's directory and no other file is named.
CONFIG = "millpond.toml"

PREFIXES = {"serve": "MILLPOND_SERVE_", "pond": "MILLPOND_POND_"}

_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Chosen:
    """What was chosen, and by what: `sources` names it for each setting that is not at its default."""

    serve: ServeSettings
    pond: Mapping[str, int | float]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class _Given:
    section: str
    name: str
    value: Any
    source: str


def choose(
    command_line: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Chosen:
    """The settings that all sources together make. `command_line` has the server's settings by name, the pond's with
    `pond_` before it; what is None was not given."""
    given = [
        *(_from_toml(config) if config is not None else ()),
        *_from_environment(environment or {}),
        *_from_command_line(command_line or {}),
    ]
    known = known_settings()
    found: dict[str, dict[str, Any]] = {section: {} for section in known}
    sources: dict[str, str] = {}
    for each in given:
        found[each.section][each.name] = _checked(known[each.section][each.name], each)
        sources[each.name if each.section == "serve" else f"pond.{each.name}"] = each.source
    Settings(**found["pond"])
    return Chosen(ServeSettings(**found["serve"]), found["pond"], sources)


def _checked(setting: Field[Any], given: _Given) -> Any:
    value = read_value(setting, given.value, given.source)
    if given.section == "serve":
        try:
            check_value(setting, value)
        except InvalidValue as error:
            raise InvalidValue(f"{given.source}: {error.message}", hint=error.hint) from None
    return value


def config_file(pond: Path, named: Path | None) -> Path | None:
    """The TOML file to read: the one that is named, or the one in the pond's directory."""
    if named is not None:
        if not named.is_file():
            raise InvalidValue(f"there is no file {str(named)!r}", hint="--config names a TOML file")
        return named
    own = pond / CONFIG
    return own if own.is_file() else None


def _from_toml(path: Path) -> Iterator[_Given]:
    try:
        sections = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(
            f"{path} is not TOML: {error}", hint="sections [serve] and [pond], e.g. port = 7070"
        ) from None
    known = known_settings()
    for section, values in sections.items():
        if section not in known or not isinstance(values, dict):
            raise _unknown(f"{path}: {section}", section, known, "section")
        for name, value in values.items():
            if name not in known[section]:
                raise _unknown(f"{path} [{section}]: {name}", name, known[section])
            yield _Given(section, name, value, f"{path} [{section}] {name}")


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    known = known_settings()
    for section, prefix in PREFIXES.items():
        for variable in sorted(environment):
            if variable.startswith(prefix):
                name = variable.removeprefix(prefix).lower()
                if name not in known[section] or variable != prefix + name.upper():
                    raise _unknown(variable, name, known[section], "variable", prefix)
                yield _Given(section, name, environment[variable], variable)


def _from_command_line(options: Mapping[str, Any]) -> Iterator[_Given]:
    known = known_settings()
    for option, value in options.items():
        if value is None or value == ():
            continue
        flag = f"--{option.replace('_', '-')}"
        name = option.removeprefix("pond_")
        if option in known["serve"]:
            yield _Given("serve", option, value, flag)
        elif option != name and name in known["pond"]:
            yield _Given("pond", name, value, flag)
        else:
            raise _unknown(flag, option, [*known["serve"], *(f"pond_{each}" for each in known["pond"])])


def _unknown(where: str, name: str, known: Iterable[str], what: str = "setting", prefix: str = "") -> InvalidValue:
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0)

    def spelled(each: str) -> str:
        return prefix + each.upper() if prefix else each

    return InvalidValue(
        f"{where}: no such {what}", hint=f"is {spelled(nearest[0])} meant? docs/settings.md has them all"
    )


def read_value(setting: Field[Any], value: Any, source: str) -> Any:
    """The value of a setting as a source gives it: text from the environment and the command line, TOML's own types."""
    kind = kind_of(setting)
    try:
        if kind == "flag" and isinstance(value, str):
            return _FLAGS[value.strip().lower()]
        if kind == "list":
            return _texts(value)
        if kind == "bytes" and isinstance(value, str):
            return int(value) if _bare(value) else parse_bytes(value)
        if kind == "seconds" and isinstance(value, str):
            return float(value) if _bare(value) else parse_seconds(value)
        if kind == "count" and isinstance(value, str):
            return int(value)
        if kind == "number" and isinstance(value, str):
            return float(value)
        if kind in ("number", "seconds") and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
    except InvalidValue as error:
        raise InvalidValue(f"{source} = {value!r}: {error.message}", hint=error.hint) from None
    except (ValueError, KeyError):
        raise InvalidValue(f"{source} = {value!r}", hint=f"{setting.metadata['doc']} {bounds(setting)}") from None
    return value


def _texts(value: Any) -> Any:
    """Several texts: a list, or one text with commas."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        return value
    return tuple(part.strip() if isinstance(part, str) else part for part in value)


def _bare(value: str) -> bool:
    return value.strip().replace(".", "", 1).isdigit() and value.isascii()
