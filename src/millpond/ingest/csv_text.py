"""CSV in and out: a header with the columns' names, then one record a line, quoted where needed.

A field that is empty is null, a quoted empty one is empty text. Values look as in JSON (`json_form`), with three
differences that come from a cell being only text: lists, structs and maps are JSON inside their cell; a binary column
is read from either `column` (text) or `column_base64` and always written as the latter; floats may be spelled as
Arrow does ("nan", "-inf").
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from millpond.errors import InvalidRecord
from millpond.ingest.arrow import first_failing, to_batch
from millpond.ingest.json_form import JsonForm
from millpond.ingest.json_lines import json_values
from millpond.model import misfit
from millpond.model.misfit import Place
from millpond.model.row_types import convert, value_type
from millpond.model.rows import codec_of
from millpond.model.schema import BASE64_SUFFIX, TIMESTAMP, carries_bytes

# What is parsed at a time; a single record must fit into it.
BLOCK_BYTES = 8_000_000

_ZONED = r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def read_csv(source: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a CSV text as batches of `schema`. Errors count records from 1, the header not among them."""
    names = _header(source.readline())
    fields = _fields(schema, names)
    rest = io.BufferedReader(_Rest(source), BLOCK_BYTES)
    if not rest.peek(1):
        return
    options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    count = 0
    try:
        reader = pa_csv.open_csv(
            rest,
            read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
            # An empty line of a single column is a null.
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            convert_options=options,
        )
        for block in reader:
            yield _typed(schema, fields, block, _record_from(count + 1))
            count += block.num_rows
    except pa.ArrowInvalid as error:
        raise InvalidRecord(
            f"after record {count}: {error}", hint="one record a line, as many cells as names"
        ) from None


class _Rest(io.RawIOBase):
    """What is left of a source, for a reader that would close it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _record_from(first: int) -> Place:
    return lambda index: f"record {first + index}"


def _header(line: bytes) -> list[str]:
    try:
        names = next(csv.reader([line.decode("utf-8-sig").rstrip("\r\n")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRecord(f"the header is not CSV: {error}", hint="the first line names the columns") from None
    if not names:
        raise InvalidRecord("there is no header", hint="the first line names the columns")
    return names


def _fields(schema: pa.Schema, names: list[str]) -> list[pa.Field]:
    """The field of the stream that each cell of a record is for."""
    known = {field.name: field for field in schema}
    known |= {field.name + BASE64_SUFFIX: field for field in schema if carries_bytes(field.type)}
    fields = []
    for name in names:
        if name not in known:
            raise misfit.unknown_column("the header", name, schema.names)
        if known[name] in fields:
            raise InvalidRecord(f"the header names column {known[name].name!r} twice", hint="name each column once")
        fields.append(known[name])
    return fields


def _typed(schema: pa.Schema, fields: list[pa.Field], block: pa.RecordBatch, place: Place) -> pa.RecordBatch:
    arrays = []
    for name, field, column in zip(block.schema.names, fields, block.columns, strict=True):
        parse = _parser(field, name != field.name)
        try:
            arrays.append(parse(column))
        except (pa.ArrowInvalid, ValueError):
            row, reason = first_failing(column, _problem(parse))
            raise misfit.bad_value(place(row), field.with_name(name), column[row].as_py(), reason) from None
    table = pa.Table.from_arrays(arrays, names=[field.name for field in fields])
    return to_batch(schema, table, place=place)


Parse = Callable[[pa.Array], pa.Array]


def _problem(parse: Parse) -> Callable[[pa.Array], str]:
    def problem(column: pa.Array) -> str:
        try:
            parse(column)
        except (pa.ArrowInvalid, ValueError) as error:
            return str(error)
        return ""

    return problem


def _parser(field: pa.Field, coded: bool) -> Parse:
    kind = field.type
    if pa.types.is_nested(kind) or coded:
        return lambda column: _parse_each(column, field, coded)
    if pa.types.is_timestamp(kind):
        return _parse_timestamps
    if pa.types.is_floating(kind):
        return _parse_floats
    return lambda column: column.cast(kind)


def _parse_each(column: pa.Array, field: pa.Field, coded: bool) -> pa.Array:
    """Cells that hold JSON, or base64."""
    kind = value_type(field.type, True, JsonForm(base64=coded))
    cells = column.to_pylist()
    if pa.types.is_nested(field.type):
        cells = [None if cell is None else msgspec.json.decode(cell) for cell in cells]
    values = [(convert(cell, kind),) for cell in cells]
    return codec_of(pa.schema([pa.field(field.name, field.type)])).to_batch(values).column(0)


def _parse_timestamps(column: pa.Array) -> pa.Array:
    # Digits beyond the microsecond may be there if they say nothing.
    column = pc.replace_substring_regex(column, r"([.,]\d{6})0+", r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(column, _ZONED), False)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, column, nothing).cast(TIMESTAMP)
    without = pc.if_else(zoned, nothing, column).cast(pa.timestamp("us"))
    return pc.coalesce(with_zone, without.cast(TIMESTAMP))


def _parse_floats(column: pa.Array) -> pa.Array:
    found = column.cast(pa.float64())
    named = pc.match_substring(pc.utf8_lower(column), "inf")
    if pc.any(pc.and_not(pc.is_inf(found), named)).as_py():
        raise ValueError("too large for a float64")
    return found


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a CSV text: what CSV has no notion of is text."""
    return pa.schema([_csv_field(field) for field in schema])


def _csv_field(field: pa.Field) -> pa.Field:
    if carries_bytes(field.type):
        return pa.field(field.name + BASE64_SUFFIX, pa.string())
    if pa.types.is_nested(field.type) or pa.types.is_timestamp(field.type):
        return pa.field(field.name, pa.string())
    return field


def batch_to_csv(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `csv_schema`."""
    columns = [_cells(column, field.type) for column, field in zip(batch.columns, batch.schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=csv_schema(batch.schema))


def _cells(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        coded = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.array(coded, pa.string())
    if pa.types.is_timestamp(kind):
        return pa.array(json_values(column, kind), pa.string())
    if pa.types.is_nested(kind):
        values = json_values(column, kind, coded=carries_bytes(kind))
        return pa.array(
            [None if value is None else msgspec.json.encode(value).decode() for value in values], pa.string()
        )
    return column
