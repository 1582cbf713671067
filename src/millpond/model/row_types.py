"""From Arrow types to types that msgspec checks: what a Python value must be to stand in a column.

Each Arrow type has one *plain* form, the same in memory, in encoded rows and on the way to Arrow: integers, floats,
booleans, strings and bytes as themselves, timestamps as microseconds since 1970, dates as days, decimals as `Decimal`
with exactly the column's scale, lists as lists, structs as tuples in field order, maps as lists of pairs. Building
Arrow columns from plain values is quick and cannot fail, which is the point: what is checked here is accepted there.

Where msgspec's own check says too much or too little, a *marker* stands in: a class that is never instantiated and
carries the function that reads a value. `read_marker` is the `dec_hook` that calls it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Annotated, Any, Protocol

import msgspec
import pyarrow as pa

# Passed through as they are: without this, msgspec would read a str as base64, as a date, as a number.
BUILTIN = (bytes, bytearray, memoryview, datetime, date, Decimal)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# What Python's datetime and Spark's TIMESTAMP both hold: the years 1 to 9999.
MICROS_MIN = -62_135_596_800_000_000
MICROS_MAX = 253_402_300_799_999_999
DAYS_MIN = MICROS_MIN // 86_400_000_000
DAYS_MAX = MICROS_MAX // 86_400_000_000

_FLOAT32 = struct.Struct("<f")

Reader = Callable[[Any], Any]


class Form(Protocol):
    """A way values are written down: Python objects, JSON. It decides how leaves and structs are read."""

    def leaf(self, kind: pa.DataType) -> Any:
        """The msgspec type of a column that is not nested."""
        ...

    def struct(self, fields: list[pa.Field]) -> Reader:
        """What reads a struct as a tuple in field order."""
        ...


class _Marker(type):
    """msgspec asks whether what a hook returned is an instance of the marker: the reader has seen to it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def marker(read: Reader) -> Any:
    """A type whose values are whatever `read` makes of the input; it raises `ValueError` for what it cannot read."""
    return _Marker("Marker", (), {"read": staticmethod(read)})


def read_marker(kind: Any, value: Any) -> Any:
    """The `dec_hook` for types built here."""
    return kind.read(value)


def convert(value: Any, kind: Any) -> Any:
    """`value` in its plain form; `msgspec.ValidationError` if it is not a `kind`."""
    return msgspec.convert(value, kind, dec_hook=read_marker, builtin_types=BUILTIN)


class PythonForm:
    """Values as Python programs have them."""

    def leaf(self, kind: pa.DataType) -> Any:
        if pa.types.is_integer(kind):
            return int_type(kind)
        if pa.types.is_decimal(kind):
            return marker(decimal_reader(kind))
        return _PYTHON_LEAVES[kind]

    def struct(self, fields: list[pa.Field]) -> Reader:
        kind = struct_type(fields, self)
        return lambda value: msgspec.structs.astuple(read_struct(value, kind))


PYTHON = PythonForm()


def int_type(kind: pa.DataType) -> Any:
    """Integers of a width."""
    top = 1 << (kind.bit_width - 1)
    return Annotated[int, msgspec.Meta(ge=-top, le=top - 1)]


def read_float32(value: Any) -> float:
    """The nearest float32, as a Python float."""
    if type(value) not in (float, int, Decimal):
        raise ValueError(f"expected a float, got {type(value).__name__}")
    try:
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except (OverflowError, struct.error) as error:
        raise ValueError("too large for a float32") from error
    return nearest


def read_timestamp(value: Any) -> int:
    """Microseconds since 1970 of a datetime; one without a time zone is taken as UTC."""
    if type(value) is not datetime:
        if not isinstance(value, datetime):
            raise ValueError(f"expected a datetime, got {type(value).__name__}")
        # pandas' Timestamp is a datetime with three digits more.
        if getattr(value, "nanosecond", 0):
            raise ValueError("not a whole number of microseconds")
    micros = ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    # A time zone can carry the first and the last day over the edge.
    if not MICROS_MIN <= micros <= MICROS_MAX:
        raise ValueError("outside the years 1 to 9999 in UTC")
    return micros


def read_date(value: Any) -> int:
    """Days since 1970 of a date. A datetime is refused: it would lose its time of day."""
    if type(value) is not date:
        raise ValueError(f"expected a date, got {type(value).__name__}")
    return value.toordinal() - _EPOCH_DAY


def decimal_reader(kind: pa.DataType) -> Reader:
    """Reads decimals and integers that fit the precision and scale exactly."""
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-kind.scale)

    def read(value: Any) -> Decimal:
        if type(value) is not int and not isinstance(value, Decimal):
            raise ValueError(f"expected a Decimal, got {type(value).__name__}")
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError("not a finite number")
        try:
            return number.quantize(unit, context=context)
        except DecimalException as error:
            raise ValueError(f"does not fit {kind} exactly") from error

    return read


_PYTHON_LEAVES: dict[pa.DataType, Any] = {
    pa.float64(): float,
    pa.float32(): marker(read_float32),
    pa.bool_(): bool,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): marker(read_date),
    pa.timestamp("us", tz="UTC"): marker(read_timestamp),
}


def value_type(kind: pa.DataType, nullable: bool, form: Form) -> Any:
    """The msgspec type of a column."""
    if pa.types.is_list(kind):
        found: Any = list[value_type(kind.value_type, kind.value_field.nullable, form)]  # type: ignore[misc]
    elif pa.types.is_struct(kind):
        found = marker(form.struct([kind.field(index) for index in range(kind.num_fields)]))
    elif pa.types.is_map(kind):
        found = marker(_map_reader(kind, form))
    else:
        found = form.leaf(kind)
    return found | None if nullable else found


def struct_type(fields: list[pa.Field], form: Form) -> type[msgspec.Struct]:
    """A struct with these fields, called c0, c1, … because a column's name need not be a Python name."""
    members: list[Any] = []
    for index, field in enumerate(fields):
        kind = value_type(field.type, field.nullable, form)
        members.append((f"c{index}", kind, None) if field.nullable else (f"c{index}", kind))
    return define_struct(members, {f"c{index}": field.name for index, field in enumerate(fields)})


def define_struct(members: list[Any], rename: dict[str, str]) -> type[msgspec.Struct]:
    """A struct that refuses what it does not know."""
    return msgspec.defstruct("Row", members, rename=rename, forbid_unknown_fields=True, kw_only=True, gc=False)


def read_struct(value: Any, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """A mapping as a struct; `ValueError` if it is none."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a dict, got {type(value).__name__}")
    found: msgspec.Struct = _inner(value, kind)
    return found


def _map_reader(kind: pa.DataType, form: Form) -> Reader:
    key = value_type(kind.key_type, False, form)
    item = value_type(kind.item_type, kind.item_field.nullable, form)
    # In a struct, because msgspec remembers how to read a struct, and would work out anything else at every value.
    holder = msgspec.defstruct("Pairs", [("pairs", list[tuple[key, item]])], gc=False)  # type: ignore[valid-type]

    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            value = list(value.items())
        elif not isinstance(value, list | tuple):
            raise ValueError(f"expected a dict or a list of pairs, got {type(value).__name__}")
        return _inner({"pairs": value}, holder).pairs

    return read


def _inner(value: Any, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        # A hook's ValueError is what msgspec gives the path of the outer value to.
        raise ValueError(str(error).replace("`$.pairs", "`$")) from error


def encoded_type(kind: pa.DataType, nullable: bool) -> Any:
    """The type of a column in an encoded row: the plain form, checked before it was written."""
    if pa.types.is_list(kind):
        found: Any = list[encoded_type(kind.value_type, kind.value_field.nullable)]  # type: ignore[misc]
    elif pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        found = tuple[tuple(encoded_type(f.type, f.nullable) for f in inner)]  # type: ignore[misc]
    elif pa.types.is_map(kind):
        item = encoded_type(kind.item_type, kind.item_field.nullable)
        found = list[tuple[encoded_type(kind.key_type, False), item]]  # type: ignore[misc]
    elif pa.types.is_decimal(kind):
        found = Decimal
    elif pa.types.is_floating(kind):
        found = float
    elif pa.types.is_boolean(kind):
        found = bool
    elif pa.types.is_string(kind):
        found = str
    elif pa.types.is_binary(kind):
        found = bytes
    else:
        found = int
    return found | None if nullable else found
