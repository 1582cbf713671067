"""Routing: a key has one streamlet, rows keep their order, nothing is lost or copied without need."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InvalidRecord
from millpond.ingest.route import route_batch, route_rows
from millpond.log.engine import Part
from millpond.model.definition import StreamDefinition
from millpond.model.hashing import streamlet_of
from millpond.model.rows import codec_of
from millpond.testing import strategies as ponds

SCHEMA = pa.schema([("vid", pa.string()), ("n", pa.int64())])


def stream(schema: pa.Schema = SCHEMA, keys: tuple[str, ...] = ("vid",), streamlets: int = 4) -> StreamDefinition:
    return StreamDefinition(2, "grid/meters", (schema,), keys=keys, streamlets=streamlets)


def decoded(part: Part, schema: pa.Schema) -> pa.RecordBatch:
    return part.batch if part.batch is not None else codec_of(schema).decode([part.encoded or b"\x90"])


@given(st.data())
def test_every_row_goes_where_its_key_says_and_keeps_its_order(data: st.DataObject) -> None:
    """K2, for all types a key may have; rows and batches agree."""
    key = pa.field("key", data.draw(ponds.key_types()))
    schema = pa.schema([*data.draw(ponds.fields(ponds.types(1), 0, 2)), key])
    rows = data.draw(ponds.rows(schema, most=20))
    definition = stream(schema, ("key",), data.draw(st.integers(2, 8)))
    codec = codec_of(schema)
    plain_keys = [codec.plain("key", row["key"]) for row in rows]
    expected: dict[int, list[Any]] = {}
    for row, plain in zip(rows, plain_keys, strict=True):
        expected.setdefault(streamlet_of(plain, definition.streamlets), []).append(row)

    by_batch = route_batch(definition, pa.RecordBatch.from_pylist(rows, schema=schema), itertools.count())
    by_rows = route_rows(definition, codec, codec.validate(rows), itertools.count())
    for parts in (by_batch, by_rows):
        assert [part.streamlet for part in parts] == sorted(expected)
        for part in parts:
            batch = decoded(part, schema)
            assert part.rows == batch.num_rows
            wanted = pa.RecordBatch.from_pylist(expected[part.streamlet], schema=schema)
            ponds.assert_same_rows(batch, wanted)


def test_one_streamlet_needs_no_hash_and_no_copy() -> None:
    batch = pa.RecordBatch.from_pylist([{"vid": "a", "n": 1}] * 3, schema=SCHEMA)
    (part,) = route_batch(stream(streamlets=1), batch, itertools.count())
    assert part.batch is batch


def test_without_keys_whole_appends_take_turns() -> None:
    turn = itertools.count()
    definition = stream(keys=(), streamlets=3)
    batch = pa.RecordBatch.from_pylist([{"vid": "a"}, {"vid": "b"}], schema=SCHEMA)
    rows = codec_of(SCHEMA).validate([{"vid": "a"}])
    seen = []
    for _ in range(3):
        seen += route_batch(definition, batch, turn)
        seen += route_rows(definition, codec_of(SCHEMA), rows, turn)
    assert [part.streamlet for part in seen] == [0, 1, 2, 0, 1, 2]
    assert [part.rows for part in seen] == [2, 1, 2, 1, 2, 1]


def test_rows_of_one_key_are_not_moved() -> None:
    batch = pa.RecordBatch.from_pylist([{"vid": "a", "n": n} for n in range(5)], schema=SCHEMA)
    (part,) = route_batch(stream(), batch, itertools.count())
    assert part.batch is batch


@pytest.mark.parametrize("keys", [(), ("vid",)])
@pytest.mark.parametrize("streamlets", [1, 4])
def test_no_rows_are_no_parts_and_no_turn(keys: tuple[str, ...], streamlets: int) -> None:
    turn = itertools.count()
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert route_batch(stream(keys=keys, streamlets=streamlets), empty, turn) == []
    assert route_rows(stream(keys=keys, streamlets=streamlets), codec_of(SCHEMA), [], turn) == []
    assert next(turn) == 0


def test_a_part_holds_and_writes_no_more_than_its_rows() -> None:
    rows = [{"vid": f"m{n}", "n": n} for n in range(10_000)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    parts = route_batch(stream(streamlets=16), batch, itertools.count())
    assert sum(part.batch.nbytes for part in parts) < batch.nbytes * 1.1
    assert sum(part.batch.serialize().size for part in parts) < batch.nbytes * 1.2


@pytest.mark.parametrize("key", ["\ud800", "m1"])
def test_text_that_is_not_unicode_is_named_with_the_callers_row(key: str) -> None:
    rows: list[dict[str, Any]] = [{"vid": f"m{n}"} for n in range(6)] + [{"vid": key, "n": 1}]
    schema = pa.schema([*SCHEMA, ("note", pa.string())])
    rows[-1]["note"] = "\udfff"
    column = "vid" if key == "\ud800" else "note"
    codec = codec_of(schema)
    with pytest.raises(InvalidRecord, match=f"row 6, column '{column}'"):
        route_rows(stream(schema), codec, codec.validate(rows), itertools.count())


def test_the_most_streamlets() -> None:
    rows = [{"vid": f"m{n}", "n": n} for n in range(5_000)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    parts = route_batch(stream(streamlets=1024), batch, itertools.count())
    assert sum(part.rows for part in parts) == 5_000
    assert {part.streamlet for part in parts} == {streamlet_of(row["vid"], 1024) for row in rows}
