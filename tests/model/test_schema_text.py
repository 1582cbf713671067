"""Schemas as text."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidSchema
from millpond.model.schema import TIMESTAMP, check_schema
from millpond.model.schema_text import TYPES, parse_schema, parse_schema_file, schema_text, type_text

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,10}", fullmatch=True)
plain = st.sampled_from(sorted({str(kind): kind for kind in TYPES.values()}.values(), key=str)) | st.builds(
    pa.decimal128, st.integers(10, 38), st.integers(0, 10)
)


def enclosing(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.builds(pa.field, names, inner, st.booleans()), min_size=1, max_size=3)
    return st.builds(pa.list_, inner) | st.builds(pa.map_, inner, inner) | st.builds(pa.struct, fields)


kinds = st.recursive(plain, enclosing, max_leaves=6)
schemas = st.lists(st.builds(pa.field, names, kinds, st.booleans()), min_size=1, max_size=5).map(pa.schema)


@given(schemas)
def test_what_is_shown_is_read_back(schema: pa.Schema) -> None:
    assert parse_schema(schema_text(schema)).equals(schema)


def test_every_type_name_is_one_that_streams_take() -> None:
    for name, kind in TYPES.items():
        schema = parse_schema(f"x {name.upper()}")
        assert schema.field(0).type == kind
        check_schema(schema)


def test_types_that_enclose_others() -> None:
    schema = parse_schema(
        "a array<struct<x: int, `y`: map<string,decimal(10,2)>>> not null , b dec, c numeric(5), t timestamp"
    )
    inner = pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.decimal128(10, 2)))])
    assert schema.field("a") == pa.field("a", pa.list_(inner), nullable=False)
    assert [schema.field(name).type for name in "bct"] == [pa.decimal128(10, 0), pa.decimal128(5, 0), TIMESTAMP]
    assert type_text(schema.field("a").type) == "array<struct<x: int, y: map<string, decimal(10,2)>>>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name at 'the end'"),
        ("a", "a column without a type"),
        ("a strin", "no type 'strin'"),
        ("a array<int", "expected > at 'the end'"),
        ("a int b int", "expected a comma or the end at 'b int'"),
        ("a int,", "a name at 'the end'"),
        (", a int", "the name of a column at ', a int'"),
        ("a map<int>", "expected , at '>'"),
        ("a int not", "expected null at 'the end'"),
        ("a decimal(39,0)", "decimal(39,0)"),
        ("a decimal(x)", "expected a number at 'x)'"),
        ("x `y", "an unclosed ` at '`y'"),
        ("a " + "array<" * 100, "nested deeper"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(text)
    assert said in caught.value.message
    assert caught.value.hint


@given(st.text(alphabet="ab <>(),:`1arymapstuci", max_size=40))
def test_any_other_text_is_refused_and_nothing_else(text: str) -> None:
    with contextlib.suppress(InvalidSchema):
        assert len(parse_schema(text)) > 0


@pytest.mark.parametrize("content", ["{", "[]x", '[{"name": "a"}]', '{"a": 5}', '{"a": {"type": "odd"}}', "[5]"])
def test_a_schema_file_that_is_none(content: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_schema_file(content)
