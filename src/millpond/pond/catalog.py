"""The catalog: which streams there are, itself kept in a stream (K12).

Each record of `_pond/catalog` says what happened to one stream: created or altered (with its whole definition) or
dropped. Reading them in order gives the streams of now; ids go upwards and are never used twice (I2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from millpond.errors import Damaged
from millpond.model.definition import FIRST_STREAM_ID, Durability, Settle, StreamDefinition
from millpond.model.schema import TIMESTAMP, decode_schema, encode_schema
from millpond.model.units import Bytes, Seconds

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
OWN_STREAMS = (CATALOG, AUDIT)


class StoredDefinition(msgspec.Struct):
    """A `StreamDefinition` as JSON."""

    id: int
    name: str
    schemas: list[str]
    keys: list[str]
    event_time: str | None
    streamlets: int
    durability: Durability
    settle_every_seconds: float | None
    settle_bytes: int | None
    partition_seconds: int
    memory_bytes: int | None
    raw: bool
    generation: int


def encode_definition(definition: StreamDefinition) -> str:
    """The body of a catalog record."""
    settle = definition.settle
    stored = StoredDefinition(
        id=definition.id,
        name=definition.name,
        schemas=[encode_schema(schema) for schema in definition.schemas],
        keys=list(definition.keys),
        event_time=definition.event_time,
        streamlets=definition.streamlets,
        durability=definition.durability,
        settle_every_seconds=settle.every_seconds if settle else None,
        settle_bytes=settle.bytes_live if settle else None,
        partition_seconds=definition.partition_seconds,
        memory_bytes=definition.memory_bytes,
        raw=definition.raw,
        generation=definition.generation,
    )
    return msgspec.json.encode(stored).decode()


def decode_definition(body: str) -> StreamDefinition:
    """The definition in a catalog record."""
    stored = msgspec.json.decode(body, type=StoredDefinition)
    settle = None
    if stored.settle_every_seconds is not None and stored.settle_bytes is not None:
        settle = Settle(Seconds(stored.settle_every_seconds), Bytes(stored.settle_bytes))
    return StreamDefinition(
        id=stored.id,
        name=stored.name,
        schemas=tuple(decode_schema(text) for text in stored.schemas),
        keys=tuple(stored.keys),
        event_time=stored.event_time,
        streamlets=stored.streamlets,
        durability=stored.durability,
        settle=settle,
        partition_seconds=stored.partition_seconds,
        memory_bytes=stored.memory_bytes,
        raw=stored.raw,
        generation=stored.generation,
    )


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
        if op in ("create", "alter"):
            self.streams[definition.name] = definition
        elif op == "drop":
            self.streams.pop(definition.name, None)
            self.dropped[definition.id] = definition
        else:
            raise Damaged(f"the catalog holds an unknown operation {op!r}", hint="open it with a newer Millpond")
        self.next_id = max(self.next_id, definition.id + 1)
