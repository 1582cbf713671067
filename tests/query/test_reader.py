from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import InvalidPredicate, InvalidValue, OffsetGone, PondClosed, Truncated
from millpond.query import Start, StreamReader, parse_start, read
from tests.query.small_pond import SCHEMA, Row, SmallPond, at, define, sorted_rows

DEADLINE_SECONDS = 30.0


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def assert_in_order(rows: list[Row]) -> None:
    offsets: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        offsets[row["_streamlet"]].append(row["_offset"])
    assert all(found == sorted(found) for found in offsets.values())


def test_a_read_is_settled_then_live_without_a_gap(wide_pond: SmallPond) -> None:
    """K6, C7: in the order of offsets within a streamlet, with system columns."""
    pond = wide_pond
    for _ in range(3):
        pond.fill(20)
        pond.settle()
    pond.fill(20)
    reader = read(pond.halves)
    rows = rows_of(reader)
    assert reader.schema.names == [*SCHEMA.names, "_streamlet", "_offset", "_ingest_time"]
    assert_in_order(rows)
    assert sorted_rows(rows) == sorted_rows(pond.rows)
    assert reader.position == pond.log.heads(7)


def test_a_read_without_follow_ends_at_the_heads_of_its_start(pond: SmallPond) -> None:
    pond.fill(5)
    reader = read(pond.halves)
    pond.fill(5)
    assert [row["n"] for row in rows_of(reader)] == list(range(5))
    assert reader.closed


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 20), (0, 0), (7, 7), (13, 13), (20, 20), ({0: 11}, 11), ({}, 0)],
)
def test_a_read_starts_where_it_is_told(pond: SmallPond, start: Start, first: int) -> None:
    """C7"""
    pond.fill(20)
    pond.settle({0: 12})
    assert [row["n"] for row in rows_of(read(pond.halves, start))] == list(range(first, 20))


def test_streamlets_that_are_not_named_start_at_the_earliest(wide_pond: SmallPond) -> None:
    pond = wide_pond
    for n in range(6):
        pond.append({"n": n}, streamlet=n % 3)
    assert {row["n"] for row in rows_of(read(pond.halves, {1: 1, 2: 2}))} == {0, 3, 4}


def test_a_time_is_where_ingestion_had_come_to(wide_pond: SmallPond) -> None:
    """C7: by `_ingest_time`, at every moment, with the settled part before, across and behind it."""
    pond = wide_pond
    pond.fill(30)
    first = pond.clock.now_micros() - 29
    for settled in (0, 12, 30):
        if settled:
            pond.settle({s: sum(r["_streamlet"] == s for r in pond.rows[:settled]) for s in range(3)})
        for moment in range(first - 1, first + 32):
            expected = [row for row in pond.rows if row["_ingest_time"] >= at(moment)]
            assert sorted_rows(rows_of(read(pond.halves, at(moment)))) == sorted_rows(expected)
    assert sorted_rows(rows_of(read(pond.halves, at(first + 9).isoformat()))) == sorted_rows(pond.rows[9:])
    assert rows_of(read(pond.halves, at(first + 9).replace(tzinfo=None))) == rows_of(read(pond.halves, at(first + 9)))


def test_a_stamp_out_of_order_does_not_hide_what_follows(pond: SmallPond) -> None:
    """Two appends may overtake each other between stamp and offset."""
    stamps = [10, 20, 15, 30]
    for n, stamp in enumerate(stamps):
        pond.clock.set_wall(1_000_000 + stamp - 1)
        pond.append({"n": n})
    for settled in (0, 2, 4):
        if settled:
            pond.settle({0: settled})
        assert [row["n"] for row in rows_of(read(pond.halves, at(1_000_020)))] == [1, 2, 3]
        assert [row["n"] for row in rows_of(read(pond.halves, at(1_000_021)))] == [3]


def test_the_position_is_behind_what_was_handed_out(wide_pond: SmallPond) -> None:
    """A read may stop after any batch and go on from its position: nothing is lost, nothing comes twice."""
    pond = wide_pond
    pond.fill(30)
    pond.settle()
    pond.fill(30)
    rows: list[Row] = []
    position: Start = "earliest"
    for _ in range(1_000):
        with read(pond.halves, position, batch_rows=3) as reader:
            batch = next(reader, None)
            position = reader.position
        if batch is None:
            break
        assert batch.num_rows <= 3
        rows += batch.to_pylist()
        if len(rows) == 30:
            pond.settle()
    assert_in_order(rows)
    assert sorted_rows(rows) == sorted_rows(pond.rows)


def test_the_position_passes_what_does_not_match(wide_pond: SmallPond) -> None:
    wide_pond.fill(30)
    wide_pond.settle({0: 1})
    reader = read(wide_pond.halves, where="n = 4", columns=["n"])
    assert rows_of(reader) == [{"n": 4}]
    assert reader.position == wide_pond.log.heads(7)


def test_columns_and_predicate_apply_to_both_halves(wide_pond: SmallPond) -> None:
    """K13"""
    wide_pond.fill(20)
    wide_pond.settle()
    wide_pond.fill(20)
    found = rows_of(read(wide_pond.halves, columns=["n", "_offset"], where="city = 'Lyon' AND temp > 3"))
    expected = [r for r in wide_pond.rows if r["city"] == "Lyon" and r["temp"] > 3]
    assert sorted(row["n"] for row in found) == [row["n"] for row in expected]
    assert set(found[0]) == {"n", "_offset"}
    assert rows_of(read(wide_pond.halves, where="FALSE")) == []


def test_settling_during_a_read_loses_and_doubles_nothing(wide_pond: SmallPond) -> None:
    """I3"""
    pond = wide_pond
    pond.fill(60)
    rows: list[Row] = []
    for settled, batch in enumerate(read(pond.halves, batch_rows=2)):
        rows += batch.to_pylist()
        pond.settle({s: min(head, settled) for s, head in pond.log.heads(7).items()})
    assert_in_order(rows)
    assert sorted_rows(rows) == sorted_rows(pond.rows)


def test_the_earliest_of_a_stream_that_lets_go_for_good_is_what_it_holds(tmp_path: Path) -> None:
    pond = SmallPond(tmp_path, define(settle=None))
    pond.fill(10)
    pond.log.release(7, {0: 4})
    assert [row["n"] for row in rows_of(read(pond.halves))] == list(range(4, 10))
    with pytest.raises(OffsetGone, match="offset 2 of streamlet 0 of grid/meters is not kept any more, 4 is the first"):
        read(pond.halves, 2)


def test_following_goes_on_across_settles(wide_pond: SmallPond) -> None:
    """C5: new records and new objects are found by themselves."""
    pond = wide_pond
    pond.fill(10)
    reader = read(pond.halves, follow=True)
    rows: list[Row] = []
    for turn in range(6):
        while len(rows) < len(pond.rows):
            rows += next(reader).to_pylist()
        assert reader.position == pond.log.heads(7)
        pond.fill(10)
        if turn % 2:
            pond.settle()
    reader.close()
    assert next(reader, None) is None
    assert_in_order(rows)
    assert sorted_rows(rows) == sorted_rows(pond.rows[: len(rows)])
    rest = rows_of(read(pond.halves, reader.position))
    assert sorted_rows(rows + rest) == sorted_rows(pond.rows)


def test_polling_a_follower_gives_nothing_when_there_is_nothing(pond: SmallPond) -> None:
    pond.fill(1)
    reader = read(pond.halves, follow=True)
    assert reader.poll() is not None
    assert reader.poll() is None
    assert not reader.closed
    pond.fill(1)
    batch = reader.poll()
    assert batch is not None
    assert batch.column("n").to_pylist() == [1]
    reader.close()
    assert reader.poll() is None


def waiting(reader: StreamReader) -> tuple[threading.Thread, list[object]]:
    """A thread that follows until it ends, and what it met."""
    met: list[object] = []

    def follow() -> None:
        try:
            met.extend(reader)
            met.append("end")
        except Exception as error:
            met.append(error)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    return thread, met


def test_a_waiting_follower_ends_when_it_is_closed(pond: SmallPond) -> None:
    reader = read(pond.halves, follow=True)
    thread, met = waiting(reader)
    reader.close()
    thread.join(DEADLINE_SECONDS)
    assert met == ["end"]


def test_a_waiting_follower_ends_when_the_pond_closes(pond: SmallPond) -> None:
    reader = read(pond.halves, follow=True)
    thread, met = waiting(reader)
    pond.log.close()
    thread.join(DEADLINE_SECONDS)
    assert met == ["end"]
    assert reader.closed


def test_a_read_of_a_closed_pond_says_so(pond: SmallPond) -> None:
    pond.fill(5)
    reader = read(pond.halves)
    pond.log.close()
    with pytest.raises(PondClosed):
        next(reader)


def test_a_follower_goes_over_to_a_new_generation_from_its_beginning(pond: SmallPond) -> None:
    pond.fill(40)
    pond.settle({0: 30})
    reader = read(pond.halves, follow=True)
    assert sum(next(reader).num_rows for _ in range(2)) == 40
    old = reader.position
    assert (old, old.generation, old.text) == ({0: 40}, 1, "g1,0:40")
    pond.truncate()
    pond.fill(3)
    assert [row["_offset"] for row in next(reader).to_pylist()] == [0, 1, 2]
    assert (reader.position, reader.position.generation) == ({0: 3}, 2)
    reader.rest()
    pond.truncate()
    pond.fill(2)
    assert next(reader).num_rows == 2
    assert reader.position.text == "g3,0:2"


def test_a_follower_in_the_middle_of_a_generation_that_ends_goes_over_too(pond: SmallPond) -> None:
    pond.fill(10)
    reader = read(pond.halves, follow=True, batch_rows=4)
    assert next(reader).num_rows == 4
    pond.truncate()
    pond.fill(1)
    found = [next(reader)]
    while found[-1].column("_offset")[0].as_py() != 0:
        found.append(next(reader))
    assert reader.position == {0: 1}
    assert sum(batch.num_rows for batch in found) <= 7, "records of the old generation beyond those held already"


def test_a_read_to_an_end_that_is_gone_is_told(pond: SmallPond) -> None:
    pond.fill(10)
    reader = read(pond.halves)
    pond.truncate()
    pond.fill(20)
    with pytest.raises(Truncated, match="generation 1 is gone"):
        next(reader)


def test_a_position_of_another_generation_is_refused(pond: SmallPond) -> None:
    """In every form in which it may have been kept. A plain dict has no generation: it means the one that is now."""
    pond.fill(10)
    kept = read(pond.halves, "latest").position
    pond.truncate()
    pond.fill(20)
    for start in (kept, parse_start(kept.text)):
        with pytest.raises(Truncated, match="generation 1 is gone, this is 2"):
            read(pond.halves, start)
    assert read(pond.halves, dict(kept)).position == {0: 10}
    assert read(pond.halves, parse_start("g2,0:7")).position == {0: 7}
    assert read(pond.halves, parse_start("g2")).position == {0: 0}
    with pytest.raises(InvalidValue, match="no generation 3 yet"):
        read(pond.halves, parse_start("g3,0:7"))
    for wrong in ("g", "g0,0:1", "gx,0:1", "g2,x", "g2,g2,0:1", "g-1,0:1"):
        with pytest.raises(InvalidValue, match="no place to start"):
            read(pond.halves, parse_start(wrong))


def test_what_is_wrong_is_named(wide_pond: SmallPond) -> None:
    wide_pond.fill(3)
    halves = wide_pond.halves
    with pytest.raises(InvalidValue, match=r"which of the 3 streamlets(.|\n)*start=\{0: 5"):
        read(halves, 5)
    for start in ("erliest", "", None, True, 1.5, [0]):
        with pytest.raises(InvalidValue, match=r"no place to start(.|\n)*earliest"):
            read(halves, start)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="no streamlet 3"):
        read(halves, {3: 0})
    for offset in (-1, 100, True, "1"):
        with pytest.raises(InvalidValue, match="streamlet 0 has no offset"):
            read(halves, {0: offset})  # type: ignore[dict-item]
    with pytest.raises(InvalidValue, match="no column 'x'"):
        read(halves, columns=["x"])
    with pytest.raises(InvalidValue, match="batch_rows is 1 to"):
        read(halves, batch_rows=0)
    with pytest.raises(InvalidPredicate):
        read(halves, where="x > 1")


def test_a_reader_that_rests_goes_on_where_it_was(wide_pond: SmallPond) -> None:
    """Whenever it rests, in settled records or live ones, and whatever settles meanwhile."""
    pond = wide_pond
    for _ in range(3):
        pond.fill(20)
        pond.settle()
    pond.fill(20)
    reader = read(pond.halves, follow=True, batch_rows=7, limit=100)
    rows: list[Row] = []
    while (batch := reader.poll()) is not None:
        rows += batch.to_pylist()
        reader.rest()
        if len(rows) > 70 and len(pond.rows) < 100:
            pond.settle()
            pond.fill(20)
    assert reader.closed
    assert_in_order(rows)
    assert sorted_rows(rows) == sorted_rows(pond.rows)


def test_a_reader_that_rests_holds_nothing_and_its_end_stays_its_end(pond: SmallPond) -> None:
    pond.fill(1_000)
    pond.settle()
    windows = pa.system_memory_pool()
    before = windows.bytes_allocated()
    reader = read(pond.halves, follow=True, batch_rows=1)
    first = reader.poll()
    assert first is not None
    assert first.num_rows == 1
    del first
    assert windows.bytes_allocated() > before
    reader.rest()
    assert windows.bytes_allocated() == before
    reader.close()
    reader.rest()
    assert reader.closed
    assert reader.poll() is None
