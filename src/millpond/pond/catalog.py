"""The catalog: which streams there are, itself kept in a stream (K12).

Each record of `_pond/catalog` says what happened to one stream: created, altered or truncated (with its whole
definition) or dropped. Reading them in order gives the streams of now; ids go upwards and are never used twice (I2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.consume.positions import POSITIONS
from millpond.errors import Damaged
from millpond.model.definition import FIRST_STREAM_ID, StreamDefinition
from millpond.model.schema import TIMESTAMP
from millpond.model.stored_definition import decode_definition
from millpond.pond.history import QUERIES

CATALOG = StreamDefinition(
    id=1,
    name="_pond/catalog",
    schemas=(pa.schema([("time", TIMESTAMP), ("op", pa.string()), ("stream", pa.int64()), ("body", pa.string())]),),
    settle=None,
)
AUDIT = StreamDefinition(
    id=2,
    name="_pond/audit",
    schemas=(
        pa.schema([("time", TIMESTAMP), ("action", pa.string()), ("stream", pa.string()), ("detail", pa.string())]),
    ),
    settle=None,
)
OWN_STREAMS = (CATALOG, AUDIT, POSITIONS, QUERIES)


@dataclass
class Catalog:
    """What the catalog's records add up to. Not thread-safe: the pond holds a lock while it changes it."""

    streams: dict[str, StreamDefinition] = field(default_factory=dict)
    dropped: dict[int, StreamDefinition] = field(default_factory=dict)
    next_id: int = FIRST_STREAM_ID

    @classmethod
    def replay(cls, batches: Iterable[pa.RecordBatch]) -> Catalog:
        """The catalog after all records."""
        catalog = cls()
        for batch in batches:
            for row in batch.select(["op", "stream", "body"]).to_pylist():
                catalog.apply(row["op"], decode_definition(row["body"]))
        return catalog

    def apply(self, op: str, definition: StreamDefinition) -> None:
        """One record's effect."""
        if op in ("create", "alter", "truncate"):
            self.streams[definition.name] = definition
        elif op == "drop":
            self.streams.pop(definition.name, None)
            self.dropped[definition.id] = definition
        else:
            raise Damaged(f"the catalog holds an unknown operation {op!r}", hint="open it with a newer Millpond")
        self.next_id = max(self.next_id, definition.id + 1)
