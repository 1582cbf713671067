"""What a stream is to be: the requests that make one, and that change what it is."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from millpond.model.schema import COLUMNS_MAX
from millpond.wire.access import Right
from millpond.wire.request_base import Column, Columns, NameRequest, SpecForm, Specs, StreamRequest, Units, Where


class ColumnSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column, its type in the words of `model.schema_text`."""

    name: Column
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    nullable: bool = True


Schema = (
    Annotated[str, msgspec.Meta(max_length=1_000_000)]
    | Annotated[tuple[ColumnSpec, ...], msgspec.Meta(max_length=COLUMNS_MAX)]
)


class SettleSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a stream settles by itself: after so long, or when so much is live."""

    every: Units = "60s"
    bytes: Units = "128MB"


class Create(NameRequest, frozen=True, tag="create"):
    """-> `StreamInfo`. Without a schema: raw events. `schema_arrow` is the schema as Arrow serialises it, in base64, in
    place of `schema`: it says things of nested types that the text cannot."""

    right: ClassVar[Right | None] = "admin"

    schema: Schema | None = None
    schema_arrow: Annotated[str, msgspec.Meta(max_length=2_000_000)] | None = None
    keys: Columns = ()
    event_time: Column | None = None
    streamlets: int = 1
    durability: str = "disk"
    settle: SettleSpec | None = SettleSpec()
    partition: Units = "1d"
    memory: Units | None = None
    file: bool = False
    ttl: Units | None = None
    keep: Where | None = None
    only: Columns | None = None
    indexes: Specs = ()
    layout: SpecForm | None = None
    exist_ok: bool = False


class Alter(StreamRequest, frozen=True, tag="alter"):
    """-> `StreamInfo`. The whole schema, which only adds columns at the end, or the columns to add; how long records
    are kept, for good if that is null; all indexes, in place of those there are; the layout of what settles next."""

    right: ClassVar[Right | None] = "admin"

    schema: Schema | None = None
    schema_arrow: Annotated[str, msgspec.Meta(max_length=2_000_000)] | None = None
    add: Schema | None = None
    ttl: Units | msgspec.UnsetType | None = msgspec.UNSET
    indexes: Specs | msgspec.UnsetType = msgspec.UNSET
    layout: SpecForm | msgspec.UnsetType | None = msgspec.UNSET
