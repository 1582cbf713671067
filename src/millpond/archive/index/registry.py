"""Which index kinds there are: built in, installed as entry points, or passed as objects in this process.

A spec from the wire or from a catalog only ever names one of these: nothing is imported because a spec says so.
"""

from __future__ import annotations

import importlib
import threading
from importlib import metadata

from millpond.archive.index.kind import IndexKind
from millpond.errors import InvalidValue
from millpond.model.spec import Spec

ENTRY_POINTS = "millpond.indexes"
# Imported when they are first asked for.
_BUILT_IN = {
    "bloom": ("millpond.archive.index.bloom", "Bloom"),
    "boxes": ("millpond.archive.index.boxes", "Boxes"),
    "minmax": ("millpond.archive.index.range", "MinMax"),
    "values": ("millpond.archive.index.values", "Values"),
}


class IndexRegistry:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed: dict[str, type[IndexKind]] = {}

    def register(self, kind: type[IndexKind]) -> None:
        """Make a class known in this process. The newest of a name counts; the built in ones cannot be replaced."""
        if kind.name in _BUILT_IN and self._built_in(kind.name) is not kind:
            raise InvalidValue(f"index kind {kind.name!r} is built in", hint="give yours another name")
        with self._lock:
            self._passed[kind.name] = kind

    def forget(self, name: str) -> None:
        """Undo `register`."""
        with self._lock:
            self._passed.pop(name, None)

    def passed(self) -> dict[str, type[IndexKind]]:
        """Those that were passed as objects."""
        with self._lock:
            return {name: kind for name, kind in self._passed.items() if name not in _BUILT_IN}

    def names(self) -> list[str]:
        """All that are known."""
        return sorted({*_BUILT_IN, *self._passed, *(point.name for point in _points())})

    def find(self, name: str) -> type[IndexKind] | None:
        """The class of that name; None if there is none."""
        if name in _BUILT_IN:
            return self._built_in(name)
        with self._lock:
            if name in self._passed:
                return self._passed[name]
        for point in _points():
            if point.name == name:
                kind = point.load()
                if not (isinstance(kind, type) and issubclass(kind, IndexKind) and kind.name == name):
                    raise InvalidValue(
                        f"entry point {point.value!r} is no index kind called {name!r}",
                        hint="it names a subclass of millpond.IndexKind, under the name that the class has",
                    )
                return kind
        return None

    def make(self, spec: Spec) -> IndexKind:
        """The kind that a spec names. `InvalidValue` if there is none, or it does not take these options."""
        found = self.find(spec.kind)
        if found is None:
            raise InvalidValue(
                f"no index kind {spec.kind!r}",
                hint=f"known are {', '.join(self.names())}; others are installed as entry points {ENTRY_POINTS!r}, or "
                "passed as objects to an embedded pond",
            )
        try:
            return found(*spec.columns, **dict(spec.options))
        except TypeError as error:
            raise InvalidValue(f"{spec}: {error}", hint="look at the columns and options that it takes") from error

    def _built_in(self, name: str) -> type[IndexKind]:
        module, inner = _BUILT_IN[name]
        found: type[IndexKind] = getattr(importlib.import_module(module), inner)
        return found


def _points() -> metadata.EntryPoints:
    return metadata.entry_points(group=ENTRY_POINTS)


INDEXES = IndexRegistry()
