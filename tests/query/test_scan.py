from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.errors import InvalidPredicate, InvalidValue
from millpond.query import count, plan, scan, scan_batches
from millpond.query.projection import BATCH_BYTES_MAX, pieces
from tests.query.small_pond import SCHEMA, SmallPond, define, sorted_rows

SYSTEM = ["_streamlet", "_offset", "_ingest_time"]
EVERYTHING = [*SCHEMA.names, *SYSTEM]


@pytest.fixture
def pond(wide_pond: SmallPond) -> SmallPond:
    """Sixty rows: forty settled in two commits, twenty live."""
    for _ in range(2):
        wide_pond.fill(20)
        wide_pond.settle()
    wide_pond.fill(20)
    return wide_pond


def test_a_scan_is_live_and_settled_each_record_once(pond: SmallPond) -> None:
    """K6, I3"""
    assert sorted_rows(scan(pond.halves, columns=EVERYTHING).to_pylist()) == sorted_rows(pond.rows)


def test_columns_are_the_users_unless_named(pond: SmallPond) -> None:
    assert scan(pond.halves).schema.equals(SCHEMA)
    assert scan(pond.halves, columns=["_offset", "n"]).schema.names == ["_offset", "n"]
    assert scan(pond.halves, "n < 0", ["temp"]).schema.names == ["temp"]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("n >= 35 AND n < 45", lambda row: 35 <= row["n"] < 45),
        ("city = 'Nice' OR vid = 'vid-2'", lambda row: row["city"] == "Nice" or row["vid"] == "vid-2"),
        ("_offset = 3", lambda row: row["_offset"] == 3),
        ("_streamlet = 1 AND NOT n BETWEEN 10 AND 50", lambda row: row["_streamlet"] == 1 and not 10 <= row["n"] <= 50),
        ("temp IS NULL", lambda row: False),
        ("TRUE", lambda row: True),
        ("FALSE", lambda row: False),
    ],
)
def test_a_predicate_is_applied_to_both_halves(pond: SmallPond, where: str, wanted: object) -> None:
    """K13"""
    expected = [row for row in pond.rows if wanted(row)]  # type: ignore[operator]
    assert sorted_rows(scan(pond.halves, where, EVERYTHING).to_pylist()) == sorted_rows(expected)
    assert count(pond.halves, where) == len(expected)


def test_a_predicate_may_use_columns_that_are_not_asked_for(pond: SmallPond) -> None:
    assert sorted(scan(pond.halves, "n > 36 AND n < 43", ["vid"]).column("vid").to_pylist()) == [
        f"vid-{n}" for n in (0, 1, 2, 2, 3, 4)
    ]


@pytest.mark.parametrize("limit", [0, 1, 39, 41, 60, 100])
def test_a_limit_is_kept(pond: SmallPond, limit: int) -> None:
    found = scan(pond.halves, columns=["n"], limit=limit).column("n").to_pylist()
    assert len(found) == min(limit, 60)
    assert len(set(found)) == len(found)


def test_a_limit_stops_early(pond: SmallPond) -> None:
    batches = scan_batches(pond.halves, columns=["n"], limit=1)
    assert next(batches).num_rows == 1
    assert next(batches, None) is None


def test_the_snapshot_is_that_of_the_call(pond: SmallPond) -> None:
    batches = scan_batches(pond.halves, columns=["n"])
    pond.fill(10)
    pond.settle()
    found = [n for batch in batches for n in batch.column("n").to_pylist()]
    assert sorted(found) == list(range(60))


def test_a_count_without_a_predicate(pond: SmallPond) -> None:
    assert count(pond.halves) == 60
    pond.settle()
    assert count(pond.halves) == 60


def test_an_empty_stream_has_its_columns(wide_pond: SmallPond) -> None:
    assert scan(wide_pond.halves).schema.equals(SCHEMA)
    assert count(wide_pond.halves, "n > 3") == count(wide_pond.halves) == 0


def test_a_column_added_later_is_null_before(pond: SmallPond) -> None:
    pond.alter(pa.schema([*SCHEMA, pa.field("note", pa.string())]))
    pond.append({"vid": "vid-1", "n": 60, "note": "new"})
    assert scan(pond.halves, "note = 'new'", ["n", "note"]).to_pylist() == [{"n": 60, "note": "new"}]
    assert count(pond.halves, "note IS NULL") == 60
    pond.settle()
    found = scan(pond.halves, columns=["n", "note"])
    assert {row["n"]: row["note"] for row in found.to_pylist()} == {n: "new" if n == 60 else None for n in range(61)}


def test_what_is_wrong_is_named(pond: SmallPond) -> None:
    with pytest.raises(InvalidValue, match=r"no column 'tmp'(.|\n)*did you mean 'temp'"):
        scan(pond.halves, columns=["tmp"])
    with pytest.raises(InvalidValue, match="did you mean 'temp'"):
        scan(pond.halves, columns=["Temp"])
    with pytest.raises(InvalidValue, match="name one twice"):
        scan(pond.halves, columns=["n", "n"])
    with pytest.raises(InvalidValue, match="at least one"):
        scan(pond.halves, columns=[])
    with pytest.raises(InvalidValue, match=r"columns=\['n'\]"):
        scan(pond.halves, columns="n")
    with pytest.raises(InvalidValue, match="limit of -1"):
        scan(pond.halves, limit=-1)
    with pytest.raises(InvalidPredicate, match="tmp"):
        scan(pond.halves, "tmp > 3")


def test_errors_are_raised_by_the_call_not_by_the_first_batch(pond: SmallPond) -> None:
    with pytest.raises(InvalidPredicate):
        scan_batches(pond.halves, "tmp > 3")


def test_a_plan_tells_what_is_read_and_who_skipped_the_rest(pond: SmallPond) -> None:
    """F5: only what is proven irrelevant is skipped."""
    everything = plan(pond.halves)
    assert everything.objects_read == everything.objects_total > 0
    assert everything.bytes_read == everything.bytes_total > 0
    assert (everything.rows_settled, everything.rows_live) == (40, 20)
    first = plan(pond.halves, "n < 20")
    assert 0 < first.objects_read < first.objects_total
    assert first.bytes_read < first.bytes_total
    assert first.skipped_by == {"n": first.objects_total - first.objects_read}
    assert first.rows_settled == 20
    assert first.version == pond.archive.snapshot().version
    assert first.boundary == pond.archive.snapshot().boundary
    assert plan(pond.halves, "FALSE").objects_read == plan(pond.halves, "FALSE").rows_live == 0


def test_batches_are_bounded() -> None:
    rows = 100_000
    batch = pa.RecordBatch.from_pydict({"n": list(range(rows)), "text": ["x" * 200] * rows})
    cut = list(pieces(batch))
    assert all(piece.num_rows <= 65_536 and piece.nbytes <= BATCH_BYTES_MAX for piece in cut)
    assert pa.Table.from_batches(cut).combine_chunks().to_batches()[0].equals(batch)
    large = pa.RecordBatch.from_pydict({"text": ["x" * 10_000_000, "y"]})
    assert [piece.num_rows for piece in pieces(large)] == [1, 1]


def test_a_stream_without_keys_is_scanned_like_any(tmp_path: object) -> None:
    pond = SmallPond(tmp_path, define(keys=()))  # type: ignore[arg-type]
    pond.fill(7)
    pond.settle({0: 4})
    assert sorted(scan(pond.halves, columns=["n"]).column("n").to_pylist()) == list(range(7))
