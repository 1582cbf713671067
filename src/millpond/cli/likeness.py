"""`create --like FILE`: the schema that data seems to have, for the user to look at and go on with.

A guess from the first part of the data: whole numbers are `bigint`, text that is everywhere a time is `timestamp`,
what is null everywhere is `string`. The columns that Millpond adds when reading are left out, so that what `cat` wrote
will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from millpond.cli.source import form_of
from millpond.errors import InvalidSchema
from millpond.model.schema import SYSTEM_COLUMNS, TIMESTAMP
from millpond.model.schema_text import type_text

SAMPLE_ROWS = 10_000
SAMPLE_BYTES = 8_000_000

_HINT = "write the schema with --schema, e.g. --schema 'vid string, temp double'"
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)


def schema_like(path: Path) -> pa.Schema:
    """The schema of a file of NDJSON, CSV or Arrow."""
    form = form_of(path, None)
    try:
        found = {"ndjson": _of_ndjson, "csv": _of_csv, "arrow": _of_arrow}[form](path)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InvalidSchema(f"{path} is not {form}: {error}", hint=_HINT) from None
    fields = [field for field in found if field.name not in SYSTEM_COLUMNS]
    if not fields:
        raise InvalidSchema(f"{path} has no records to guess a schema from", hint=_HINT)
    return pa.schema([pa.field(field.name, _taken(field.type)) for field in fields])


def _taken(kind: pa.DataType) -> pa.DataType:
    """The type of a stream for a type that was found; one that has none is refused when the stream is created."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_null(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return _taken(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(_taken(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(at).name, _taken(kind.field(at).type)) for at in range(kind.num_fields)])
    return kind


def _of_arrow(path: Path) -> pa.Schema:
    with path.open("rb") as file:
        return pa.ipc.open_stream(file).schema


def _of_csv(path: Path) -> pa.Schema:
    import pyarrow.csv as pa_csv

    with pa_csv.open_csv(path, read_options=pa_csv.ReadOptions(block_size=SAMPLE_BYTES)) as reader:
        return reader.schema


def _of_ndjson(path: Path) -> pa.Schema:
    with path.open("rb") as file:
        lines = file.read(SAMPLE_BYTES).split(b"\n")
        if file.read(1):
            lines.pop()  # cut in the middle
    columns: dict[str, pa.DataType] = {}
    for number, line in enumerate(lines[:SAMPLE_ROWS], 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise InvalidSchema(f"{path}, line {number} is not JSON: {error}", hint=_HINT) from None
        if not isinstance(row, dict):
            raise InvalidSchema(f"{path}, line {number} is not an object", hint=_HINT)
        for name, value in row.items():
            columns[name] = _both(columns.get(name, pa.null()), _guess(value), f"line {number}, column {name!r}")
    return pa.schema(list(columns.items()))


def _guess(value: Any) -> pa.DataType:
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64()
        case float():
            return pa.float64()
        case str():
            return _guess_text(value)
        case list():
            return pa.list_(_all_of(map(_guess, value), "a list"))
        case dict():
            return pa.struct([pa.field(name, _guess(each)) for name, each in value.items()])
    return pa.string()


def _guess_text(text: str) -> pa.DataType:
    try:
        if _DATE.match(text):
            date.fromisoformat(text)
            return pa.date32()
        if _MOMENT.match(text):
            datetime.fromisoformat(text)
            return TIMESTAMP
    except ValueError:
        return pa.string()
    return pa.string()


def _all_of(kinds: Iterable[pa.DataType], place: str) -> pa.DataType:
    found = pa.null()
    for kind in kinds:
        found = _both(found, kind, place)
    return found


def _both(one: pa.DataType, other: pa.DataType, place: str) -> pa.DataType:
    """The type that holds values of both."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    texts = {pa.string(), pa.date32(), TIMESTAMP}
    if one in texts and other in texts:
        return TIMESTAMP if pa.string() not in (one, other) else pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_both(one.value_type, other.value_type, place))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {one.field(at).name: one.field(at).type for at in range(one.num_fields)}
        for at in range(other.num_fields):
            field = other.field(at)
            fields[field.name] = _both(fields.get(field.name, pa.null()), field.type, f"{place}.{field.name}")
        return pa.struct([pa.field(name, kind) for name, kind in fields.items()])
    raise InvalidSchema(f"{place}: {type_text(other)} where {type_text(one)} was before", hint=_HINT)
