"""Reading an object: only the row groups that may match, only the columns asked for, exactly the rows that match."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.archive.checksums import block_checksums
from millpond.archive.objects import ROW_GROUP_ROWS
from millpond.archive.reader import Condition, ObjectToRead, read_object
from millpond.archive.row_groups import row_groups
from millpond.archive.stream_archive import SettledSnapshot
from millpond.errors import InvalidInput
from millpond.model.evaluate import Filter, filter_batch
from millpond.model.predicate import And, Compare, In, IsNull, Not, Or, Predicate, StartsWith, columns_of
from millpond.model.schema import stored_schema
from tests.archive.settled_stream import SCHEMA, SettledStream, expected, records

ROWS = 2 * ROW_GROUP_ROWS + 1_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SettledSnapshot:
    """One object of three row groups."""
    stream = SettledStream(tmp_path_factory.mktemp("large"))
    batches = [records(0, start, min(start + 100_000, ROWS)) for start in range(0, ROWS, 100_000)]
    stream.archive.settle({}, {0: ROWS}, batches)
    snapshot = stream.archive.snapshot()
    assert len(snapshot.objects) == 1
    return snapshot


def groups_read(snapshot: SettledSnapshot, predicate: Predicate) -> list[int]:
    file = pq.ParquetFile(f"{snapshot.root}/{snapshot.objects.paths[0]}")
    assert file.num_row_groups == 3
    judged = pa.schema([snapshot.schema.field(name) for name in sorted(columns_of(predicate))])
    return row_groups(file, predicate, judged, ours=True)


def offsets(snapshot: SettledSnapshot, predicate: Predicate) -> list[int]:
    batches = snapshot.read(columns=["_offset"], predicate=predicate)
    return [offset for batch in batches for offset in batch.column("_offset").to_pylist()]


@pytest.mark.parametrize(
    ("predicate", "groups"),
    [
        (Compare("=", "_offset", 5), [0]),
        (Compare(">=", "_offset", ROW_GROUP_ROWS), [1, 2]),
        (And((Compare(">=", "_offset", ROW_GROUP_ROWS - 1), Compare("<=", "_offset", ROW_GROUP_ROWS))), [0, 1]),
        (Or((Compare("=", "n", 0), Compare("=", "n", (ROWS - 1) * 10))), [0, 2]),
        (In("_offset", (3, ROW_GROUP_ROWS + 3)), [0, 1]),
        (Compare("=", "vid", "zz"), []),
        (StartsWith("vid", "vid-0"), [0, 1, 2]),
        (IsNull("n"), []),
        # Statistics of floats leave NaN out, and are not there if there is any.
        (Compare("<", "temp", 1.0), [0]),
    ],
)
def test_only_row_groups_that_may_match_are_read(
    large: SettledSnapshot, predicate: Predicate, groups: list[int]
) -> None:
    """C7: a range of offsets does not cost the whole object."""
    assert groups_read(large, predicate) == groups


def test_the_rows_found_are_exactly_those_that_match(large: SettledSnapshot) -> None:
    edge = ROW_GROUP_ROWS
    around = And((Compare(">=", "_offset", edge - 2), Compare("<", "_offset", edge + 2)))
    assert offsets(large, around) == [edge - 2, edge - 1, edge, edge + 1]
    assert offsets(large, Compare("<", "temp", 1.0)) == [0, 1]
    assert offsets(large, Compare("=", "temp", (ROWS - 1) / 2)) == [ROWS - 1]
    assert offsets(large, Compare("=", "vid", "nobody")) == []


def test_columns_come_in_the_order_asked_for(large: SettledSnapshot) -> None:
    few = Compare("<", "_offset", 3)
    (batch,) = large.read(columns=["_offset", "temp", "vid"], predicate=few)
    assert batch.schema.names == ["_offset", "temp", "vid"]
    assert batch.to_pydict() == {
        "_offset": [0, 1, 2],
        "temp": [0.0, 0.5, 1.0],
        "vid": ["vid-0-000", "vid-0-001", "vid-0-002"],
    }
    with pytest.raises(InvalidInput, match="no columns"):
        list(large.read(columns=[]))


def test_a_scan_can_be_given_up(large: SettledSnapshot) -> None:
    batches = large.read(batch_rows=1_000)
    assert next(batches).num_rows == 1_000
    batches.close()  # type: ignore[attr-defined]


def test_nan_is_found_in_every_row_group(tmp_path: Path) -> None:
    """I4: Parquet's statistics say nothing of NaN, and no one may conclude from them that there is none."""
    stream = SettledStream(tmp_path)
    size = ROW_GROUP_ROWS + 10
    batch = records(0, 0, size)
    temp = np.full(size, 5.0)
    temp[[3, size - 3]] = math.nan
    columns = [pa.array(temp) if name == "temp" else batch.column(name) for name in batch.schema.names]
    stream.archive.settle({}, {0: size}, [pa.RecordBatch.from_arrays(columns, schema=batch.schema)])
    snapshot = stream.archive.snapshot()
    for predicate in (
        Compare("=", "temp", math.nan),
        Compare(">", "temp", 6.0),
        Not(Compare("<=", "temp", 5.0)),
        Compare("!=", "temp", 5.0),
    ):
        assert offsets(snapshot, predicate) == [3, size - 3]


@pytest.mark.parametrize("indexed", [False, True])
def test_nan_is_found_in_objects_that_another_tool_rewrote(large: SettledSnapshot, indexed: bool) -> None:
    """pyarrow copies what a footer says of its writer, and writes statistics that leave NaN out. An index that was
    rebuilt knows the checksums of such an object."""
    mine = pq.read_table(f"{large.root}/{large.objects.paths[0]}").slice(0, 4)
    temp = pa.array([1.0, 2.0, 3.0, math.nan])
    path = Path(large.root) / "part-00000.parquet"
    pq.write_table(mine.set_column(mine.schema.get_field_index("temp"), "temp", temp), path, row_group_size=2)
    assert b"millpond.format" in pq.read_schema(path).metadata
    data = path.read_bytes()
    wanted = ObjectToRead(path.name, len(data), block_checksums(data) if indexed else None)
    predicate = Compare(">", "temp", 100.0)
    where = Condition(predicate, Filter(predicate, large.schema))
    found = read_object(large.storage, large.root, wanted, large.schema, ["_offset"], where)
    assert [offset for batch in found for offset in batch.column("_offset").to_pylist()] == [3]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> SettledSnapshot:
    stream = SettledStream(tmp_path_factory.mktemp("several"))
    for stop in (40, 90, 100, 160):
        stream.settle_to({0: stop, 1: stop // 2})
    return stream.archive.snapshot()


leaves = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.just("n"), st.integers(-5, 1_700)),
    st.builds(Compare, st.sampled_from(["=", "<", ">="]), st.just("_offset"), st.integers(-1, 170)),
    st.builds(Compare, st.sampled_from(["=", "<", ">="]), st.just("temp"), st.floats(-1, 90) | st.just(math.nan)),
    st.builds(StartsWith, st.just("vid"), st.sampled_from(["vid-0", "vid-1-0", "x", ""])),
    st.builds(In, st.just("_streamlet"), st.tuples(st.integers(0, 2))),
    st.builds(IsNull, st.sampled_from(["vid", "temp"])),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda a, b: And((a, b)), inner, inner),
        st.builds(lambda a, b: Or((a, b)), inner, inner),
    ),
    max_leaves=5,
)


@given(predicate=predicates)
def test_a_read_with_a_predicate_is_a_full_read_that_is_filtered(
    several: SettledSnapshot, predicate: Predicate
) -> None:
    """I4, F5"""
    boundary = {0: 160, 1: 80}
    (everything,) = expected(boundary).to_batches()
    wanted = {(row["_streamlet"], row["_offset"]) for row in filter_batch(everything, predicate).to_pylist()}
    found = [
        (row["_streamlet"], row["_offset"])
        for batch in several.read(columns=["_streamlet", "_offset"], predicate=predicate)
        for row in batch.to_pylist()
    ]
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_the_schema_read_is_the_stored_one(several: SettledSnapshot) -> None:
    batch = next(iter(several.read()))
    assert batch.schema.equals(stored_schema(SCHEMA))
