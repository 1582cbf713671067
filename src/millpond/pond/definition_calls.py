"""Making, altering and dropping streams, as a desk is asked for it.

A schema comes as text, as columns, or as Arrow writes it; it is within the node's bounds before the pond hears of it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from millpond.errors import InvalidSchema, InvalidValue
from millpond.model import definition as model
from millpond.model.definition import check_durability
from millpond.model.schema_text import parse_schema, parse_type
from millpond.pond.bounds import Bounds
from millpond.wire import requests as ask
from millpond.wire.access import Caller
from millpond.wire.answers import DropPlan, StreamInfo

if TYPE_CHECKING:
    from millpond.pond.pond import Pond
    from millpond.pond.stream import Stream


def definition_calls(
    pond: Pond, stream_of: Callable[[ask.Request], Stream], bounds: Bounds
) -> dict[type[ask.Request], Callable[[Caller, Any], Any]]:
    """What answers each request; `stream_of` finds a request's stream."""

    def create(caller: Caller, request: ask.Create) -> StreamInfo:
        settle = request.settle
        schema = schema_of(request.schema, request.schema_arrow)
        bounds.check(request.stream, schema)
        made = pond.create_stream(
            request.stream,
            schema,
            keys=request.keys,
            event_time=request.event_time,
            streamlets=request.streamlets,
            durability=check_durability(request.durability),
            settle=None if settle is None else model.Settle(every=settle.every, bytes=settle.bytes),
            partition=request.partition,
            memory=request.memory,
            file=request.file,
            ttl=request.ttl,
            keep=request.keep,
            only=request.only,
            indexes=request.indexes,
            layout=request.layout,
            exist_ok=request.exist_ok,
        )
        return made.info()

    def alter(caller: Caller, request: ask.Alter) -> StreamInfo:
        whole, added = schema_of(request.schema, request.schema_arrow), schema_of(request.add, None)
        ttl = ... if isinstance(request.ttl, msgspec.UnsetType) else request.ttl
        if whole is not None and added is not None:
            raise InvalidValue(
                "an alteration names the whole schema or the columns to add", hint='one of the two, e.g. "add"'
            )
        indexes = ... if isinstance(request.indexes, msgspec.UnsetType) else request.indexes
        layout = ... if isinstance(request.layout, msgspec.UnsetType) else request.layout
        if whole is None and added is None and all(one is ... for one in (ttl, indexes, layout)):
            raise InvalidValue(
                "an alteration that names nothing", hint='e.g. "add" for columns, "ttl", "indexes" or "layout"'
            )
        if added is not None:
            whole = pa.schema([*stream_of(request).schema, *added])
        if whole is not None:
            bounds.check(request.stream, whole)
        return pond.alter_stream(request.stream, whole, ttl=ttl, indexes=indexes, layout=layout).info()

    def drop(caller: Caller, request: ask.Drop) -> DropPlan:
        status = stream_of(request).status()
        if not request.preview:
            pond.drop_stream(request.stream)
        return DropPlan(
            status.name,
            status.rows_live,
            status.rows_settled,
            status.bytes_live,
            status.bytes_settled,
            status.objects,
            done=not request.preview,
        )

    return {ask.Create: create, ask.Alter: alter, ask.Drop: drop}


def schema_of(described: str | Sequence[ask.ColumnSpec] | None, arrow: str | None) -> pa.Schema | None:
    """The schema that a request describes, in one of its forms; None if in none."""
    if arrow is not None:
        if described is not None:
            raise InvalidValue("both schema and schema_arrow are given", hint="give one of the two")
        try:
            return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arrow, validate=True)))
        except (binascii.Error, ValueError, OSError, pa.ArrowException) as error:
            raise InvalidSchema(
                f"not a schema as Arrow serialises it: {error}", hint="base64 of schema.serialize()"
            ) from None
    if described is None or isinstance(described, str):
        return None if described is None else parse_schema(described)
    return pa.schema([pa.field(column.name, parse_type(column.type), column.nullable) for column in described])
