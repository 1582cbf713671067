"""What a stream is: the definition that the catalog keeps and every room is handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Literal, get_args

import pyarrow as pa

from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.names import check_name, directory_of
from millpond.model.predicate import Predicate
from millpond.model.schema import RAW_EVENTS, check_alteration, check_schema
from millpond.model.spec import Spec
from millpond.model.units import Bytes, Duration, Seconds, Size, parse_bytes, parse_seconds

Durability = Literal["disk", "os", "memory"]
DURABILITIES: tuple[Durability, ...] = get_args(Durability)

# Ids below this are the pond's own streams: few and small, and needed to make room (a drop is a record of theirs).
FIRST_STREAM_ID = 16
# A streamlet costs an active segment and an app transaction in every Delta commit.
STREAMLETS_MAX = 1_024


def new_definition(
    name: str,
    schema: pa.Schema | None,
    *,
    keys: Sequence[str],
    event_time: str | None,
    streamlets: int,
    durability: str,
    settle: Settle | None,
    partition: Duration,
    memory: Size | None,
    file: bool,
    ttl: Duration | None = None,
    keep: str | None = None,
    keep_terms: Predicate | None = None,
    only: Sequence[str] | None = None,
    indexes: tuple[Spec, ...] = (),
    layout: Spec | None = None,
) -> StreamDefinition:
    """A stream as it is asked for, checked; the catalog gives it its id. Without a schema: raw events. `keep_terms` is
    what `keep` says."""
    sent = RAW_EVENTS if schema is None else check_schema(schema)
    return StreamDefinition(
        id=0,
        name=check_name(name),
        schemas=(sent if only is None else _projected(sent, only),),
        keys=tuple(keys),
        event_time=event_time,
        streamlets=streamlets,
        durability=check_durability(durability),
        settle=settle,
        partition_seconds=int(parse_seconds(partition)),
        memory_bytes=None if memory is None else parse_bytes(memory),
        raw=schema is None,
        file=file,
        ttl_seconds=parse_ttl(ttl),
        keep=keep,
        keep_terms=keep_terms,
        sent=None if only is None else sent,
        indexes=indexes,
        layout=layout,
    )


def _projected(sent: pa.Schema, only: Sequence[str]) -> pa.Schema:
    """The columns that are stored, in the order in which they are sent."""
    if isinstance(only, str) or not only or len(set(only)) != len(only):
        raise InvalidSchema(f"only={only!r} does not name columns, each once", hint='e.g. only=["vid", "temp"]')
    for name in only:
        if sent.get_field_index(name) < 0:
            raise InvalidSchema(f"only names {name!r}, which is not sent", hint=f"columns: {', '.join(sent.names)}")
    return pa.schema([field for field in sent if field.name in set(only)])


def altered_definition(
    definition: StreamDefinition,
    schema: pa.Schema | None,
    ttl: Duration | EllipsisType | None,
    indexes: tuple[Spec, ...] | EllipsisType = ...,
    layout: Spec | EllipsisType | None = ...,
) -> StreamDefinition:
    """A stream with other columns, ttl, indexes or layout, checked; what is not named (None for a schema, else `...`)
    stays as it is."""
    if schema is not None:
        grown = check_alteration(definition.schema, schema)
        definition = definition if grown.equals(definition.schema) else definition.altered(grown)
    if not isinstance(ttl, EllipsisType):
        definition = replace(definition, ttl_seconds=parse_ttl(ttl))
    if not isinstance(indexes, EllipsisType):
        definition = replace(definition, indexes=indexes)
    return definition if isinstance(layout, EllipsisType) else replace(definition, layout=layout)


def parse_ttl(ttl: Duration | None) -> float | None:
    """How long records are kept, in seconds; None: for good."""
    if ttl is None:
        return None
    seconds = parse_seconds(ttl)
    if seconds <= 0:
        raise InvalidValue(f"a ttl of {ttl!r} keeps nothing", hint='e.g. "30d"; None keeps records for good')
    return seconds


def check_durability(value: str) -> Durability:
    """`value` if it is a durability."""
    for known in DURABILITIES:
        if value == known:
            return known
    raise InvalidValue(f"no durability {value!r}", hint=f"one of {', '.join(DURABILITIES)}")


@dataclass(frozen=True)
class Settle:
    """When a stream settles by itself: after so much time, or when so many bytes are live, whichever is first."""

    every: Duration = "60s"
    bytes: Size = "128MB"

    def __post_init__(self) -> None:
        if self.every_seconds <= 0 or self.bytes_live <= 0:
            raise InvalidValue(f"{self} would never stop settling", hint='e.g. Settle(every="60s", bytes="128MB")')

    @property
    def every_seconds(self) -> float:
        return parse_seconds(self.every)

    @property
    def bytes_live(self) -> int:
        return parse_bytes(self.bytes)


@dataclass(frozen=True)
class StreamDefinition:
    """A stream as it was created and altered. `schemas` holds every version: journal frames name the one they use."""

    id: int
    name: str
    schemas: tuple[pa.Schema, ...]
    keys: tuple[str, ...] = ()
    event_time: str | None = None
    streamlets: int = 1
    durability: Durability = "disk"
    settle: Settle | None = Settle(Seconds(60), Bytes(128_000_000))
    partition_seconds: int = 86_400
    memory_bytes: int | None = None
    raw: bool = False
    generation: int = 1
    file: bool = False
    ttl_seconds: float | None = None  # after this time a record is not given out any more; None: never
    keep: str | None = None  # a condition over what is sent: other records are not stored
    keep_terms: Predicate | None = None  # the same, understood
    sent: pa.Schema | None = None  # what is sent, if that is more than what is stored
    indexes: tuple[Spec, ...] = ()  # what is known of its objects, besides the range of every ordered column
    layout: Spec | None = None  # which rows are put into one object

    def __post_init__(self) -> None:
        if not 1 <= self.streamlets <= STREAMLETS_MAX:
            raise InvalidValue(f"{self.streamlets} streamlets", hint=f"1 to {STREAMLETS_MAX}")
        if self.partition_seconds < 60:
            raise InvalidValue(f"a time partition of {self.partition_seconds} s is too short", hint="at least 60s")
        if self.file and (not self.raw or self.keys or self.streamlets != 1):
            raise InvalidSchema("a file has a schema, keys or streamlets", hint="it has none, and one streamlet")
        if self.raw and self.sent is not None:
            raise InvalidSchema("a stream of raw events stores all of them", hint="give it a schema to name columns")
        if self.file and self.sifts:
            raise InvalidValue("a file keeps all its bytes", hint="leave keep and only out")
        if self.file and self.ttl_seconds is not None:
            raise InvalidValue(
                f"{self.name} is a file, and a file has no ttl", hint="delete it, or truncate the stream"
            )
        for key in self.keys:
            kind = self._field(key, "key").type
            if pa.types.is_nested(kind):
                raise InvalidSchema(f"key {key!r} has type {kind}", hint="a key is a plain value")
        if len(set(self.keys)) != len(self.keys):
            raise InvalidSchema(f"keys {list(self.keys)} name a column twice", hint="name each once")
        if self.event_time is not None:
            kind = self._field(self.event_time, "event time").type
            if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                raise InvalidSchema(f"event time {self.event_time!r} has type {kind}", hint="a timestamp or a date")
        self._check_specs()

    def _check_specs(self) -> None:
        """Their columns are there. Whether a kind takes them is for whoever knows the kind."""
        for spec in (*self.indexes, *((self.layout,) if self.layout else ())):
            for column in spec.columns:
                self._field(column, f"{spec.kind}:")
        keys = [spec.key for spec in self.indexes]
        if len(set(keys)) != len(keys):
            raise InvalidValue(f"indexes {keys} name one twice", hint="an index of a kind over the same columns once")
        if self.file and (self.indexes or self.layout):
            raise InvalidValue(f"{self.name} is a file, and a file has no indexes and no layout", hint="leave them out")

    def _field(self, column: str, role: str) -> pa.Field:
        if self.schema.get_field_index(column) < 0:
            raise InvalidSchema(f"{role} {column!r} is not a column", hint=f"columns: {', '.join(self.schema.names)}")
        return self.schema.field(column)

    @property
    def schema(self) -> pa.Schema:
        """The newest version: the user's columns."""
        return self.schemas[-1]

    @property
    def schema_version(self) -> int:
        return len(self.schemas) - 1

    @property
    def directory(self) -> str:
        """The name of this stream's directories."""
        return directory_of(self.name, self.id)

    @property
    def load_streamlet(self) -> int:
        """The streamlet of records that were loaded straight into the archive: one more than the log has."""
        return self.streamlets

    def altered(self, schema: pa.Schema) -> StreamDefinition:
        """The same stream with one more schema version; what is stored from now on is sent, too."""
        sent = self.sent
        if sent is not None:
            sent = pa.schema([*sent, *(field for field in schema if sent.get_field_index(field.name) < 0)])
        return replace(self, schemas=(*self.schemas, schema), sent=sent)

    @property
    def sent_schema(self) -> pa.Schema:
        """What producers send: the newest schema, and columns that are not stored where there are such."""
        return self.schema if self.sent is None else self.sent

    @property
    def sifts(self) -> bool:
        """Whether not all that is sent is stored."""
        return self.sent is not None or self.keep_terms is not None

    def cutoff_micros(self, now_micros: int) -> int | None:
        """Records ingested before this have expired; None if they never do."""
        return None if self.ttl_seconds is None else max(0, now_micros - round(self.ttl_seconds * 1e6))
