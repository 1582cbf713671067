"""The indexes and the layout of a stream, as they are asked for: made into specs, and refused if they cannot work.

Asked once, when a stream is created or altered. What was accepted then stays valid: a kind that this process does not
know any more is warned of when the stream is opened, and its objects are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.archive.index.kind import IndexKind
from millpond.archive.index.registry import INDEXES
from millpond.errors import InvalidValue
from millpond.model.cut import comparable
from millpond.model.definition import StreamDefinition
from millpond.model.spec import GivenSpec, Spec, as_spec, as_specs

# Layouts by name, until `archive/layout` has its own.
_LAYOUTS = ("grid", "kdtree")


def given_indexes(given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    """As specs, not checked; kinds that are passed as objects are known in this process from now on."""
    for one in given:
        if isinstance(one, IndexKind):
            INDEXES.register(type(one))
    return as_specs(given)


def checked_indexes(given: Sequence[GivenSpec]) -> tuple[Spec, ...]:
    """As specs of known kinds, with all of their options."""
    return tuple(INDEXES.make(spec).spec for spec in given_indexes(given))


def checked_layout(given: GivenSpec) -> Spec:
    """As a spec."""
    return as_spec(given)


def check_kinds(definition: StreamDefinition, before: StreamDefinition | None = None) -> None:
    """Every index and layout is one that is known and takes its columns; those that `before` had are left alone."""
    for spec in definition.indexes:
        if before is None or spec not in before.indexes:
            INDEXES.make(spec).check(definition.schema)
    layout = definition.layout
    if layout is not None and (before is None or layout != before.layout):
        _check_layout(layout, definition.schema)


def _check_layout(spec: Spec, schema: pa.Schema) -> None:
    if spec.kind not in _LAYOUTS:
        raise InvalidValue(f"no layout {spec.kind!r}", hint=f"one of {', '.join(_LAYOUTS)}")
    for column in spec.columns:
        if not comparable(schema.field(column).type):
            raise InvalidValue(
                f"{spec.key}: {column!r} has type {schema.field(column).type}", hint="a dimension has an order"
            )
    buckets = spec.option("buckets", 1)
    if not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1:
        raise InvalidValue(f"{spec.key} has buckets={buckets!r}", hint="a whole number, at least 1")
