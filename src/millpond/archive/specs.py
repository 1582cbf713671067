"""The indexes and the layout of a stream, as they are asked for: made into specs, and refused if they cannot work.

Asked once, when a stream is created or altered. What was accepted then stays valid: a kind that this process does not
know any more is warned of when the stream is opened, and its objects are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.archive.index.kind import IndexKind
from millpond.archive.index.registry import INDEXES
from millpond.archive.layout.layout import Layout
from millpond.archive.layout.registry import make_layout, register_layout
from millpond.model.definition import StreamDefinition
from millpond.model.spec import GivenSpec, Spec, as_spec, as_specs


def given_indexes(given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    """As specs, not checked; kinds that are passed as objects are known in this process from now on."""
    for one in given:
        if isinstance(one, IndexKind):
            INDEXES.register(type(one))
    return as_specs(given)


def checked_indexes(given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    """As specs of known kinds, with all of their options."""
    return tuple(INDEXES.make(spec).spec for spec in given_indexes(given))


def given_layout(given: GivenSpec) -> Spec:
    """As a spec, not checked; a layout that is passed as an object is known in this process from now on."""
    if isinstance(given, Layout):
        register_layout(type(given))
    return as_spec(given)


def checked_layout(given: GivenSpec) -> Spec:
    """As the spec of a known layout, with all of its options."""
    return make_layout(given_layout(given)).spec


def check_kinds(definition: StreamDefinition, before: StreamDefinition | None = None) -> None:
    """Every index and layout is one that is known and takes its columns; those that `before` had are left alone."""
    for spec in definition.indexes:
        if before is None or spec not in before.indexes:
            INDEXES.make(spec).check(definition.schema)
    layout = definition.layout
    if layout is not None and (before is None or layout != before.layout):
        make_layout(layout).check(definition.schema)
