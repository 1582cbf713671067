"""Which route a request is of, what names its path holds, and what its parameters say.

A stream's name stands in the path as it is, slashes and all. The last part of the path is a verb if it is one of
`VERBS`, and what follows `/groups` is about consumer groups; a name with such a word in it is written with %2F in place
of its slashes. Parameters are read strictly: what no route takes is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from millpond.errors import InvalidInput, MethodNotAllowed, NoSuchRoute
from millpond.serve.route import Route
from millpond.serve.routes import ROUTES, VERBS

_STREAMS = "/v1/streams/"
_TOKENS = "/v1/tokens/"
# A stream's groups, one of them, its members, one of them: what comes behind the first `/groups` that this fits.
_OF_GROUP = re.compile(
    r"(.+?)/groups(?:/([^/]+)(?:(/reset)|(/members)(?:/([^/]+)(/poll|/commit|/abort|/renew|/seek)?)?)?)?"
)
_BY_PATH: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route


@dataclass(frozen=True, slots=True)
class Match:
    """A request's route, and what its path holds: the name of a stream or a token, a group, an instance."""

    route: Route
    name: str = ""
    group: str = ""
    instance: str = ""


def match(method: str, raw_path: bytes) -> Match:
    """The route of a request. `NoSuchRoute` or `MethodNotAllowed` if there is none."""
    path, *names = _template(raw_path.partition(b"?")[0])
    methods = _BY_PATH.get(path)
    if methods is None:
        raise NoSuchRoute(f"no route {_shown(raw_path)}", hint="GET /docs lists the routes")
    route = methods.get(method)
    if route is None:
        raise MethodNotAllowed(f"no {method[:20]} {path}", hint=f"it takes {', '.join(sorted(methods))}")
    return Match(route, *names)


def allowed_methods(raw_path: bytes) -> list[str]:
    """The methods of a path."""
    try:
        return sorted(_BY_PATH.get(_template(raw_path.partition(b"?")[0])[0], ()))
    except InvalidInput:
        return []


def _template(raw: bytes) -> list[str]:
    """The path of the table that a path is of, and the names in it."""
    text = raw.decode("latin-1")
    if text.startswith(_STREAMS) and len(text) > len(_STREAMS):
        whole = text[len(_STREAMS) :]
        found = _OF_GROUP.fullmatch(whole)
        if found is not None:
            name, group, reset, members, instance, verb = (part or "" for part in found.groups())
            path = "/{group}" * bool(group) + reset + members + "/{instance}" * bool(instance) + verb
            return [f"{_STREAMS}{{name}}/groups{path}", *map(_decoded, (name, group, instance))]
        rest, _, last = whole.rpartition("/")
        if rest and last in VERBS:
            return [f"{_STREAMS}{{name}}/{last}", _decoded(rest)]
        return [f"{_STREAMS}{{name}}", _decoded(whole)]
    if text.startswith(_TOKENS) and len(text) > len(_TOKENS) and "/" not in text[len(_TOKENS) :]:
        return [f"{_TOKENS}{{id}}", _decoded(text[len(_TOKENS) :])]
    return [text]


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise NoSuchRoute(f"no name is {text[:80]!r}", hint="a name is percent-encoded UTF-8") from None


def _shown(raw: bytes) -> str:
    return raw[:200].decode("ascii", "replace")


def read_query(kind: type[Struct], text: bytes) -> Any:
    """The parameters of a request; one that is unknown, given twice, or not what it should be is refused."""
    found: dict[str, str] = {}
    for part in text.split(b"&") if text else ():
        raw_name, _, raw_value = part.partition(b"=")
        try:
            name, value = (unquote_to_bytes(raw.replace(b"+", b" ")).decode() for raw in (raw_name, raw_value))
        except UnicodeDecodeError:
            raise InvalidInput("a parameter is not UTF-8", hint="percent-encode it as UTF-8") from None
        known = kind.__struct_fields__
        if name not in known:
            raise InvalidInput(f"no parameter {name[:80]!r} here", hint=f"parameters: {', '.join(known) or 'none'}")
        if name in found:
            raise InvalidInput(f"parameter {name!r} is given twice", hint="give it once")
        found[name] = value
    try:
        query = msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"a parameter does not fit: {error}", hint="GET /docs lists what each may be") from None
    for name in found:
        if getattr(query, name) is None:  # the text "null", which converts to None
            raise InvalidInput(f"parameter {name!r} is {found[name]!r}", hint="leave it out")
    return query
