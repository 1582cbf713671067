"""A stream's definition as JSON: in the catalog, and on the wire between a node and its clients."""

from __future__ import annotations

import msgspec

from millpond.model import predicate as predicates
from millpond.model.definition import Durability, Settle, StreamDefinition
from millpond.model.schema import decode_schema, encode_schema
from millpond.model.spec import PlainSpec, spec_of
from millpond.model.units import Bytes, Seconds


class StoredDefinition(msgspec.Struct, omit_defaults=True):
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
    file: bool = False
    ttl_seconds: float | None = None
    keep: str | None = None
    keep_terms: str | None = None
    sent: str | None = None
    indexes: list[PlainSpec] = []
    layout: PlainSpec | None = None


def encode_definition(definition: StreamDefinition) -> str:
    """A definition as JSON."""
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
        file=definition.file,
        ttl_seconds=definition.ttl_seconds,
        keep=definition.keep,
        keep_terms=None if definition.keep_terms is None else predicates.encode(definition.keep_terms).decode(),
        sent=None if definition.sent is None else encode_schema(definition.sent),
        indexes=[spec.plain() for spec in definition.indexes],
        layout=None if definition.layout is None else definition.layout.plain(),
    )
    return msgspec.json.encode(stored).decode()


def decode_definition(body: str) -> StreamDefinition:
    """The definition that `encode_definition` wrote."""
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
        file=stored.file,
        ttl_seconds=stored.ttl_seconds,
        keep=stored.keep,
        keep_terms=None if stored.keep_terms is None else predicates.decode(stored.keep_terms.encode()),
        sent=None if stored.sent is None else decode_schema(stored.sent),
        indexes=tuple(map(spec_of, stored.indexes)),
        layout=None if stored.layout is None else spec_of(stored.layout),
    )
