"""A spec names a kind of index or layout, the columns it is over, and its options: a plain value that can be stored.

    text    bloom:vid,rate=0.01           kdtree:lat,lon,buckets=128
    JSON    {"kind": "bloom", "columns": ["vid"], "rate": 0.01}

A spec never imports anything: what kinds there are is decided by whoever resolves it (`archive/index/registry.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from millpond.errors import InvalidValue

Option: TypeAlias = bool | int | float | str
# A spec in JSON: kind, columns, and its options beside them.
PlainSpec: TypeAlias = dict[str, Any]

KIND, COLUMNS = "kind", "columns"
# More than anybody needs, few enough to show in an error.
COLUMNS_MAX = 32
OPTIONS_MAX = 32
SPECS_MAX = 64
TEXT_MAX = 10_000

_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_HINT = 'e.g. "values:city", or {"kind": "kdtree", "columns": ["lat", "lon"], "buckets": 128}'


@runtime_checkable
class HasSpec(Protocol):
    """An index kind or a layout, made for some columns."""

    @property
    def spec(self) -> Spec: ...


@dataclass(frozen=True, slots=True)
class Spec:
    """Immutable. Options are in the order of their names, so that equal specs are equal."""

    kind: str
    columns: tuple[str, ...]
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not _WORD.match(self.kind):
            raise InvalidValue(f"no kind can be called {str(self.kind)[:80]!r}", hint=_HINT)
        columns = tuple(self.columns)
        if not all(isinstance(name, str) and name for name in columns):
            raise InvalidValue(f"{self.kind}: {str(self.columns)[:80]!r} does not name columns", hint=_HINT)
        if not 1 <= len(columns) <= COLUMNS_MAX or len(set(columns)) != len(columns):
            raise InvalidValue(
                f"{self.kind} is over {len(columns)} columns: {', '.join(columns)[:200]}",
                hint=f"name 1 to {COLUMNS_MAX}, each once; {_HINT}",
            )
        if len(self.options) > OPTIONS_MAX:
            raise InvalidValue(f"{self.kind} has {len(self.options)} options", hint=f"at most {OPTIONS_MAX}")
        for name, value in self.options:
            _check_option(self.kind, name, value)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "options", tuple(sorted(self.options)))

    @property
    def key(self) -> str:
        """Names it among others: "values(city)"."""
        return f"{self.kind}({','.join(self.columns)})"

    def option(self, name: str, default: Any = None) -> Any:
        """The value of an option, or `default`."""
        return dict(self.options).get(name, default)

    def plain(self) -> PlainSpec:
        """As JSON has it."""
        return {KIND: self.kind, COLUMNS: list(self.columns), **dict(self.options)}

    def __str__(self) -> str:
        options = "".join(f",{name}={_shown(value)}" for name, value in self.options)
        return f"{self.kind}:{','.join(self.columns)}{options}"


def _check_option(kind: str, name: Any, value: Any) -> None:
    if not isinstance(name, str) or not _WORD.match(name) or name in (KIND, COLUMNS):
        raise InvalidValue(f"{kind}: no option can be called {str(name)[:80]!r}", hint=_HINT)
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidValue(f"{kind}: {name} is {str(value)[:80]!r}", hint="a number, a text, true or false")
    if isinstance(value, str) and len(value) > TEXT_MAX:
        raise InvalidValue(f"{kind}: {name} has {len(value)} characters", hint=f"at most {TEXT_MAX}")


def _shown(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# How callers say which index or layout they want.
GivenSpec: TypeAlias = HasSpec | Spec | str | Mapping[str, Any]


def as_spec(given: GivenSpec) -> Spec:
    """What was given, whatever the form, as a spec."""
    match given:
        case Spec():
            return given
        case str():
            return parse_spec(given)
        case Mapping():
            return spec_of(given)
        case HasSpec():
            return given.spec
    raise InvalidValue(f"{str(given)[:80]!r} is no index and no layout", hint=_HINT)


def as_specs(given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    """Several of them."""
    if isinstance(given, str | Mapping) or len(given) > SPECS_MAX:
        raise InvalidValue(f"indexes={str(given)[:80]!r}", hint=f"a list of at most {SPECS_MAX}; {_HINT}")
    return tuple(map(as_spec, given))


def spec_of(plain: Mapping[str, Any]) -> Spec:
    """From JSON."""
    columns = plain.get(COLUMNS)
    if not isinstance(plain.get(KIND), str) or not isinstance(columns, Sequence) or isinstance(columns, str):
        raise InvalidValue(f"{str(dict(plain))[:200]} names no kind, or no columns", hint=_HINT)
    options = [(name, value) for name, value in plain.items() if name not in (KIND, COLUMNS)]
    return Spec(plain[KIND], tuple(columns), tuple(options))


def parse_spec(text: str) -> Spec:
    """From a text such as "bloom:vid,rate=0.01". Columns whose names hold one of `:,=` need JSON."""
    if len(text) > TEXT_MAX:
        raise InvalidValue(f"a spec of {len(text)} characters", hint=f"at most {TEXT_MAX}")
    kind, colon, rest = text.partition(":")
    parts = [part.strip() for part in rest.split(",")] if colon else []
    columns = tuple(part for part in parts if "=" not in part)
    options = tuple(
        (name.strip(), _value(value.strip())) for name, _, value in (p.partition("=") for p in parts if "=" in p)
    )
    if not columns or len(dict(options)) != len(options):
        raise InvalidValue(f"{text[:200]!r} is no index and no layout", hint='e.g. "bloom:vid,rate=0.01"')
    return Spec(kind.strip(), columns, options)


def _value(text: str) -> Option:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
