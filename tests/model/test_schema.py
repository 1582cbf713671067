"""Schemas: supported types only, names that survive SQL, and growth in one direction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from millpond.errors import InvalidSchema
from millpond.model.schema import (
    COLUMNS_MAX,
    DEPTH_MAX,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    check_alteration,
    check_schema,
    decode_schema,
    encode_schema,
    stored_schema,
)
from millpond.testing import strategies as ponds


def refused(*fields: Any) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as failure:
        check_schema(pa.schema(fields))
    assert failure.value.hint
    return failure.value


@given(ponds.schemas(depth=3))
def test_every_supported_schema_is_accepted_as_it_is(schema: pa.Schema) -> None:
    assert check_schema(schema).equals(schema, check_metadata=True)
    assert decode_schema(encode_schema(schema)).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.uint8(), "use int16"),
        (pa.uint16(), "use int32"),
        (pa.uint32(), "use int64"),
        (pa.uint64(), "use decimal128(20, 0)"),
        (pa.float16(), "use float32"),
        (pa.decimal256(50, 2), "use decimal128 with 1 to 38 digits, 0 to all of them after the point"),
        (pa.decimal128(5, -2), "use decimal128 with 1 to 38 digits, 0 to all of them after the point"),
        (pa.decimal32(5, 2), "use decimal128 with 1 to 38 digits, 0 to all of them after the point"),
        (pa.large_string(), "use string"),
        (pa.string_view(), "use string"),
        (pa.large_binary(), "use binary"),
        (pa.binary_view(), "use binary"),
        (pa.binary(16), "use binary"),
        (pa.date64(), "use date32"),
        (pa.timestamp("us"), "use timestamp('us', tz='UTC')"),
        (pa.timestamp("ns", tz="UTC"), "use timestamp('us', tz='UTC')"),
        (pa.timestamp("us", tz="Europe/Paris"), "use timestamp('us', tz='UTC')"),
        (pa.time32("s"), "use int64, or text"),
        (pa.time64("us"), "use int64, or text"),
        (pa.duration("s"), "use int64"),
        (pa.large_list(pa.int8()), "use list"),
        (pa.list_(pa.int8(), 3), "use list"),
        (pa.dictionary(pa.int8(), pa.string()), "use the type of its values"),
        (pa.null(), "use the type that its values will have"),
        (pa.month_day_nano_interval(), "supported types are listed in docs/types.md"),
        (pa.list_view(pa.int8()), "supported types are listed in docs/types.md"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "supported types are listed in docs/types.md"),
        (pa.uuid(), "supported types are listed in docs/types.md"),
    ],
)
def test_other_types_are_refused_with_what_to_use_instead(kind: pa.DataType, hint: str) -> None:
    error = refused(("c", kind))
    assert error.message == f"column 'c' has type {kind}, which streams do not support"
    assert error.hint.startswith(hint)
    for nested, path in (
        (pa.list_(kind), "c"),
        (pa.struct([("x", kind)]), "c.x"),
        (pa.map_(pa.string(), kind), "c"),
        (pa.list_(pa.struct([("x", pa.list_(kind))])), "c.x"),
    ):
        assert refused(("c", nested)).message == f"column {path!r} has type {kind}, which streams do not support"


@pytest.mark.parametrize(
    "name",
    ["", "_", "_offset", "x" * 201, *(f"a{letter}b" for letter in ' .,;{}()=`"\n\t\0\x7f\u0085\u00a0\u2028\u200b')],
)
def test_names_that_break_something_are_refused(name: str) -> None:
    error = refused((name, pa.int8()))
    assert error.message == f"column name {name[:200]!r} is not allowed"
    assert error.hint.startswith("1 to 200 characters, not starting with '_'")
    assert "is not allowed" in refused(("s", pa.struct([(name, pa.int8())]))).message


@pytest.mark.parametrize(
    "name", ["a", "A1", "9", "größe", "日本", "a-b", "a/b", "a$b", "a%", "select", "x" * 200, "x_base64"]
)
def test_names_that_are_fine(name: str) -> None:
    schema = pa.schema([(name, pa.struct([(name, pa.int8())]))])
    assert check_schema(schema).equals(schema)


def test_names_differ_in_more_than_case() -> None:
    error = refused(("City", pa.int8()), ("n", pa.int8()), ("city", pa.int8()))
    assert error.message == "columns 'City' and 'city' differ only in case"
    assert error.hint == "Spark SQL ignores case: rename one"
    assert refused(("a", pa.int8()), ("a", pa.int8())).message == "two columns are called 'a'"
    assert "differ only in case" in refused(("s", pa.struct([("X", pa.int8()), ("x", pa.int8())]))).message
    inner = pa.struct([("a", pa.int8())])
    assert check_schema(pa.schema([("a", inner), ("b", inner)]))


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.binary()), pa.map_(pa.string(), pa.list_(pa.binary()))])
def test_the_name_that_bytes_have_in_json_stays_free(kind: pa.DataType) -> None:
    error = refused(("Blob", kind), ("blob_base64", pa.string()))
    assert error.message.startswith("column name 'blob_base64' is taken: in JSON, bytes of 'Blob'")
    assert "is taken" in refused(("s", pa.struct([("b_base64", pa.int8()), ("b", kind)]))).message


def test_the_name_that_bytes_have_in_json_is_free_for_others() -> None:
    struct = pa.struct([("x", pa.binary())])
    assert check_schema(
        pa.schema([("a", pa.string()), ("a_base64", pa.string()), ("b", struct), ("b_base64", pa.int8())])
    )


@pytest.mark.parametrize("wrong", [None, {"a": "int"}, [("a", pa.int8())], "a int"])
def test_only_arrow_schemas(wrong: Any) -> None:
    with pytest.raises(InvalidSchema, match=rf"a schema must be a pyarrow\.Schema, got {type(wrong).__name__}"):
        check_schema(wrong)


def test_the_number_of_columns_is_bounded() -> None:
    """I8: bounded, structs included."""
    many = [(f"c{number}", pa.int8()) for number in range(COLUMNS_MAX)]
    assert len(check_schema(pa.schema(many))) == COLUMNS_MAX
    assert refused(*many, ("more", pa.int8())).message == "a schema has 1 to 1000 columns, this one 1001"
    assert refused().message == "a schema has 1 to 1000 columns, this one 0"
    wide = pa.list_(pa.map_(pa.string(), pa.struct(many)))
    assert "the fields of structs among them, this one 1001" in refused(("a", pa.int8()), ("b", wide)).message


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def test_depth_is_bounded() -> None:
    assert check_schema(pa.schema([("c", nested(DEPTH_MAX - 1))]))
    assert refused(("c", nested(DEPTH_MAX))).message == f"column 'c' nests deeper than {DEPTH_MAX}"
    assert refused(("c", nested(300))).message == f"column 'c' nests deeper than {DEPTH_MAX}"


def test_a_struct_has_fields_and_a_map_plain_keys() -> None:
    assert refused(("c", pa.struct([]))).message == "column 'c' is a struct without fields"
    error = refused(("c", pa.map_(pa.list_(pa.int8()), pa.int8())))
    assert error.message == "column 'c' has map keys of type list<item: int8>"
    assert error.hint == "a key is a plain value"


def test_metadata_and_inner_names_of_the_producer_are_dropped() -> None:
    item = pa.field("element", pa.int8(), nullable=False, metadata={"PARQUET:field_id": "3"})
    struct = pa.struct([pa.field("x", pa.list_(item), metadata={"k": "v"})])
    kinds = [pa.list_(item), struct, pa.map_(pa.string(), pa.field("v", pa.int8(), nullable=False), keys_sorted=True)]
    schema = pa.schema(
        [pa.field(f"c{n}", kind, metadata={"k": "v"}) for n, kind in enumerate(kinds)], metadata={"k": "v"}
    )
    inner = pa.list_(pa.field("item", pa.int8(), nullable=False))
    expected = [inner, pa.struct([("x", inner)]), pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))]
    found = check_schema(schema)
    assert found.equals(pa.schema([(f"c{n}", kind) for n, kind in enumerate(expected)]), check_metadata=True)
    assert not found.field("c2").type.keys_sorted


def test_system_columns_come_last() -> None:
    schema = stored_schema(pa.schema([("vid", pa.string()), ("at", TIMESTAMP)]))
    assert schema.names == ["vid", "at", *SYSTEM_COLUMNS] == ["vid", "at", "_streamlet", "_offset", "_ingest_time"]
    assert [str(kind) for kind in schema.types[2:]] == ["int32", "int64", "timestamp[us, tz=UTC]"]
    assert not any(field.nullable for field in list(schema)[2:])


OLD = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])


@given(ponds.schemas(most=3), ponds.types())
def test_a_schema_may_grow_by_nullable_columns(schema: pa.Schema, kind: pa.DataType) -> None:
    grown = pa.schema([*schema, pa.field("~added", kind)])
    assert check_alteration(schema, grown).equals(grown)
    assert check_alteration(schema, schema).equals(schema)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (pa.schema([OLD.field("a")]), "a schema can only grow: column 'b' is missing"),
        (
            pa.schema([OLD.field("a"), ("b", pa.binary())]),
            "a schema can only grow: column 'b' would change from string to binary",
        ),
        (
            pa.schema([pa.field("a", pa.int64(), nullable=False), OLD.field("b")]),
            "a schema can only grow: column 'a' would change from int32 to int64",
        ),
        (
            pa.schema([("a", pa.int32()), OLD.field("b")]),
            "a schema can only grow: column 'a' would change whether it may be null",
        ),
        (pa.schema([OLD.field("b"), OLD.field("a")]), "a schema can only grow: column 'a' would move"),
        (pa.schema([("new", pa.int8()), *OLD]), "a schema can only grow: column 'a' would move"),
        (
            pa.schema([*OLD, pa.field("c", pa.int8(), nullable=False)]),
            "added column 'c' is not nullable, but the records that are there have no value for it",
        ),
        (pa.schema([*OLD, ("c", pa.uint8())]), "column 'c' has type uint8, which streams do not support"),
        (pa.schema([*OLD, ("B", pa.string())]), "columns 'b' and 'B' differ only in case"),
    ],
)
def test_every_other_change_is_refused_with_the_reason(new: pa.Schema, reason: str) -> None:
    with pytest.raises(InvalidSchema) as failure:
        check_alteration(OLD, new)
    assert failure.value.message == reason
    assert failure.value.hint


def test_a_change_deep_inside_a_type_is_a_change() -> None:
    old = pa.schema([("s", pa.list_(pa.struct([("x", pa.int8())])))])
    new = pa.schema([("s", pa.list_(pa.struct([("x", pa.int8()), ("y", pa.int8())])))])
    with pytest.raises(InvalidSchema, match="column 's' would change from"):
        check_alteration(old, new)
