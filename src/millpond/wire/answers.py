"""What a node answers with, besides the values that an embedded pond returns as well (`Ack`, `StreamStatus`, …): those
travel as they are. Clients ignore fields they do not know: a newer node may say more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.model.definition import Durability, Settle, StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.schema_text import parse_schema, parse_type, schema_text, type_text
from millpond.model.spec import PlainSpec, spec_of
from millpond.model.units import Bytes, Seconds

# The key of a schema's metadata under which `Objects` sends its `SnapshotMark`.
MARK = b"millpond.snapshot"


@dataclass(frozen=True, slots=True)
class Node:
    """The node, for whoever connects. `flight_port` is None where there is no Flight door."""

    version: str
    pond: str
    flight_port: int | None
    flight_tls: bool
    caller: str
    grants: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a stream is, as it was created and altered. `archive` is the directory of its Delta table."""

    name: str
    id: int
    raw: bool
    schema: str
    columns: tuple[ColumnInfo, ...]
    keys: tuple[str, ...]
    event_time: str | None
    streamlets: int
    durability: Durability
    settle_every_seconds: float | None
    settle_bytes: int | None
    partition_seconds: int
    memory_bytes: int | None
    schema_version: int
    generation: int
    archive: str
    file: bool = False
    ttl_seconds: float | None = None
    keep: str | None = None
    sent: str | None = None  # the columns that are sent, if more than are stored
    indexes: tuple[PlainSpec, ...] = ()
    layout: PlainSpec | None = None

    @classmethod
    def of(cls, definition: StreamDefinition, archive: str) -> StreamInfo:
        """What there is to say of a stream."""
        settle = definition.settle
        return cls(
            name=definition.name,
            id=definition.id,
            raw=definition.raw,
            schema=schema_text(definition.schema),
            columns=tuple(ColumnInfo(field.name, type_text(field.type), field.nullable) for field in definition.schema),
            keys=definition.keys,
            event_time=definition.event_time,
            streamlets=definition.streamlets,
            durability=definition.durability,
            settle_every_seconds=settle.every_seconds if settle else None,
            settle_bytes=settle.bytes_live if settle else None,
            partition_seconds=definition.partition_seconds,
            memory_bytes=definition.memory_bytes,
            schema_version=definition.schema_version,
            generation=definition.generation,
            archive=archive,
            file=definition.file,
            ttl_seconds=definition.ttl_seconds,
            keep=definition.keep,
            sent=None if definition.sent is None else schema_text(definition.sent),
            indexes=tuple(spec.plain() for spec in definition.indexes),
            layout=None if definition.layout is None else definition.layout.plain(),
        )

    def definition(self) -> StreamDefinition:
        """The stream's definition, as far as it is told: the newest schema alone, in the words of a text."""
        settle = None
        if self.settle_every_seconds is not None and self.settle_bytes is not None:
            settle = Settle(Seconds(self.settle_every_seconds), Bytes(self.settle_bytes))
        schema = pa.schema([pa.field(each.name, parse_type(each.type), each.nullable) for each in self.columns])
        return StreamDefinition(
            id=self.id,
            name=self.name,
            schemas=(schema,) * (self.schema_version + 1),
            keys=self.keys,
            event_time=self.event_time,
            streamlets=self.streamlets,
            durability=self.durability,
            settle=settle,
            partition_seconds=self.partition_seconds,
            memory_bytes=self.memory_bytes,
            raw=self.raw,
            generation=self.generation,
            file=self.file,
            ttl_seconds=self.ttl_seconds,
            keep=self.keep,
            sent=None if self.sent is None else parse_schema(self.sent),
            indexes=tuple(map(spec_of, self.indexes)),
            layout=None if self.layout is None else spec_of(self.layout),
        )


@dataclass(frozen=True, slots=True)
class DropPlan:
    """What a drop takes away."""

    stream: str
    rows_live: int
    rows_settled: int
    bytes_live: int
    bytes_settled: int
    objects: int
    done: bool


@dataclass(frozen=True, slots=True)
class TruncatePlan:
    """What a truncation takes away. `generation` is the one that begins with it."""

    stream: str
    generation: int
    rows_live: int
    rows_settled: int
    bytes_live: int
    bytes_settled: int
    objects: int
    done: bool


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """What a settle would move: from the boundary to the heads."""

    stream: str
    rows: int
    bytes_live: int
    ranges: Mapping[int, OffsetRange]


@dataclass(frozen=True, slots=True)
class Counted:
    count: int


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """A snapshot without its objects, and the stream it is of (`definition` as `stored_definition` reads it)."""

    definition: str
    version: int
    boundary: Mapping[int, int]
    heads: Mapping[int, int]
    root: str
    warnings: tuple[str, ...] = ()
    cutoff_micros: int | None = None
    floor: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret. `created` is a time in ISO form."""

    id: str
    name: str
    rights: tuple[str, ...]
    prefixes: tuple[str, ...]
    created: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token with its secret, which nobody can tell again."""

    token: str
    info: TokenInfo
