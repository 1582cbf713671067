"""Hypothesis strategies: any schema a stream may have, and rows, batches and tables of it. Needs `hypothesis`.

Values are what `to_pylist` would give back: structs are dicts with every field, maps lists of pairs, times in UTC. They
cover the corners on purpose: NaN, infinities, -0.0, the ends of every integer, empty and non-Latin text, the first and
the last year, decimals with all their digits.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from millpond.model.schema import TIMESTAMP

_INT_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_PLAIN: list[pa.DataType] = [
    *_INT_BITS,
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
]
_NAME_LETTERS = "abcdefgXYZ019_-/$%&é日"


def decimal_types() -> SearchStrategy[pa.DataType]:
    """Decimals of any precision and scale, also negative scale-free ones."""
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
    )


def key_types() -> SearchStrategy[pa.DataType]:
    """The types a key may have: all that are not nested."""
    return st.sampled_from(_PLAIN) | decimal_types()


def types(depth: int = 2) -> SearchStrategy[pa.DataType]:
    """Any supported type, nested at most `depth` levels."""
    if depth == 0:
        return key_types()
    inner = types(depth - 1)
    lists = st.builds(lambda kind, null: pa.list_(pa.field("item", kind, nullable=null)), inner, st.booleans())
    structs = fields(inner, 1, 3).map(pa.struct)
    maps = st.builds(
        lambda key, item, null: pa.map_(key, pa.field("value", item, nullable=null)), key_types(), inner, st.booleans()
    )
    return key_types() | lists | structs | maps


def names() -> SearchStrategy[str]:
    """Names a column may have."""
    return st.text(_NAME_LETTERS, min_size=1, max_size=8).filter(lambda name: not name.startswith("_"))


@st.composite
def fields(draw: st.DrawFn, kinds: SearchStrategy[pa.DataType], least: int, most: int) -> list[pa.Field]:
    """Fields whose names differ in more than case."""
    chosen = draw(st.lists(names(), min_size=least, max_size=most, unique_by=str.lower))
    return [pa.field(name, draw(kinds), nullable=draw(st.booleans())) for name in chosen]


def schemas(least: int = 1, most: int = 6, depth: int = 2) -> SearchStrategy[pa.Schema]:
    """Schemas that `check_schema` accepts."""
    return fields(types(depth), least, most).map(pa.schema)


def values(kind: pa.DataType) -> SearchStrategy[Any]:
    """Values of a type, not null themselves."""
    if kind in _INT_BITS:
        top = 1 << (_INT_BITS[kind] - 1)
        return st.integers(-top, top - 1)
    if pa.types.is_decimal(kind):
        digits = 10**kind.precision - 1
        return st.integers(-digits, digits).map(lambda number: Decimal((number < 0, _digits(number), -kind.scale)))
    if pa.types.is_list(kind):
        return st.lists(_nullable(kind.value_field), max_size=4)
    if pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        return st.fixed_dictionaries({field.name: _nullable(field) for field in inner})
    if pa.types.is_map(kind):
        pairs = st.tuples(values(kind.key_type), _nullable(kind.item_field))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))
    return _VALUES[kind]


_VALUES: dict[pa.DataType, SearchStrategy[Any]] = {
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)) | st.just(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
}


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def _nullable(field: pa.Field) -> SearchStrategy[Any]:
    return st.none() | values(field.type) if field.nullable else values(field.type)


def rows(schema: pa.Schema, least: int = 0, most: int = 10) -> SearchStrategy[list[dict[str, Any]]]:
    """Rows of a schema with every column; those that may be null sometimes are."""
    row = st.fixed_dictionaries({field.name: _nullable(field) for field in schema})
    return st.lists(row, min_size=least, max_size=most)


def batches(schema: pa.Schema, least: int = 0, most: int = 10) -> SearchStrategy[pa.RecordBatch]:
    """Batches of a schema, some of them slices of larger ones."""

    def cut(found: list[dict[str, Any]], skip: int) -> pa.RecordBatch:
        whole = pa.RecordBatch.from_pylist(found[:1] * skip + found, schema=schema)
        return whole.slice(whole.num_rows - len(found))

    return st.builds(cut, rows(schema, least, most), st.integers(0, 3))


def tables(schema: pa.Schema, chunks: int = 3, most: int = 8) -> SearchStrategy[pa.Table]:
    """Tables of a schema in any number of chunks, none included."""
    return st.lists(batches(schema, 0, most), max_size=chunks).map(
        lambda found: pa.Table.from_batches(found, schema=schema)
    )


def comparable(value: Any) -> Any:
    """A value from `to_pylist` such that equal means the same: NaN equals itself, 0.0 and -0.0 differ."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value


def assert_same_rows(left: pa.RecordBatch | pa.Table, right: pa.RecordBatch | pa.Table) -> None:
    """Equal schemas and, value by value, equal rows in the same order."""
    assert left.schema.equals(right.schema), f"{left.schema} is not {right.schema}"
    assert comparable(left.to_pylist()) == comparable(right.to_pylist())
