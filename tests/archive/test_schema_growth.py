"""Columns are added at the end; what is older reads as null, in every reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millpond.errors import InvalidSchema
from millpond.model.predicate import Compare, IsNull
from millpond.model.schema import stored_schema
from tests.archive.settled_stream import SCHEMA, SettledStream, define, expected, read_all, records

WIDER = pa.schema([*SCHEMA, pa.field("note", pa.string()), pa.field("tags", pa.map_(pa.string(), pa.int64()))])


def noted(start: int, stop: int) -> pa.RecordBatch:
    table = pa.Table.from_batches([records(0, start, stop)])
    size = stop - start
    notes = pa.array([f"note {n}" for n in range(start, stop)])
    tags = pa.array([[("n", n)] for n in range(start, stop)], WIDER.field("tags").type)
    table = table.append_column("note", notes).append_column("tags", tags)
    assert table.num_rows == size
    return table.select(stored_schema(WIDER).names).cast(stored_schema(WIDER)).to_batches()[0]


def test_old_objects_have_null_in_new_columns(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    stream.definition = stream.definition.altered(WIDER)
    stream.archive.alter(stream.definition)
    assert read_all(stream.archive.snapshot()).column("note").null_count == 5
    stream.archive.settle({0: 5}, {0: 8}, [noted(5, 8)])
    for snapshot in (stream.archive.snapshot(), stream.reopen()):
        table = read_all(snapshot)
        assert table.schema.equals(stored_schema(WIDER))
        assert table.column("note").to_pylist() == [None] * 5 + ["note 5", "note 6", "note 7"]
        assert table.select(expected({}).schema.names).equals(expected({0: 8}))
        note = Compare("=", "note", "note 6")
        found = pa.Table.from_batches(snapshot.read(columns=["n", "note"], predicate=note))
        assert found.to_pylist() == [{"n": 60, "note": "note 6"}]
        assert sum(b.num_rows for b in snapshot.read(columns=["n"], predicate=IsNull("note"))) == 5
    others = DeltaTable(stream.root).to_pyarrow_table()
    assert sorted(others.column("note").to_pylist(), key=str) == [None] * 5 + ["note 5", "note 6", "note 7"]
    assert not stream.archive.verify()


def test_rows_of_an_older_schema_settle_after_the_change(stream: SettledStream) -> None:
    """Segments that were sealed before an alteration have the columns of their time."""
    stream.archive.alter(stream.definition.altered(WIDER))
    stream.archive.settle({}, {0: 8}, [records(0, 0, 5), noted(5, 8)])
    assert read_all(stream.archive.snapshot()).column("note").null_count == 5


def test_a_table_that_missed_an_alteration_gets_the_columns_with_the_next_settle(stream: SettledStream) -> None:
    """The catalog was altered, and the process died before the table was."""
    stream.settle_to({0: 5})
    stream.definition = stream.definition.altered(WIDER)
    stream.archive = stream.open()
    assert [f.severity for f in stream.archive.verify()] == ["warning"]
    stream.archive.settle({0: 5}, {0: 8}, [noted(5, 8)])
    assert not stream.archive.verify()
    assert DeltaTable(stream.root).to_pyarrow_table().num_rows == 8


def test_old_and_new_objects_are_merged(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    stream.archive.alter(stream.definition.altered(WIDER))
    stream.archive.settle({0: 5}, {0: 8}, [noted(5, 8)])
    assert stream.archive.compact(least_objects=2) is not None
    assert read_all(stream.archive.snapshot()).column("note").null_count == 5


def test_a_column_of_another_type_is_not_settled_over(stream: SettledStream) -> None:
    stream.settle_to({0: 5})
    changed = define(schema=SCHEMA.set(1, pa.field("n", pa.string())))
    other = SettledStream(Path(stream.root).parent, changed)
    with pytest.raises(InvalidSchema, match="column 'n' is"):
        other.archive.settle({0: 5}, {0: 5}, [])
