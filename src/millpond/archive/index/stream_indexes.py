"""The indexes of one stream: its kinds made ready for its schema, the columns of their entries, and how these are made.

In an index file the value `values` of the index `values(city)` is the column `values(city).values`; see
`IndexKind.entry_key`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.kind import BLOB, IndexKind
from millpond.archive.index.registry import INDEXES
from millpond.errors import MillpondError
from millpond.model.definition import StreamDefinition
from millpond.model.schema import stored_schema
from millpond.model.spec import Spec

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class KindInUse:
    """A kind, and the columns of its entries as index files have them: name within the kind -> field."""

    kind: IndexKind
    fields: Mapping[str, pa.Field]

    @property
    def key(self) -> str:
        return self.kind.spec.key


@dataclass(frozen=True)
class StreamIndexes:
    """Immutable. `unknown`: prefixes of columns that belong to kinds which this process does not know; they are kept as
    they are, for processes that do. `warnings` say which."""

    used: tuple[KindInUse, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fields(self) -> list[pa.Field]:
        return [field for one in self.used for field in one.fields.values()]

    def entry(self, rows: pa.Table) -> dict[str, Any]:
        """What all kinds say of an object with these rows, by the names of columns. Raises nothing: what a kind fails
        to tell is not known."""
        found: dict[str, Any] = {}
        for one in self.used:
            try:
                told = one.kind.describe(rows)
                found |= {field.name: told.get(name) for name, field in one.fields.items()}
            except Exception as error:  # user code must not keep rows from settling
                _LOG.warning("index %s could not describe an object: %s: %s", one.key, type(error).__name__, error)
        return found

    def columns(self, entries: Sequence[Mapping[str, Any]], blobs: BlobWriter) -> dict[str, pa.Array]:
        """What `entry` said of several objects, in columns. Blobs are handed to `blobs`; an entry has their places."""
        return {
            field.name: _column(field, [entry.get(field.name) for entry in entries], blobs) for field in self.fields
        }


NO_INDEXES = StreamIndexes()


def indexes_of(definition: StreamDefinition) -> StreamIndexes:
    """Those of a stream."""
    return indexes_for(definition.indexes, stored_schema(definition.schema))


def indexes_for(specs: Sequence[Spec], schema: pa.Schema) -> StreamIndexes:
    """Those that specs name. A kind that is not known, or does not take its columns any more, is warned of."""
    used, unknown, warnings = [], [], []
    for spec in specs:
        try:
            kind = INDEXES.make(spec)
            fields = {f.name: pa.field(f"{kind.entry_key}.{f.name}", f.type) for f in kind.fields(schema)}
            used.append(KindInUse(kind, fields))
        except Exception as error:  # user code must not keep a stream from being read
            reason = error.message if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}"
            warnings.append(f"index {spec.key} is not used, its objects are read: {reason}")
            unknown += [f"{spec.key}.", f"{spec.key}#"]
    return StreamIndexes(tuple(used), tuple(unknown), tuple(warnings))


def _column(field: pa.Field, values: Sequence[Any], blobs: BlobWriter) -> pa.Array:
    """A value for each object; what does not fit the field is not known."""
    if field.type.equals(BLOB):
        places = [blobs.add(value) if isinstance(value, bytes | bytearray | memoryview) else None for value in values]
        return pa.array(places, BLOB)
    return pa.concat_arrays([_one(value, field) for value in values]) if values else pa.array([], field.type)


def _one(value: Any, field: pa.Field) -> pa.Array:
    if value is None:
        return pa.nulls(1, field.type)
    try:
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if isinstance(value, pa.Array):
            return pa.ListArray.from_arrays([0, len(value)], value.cast(field.type.value_type)).cast(field.type)
        return pa.array([value], field.type)
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        _LOG.warning("a value of %s is not a %s: %s", field.name, field.type, error)
        return pa.nulls(1, field.type)
