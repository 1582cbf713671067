"""Which layouts there are: the built-in ones, those of installed packages, and those that this process was handed.

A package names its layouts under the entry point `millpond.layouts`; handing a layout to `create_stream` makes it known
as well. A spec or a model from a file or from the wire is resolved among these by its kind, and imports nothing itself.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from importlib import metadata
from typing import Any

import msgspec

from millpond.archive.layout.grid import Grid
from millpond.archive.layout.kdtree import KdTree
from millpond.archive.layout.layout import Layout, Model
from millpond.errors import InvalidValue
from millpond.model.spec import Spec

ENTRY_POINTS = "millpond.layouts"

_LOG = logging.getLogger(__name__)
_LOCK = threading.Lock()
_KNOWN: dict[str, type[Layout]] = {kind.name: kind for kind in (Grid, KdTree)}
# Names of those that are known only because this process was handed them.
_HANDED: set[str] = set()


def register_layout(kind: type[Layout]) -> None:
    """Make a layout known to this process; `InvalidValue` if its name is that of another."""
    with _LOCK:
        known = _KNOWN.get(kind.name)
        if known is None:
            _HANDED.add(kind.name)
            known = kind
        if known.__qualname__ != kind.__qualname__ or known.__module__ != kind.__module__:
            raise InvalidValue(
                f"two layouts are called {kind.name!r}: {known.__qualname__} and {kind.__qualname__}",
                hint="give yours another name",
            )
        _KNOWN[kind.name] = kind  # made again in a notebook, say: the newest counts


def known_layouts() -> list[str]:
    """Their names."""
    _load_installed()
    return sorted(_KNOWN)


def make_layout(spec: Spec) -> Layout:
    """The layout that a spec names; `InvalidValue` if there is none or its options are wrong."""
    kind = _find(spec.kind)
    if kind is None:
        raise InvalidValue(f"no layout {spec.kind!r}", hint=f"one of {', '.join(known_layouts())}")
    try:
        options: dict[str, Any] = dict(spec.options)
        return kind(*spec.columns, **options)
    except TypeError as error:
        raise InvalidValue(f"layout {spec}: {error}", hint=f"see the options of {kind.__name__}") from error


def find_layout(spec: Spec | None) -> Layout | None:
    """The same for a stream that is there already: None, with a warning, if this process does not know it."""
    if spec is None:
        return None
    try:
        return make_layout(spec)
    except InvalidValue as error:
        _LOG.warning("rows are stored as they come: %s", error.message)
        return None


def layout_kind(spec: Spec | None) -> type[Layout] | None:
    """The class of a layout that other processes may not know: neither built in nor installed."""
    kind = None if spec is None else _KNOWN.get(spec.kind)
    return kind if kind is not None and kind.name in _HANDED else None


def decode_model(data: bytes | str) -> Model:
    """The model that `encode` gave; `ValueError` if it is none, or of a layout that this process does not know."""
    try:
        plain: Any = msgspec.json.decode(data)
        kind = _find(plain["kind"])
        if kind is None:
            raise ValueError(f"no layout {plain['kind']!r}")
        return kind.decode(plain)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a model: {error}") from error


def _find(name: str) -> type[Layout] | None:
    if name not in _KNOWN:
        _load_installed()
    return _KNOWN.get(name)


@cache
def _load_installed() -> None:
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            register_layout(entry.load())
            _HANDED.discard(entry.name)
        except Exception as error:  # one broken package must not keep the others from their streams
            _LOG.warning("the layout %s of an installed package is not usable: %s", entry.name, error)
