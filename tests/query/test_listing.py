from __future__ import annotations

import pytest

from millpond.errors import InvalidValue
from millpond.query import read_segment, segments
from tests.query.small_pond import SmallPond, sorted_rows


def test_live_and_settled_segments_are_one_list(wide_pond: SmallPond) -> None:
    """K6, K8: every record is in exactly one segment of the listing, and can be read from it."""
    pond = wide_pond
    pond.fill(40)
    pond.settle()
    pond.fill(35)
    listed = segments(pond.halves)
    assert {segment.state for segment in listed} == {"settled", "sealed", "active"}
    assert sum(segment.rows or 0 for segment in listed) == 75
    assert all(segment.bytes > 0 for segment in listed)
    rows = []
    for segment in listed:
        found = [row for batch in read_segment(pond.halves, segment.id) for row in batch.to_pylist()]
        assert len(found) == segment.rows
        assert segment.offsets is not None
        assert all(row["_offset"] in segment.offsets for row in found)
        if segment.streamlet is not None:
            assert {row["_streamlet"] for row in found} == {segment.streamlet}
        times = [round(row["_ingest_time"].timestamp() * 1e6) for row in found]
        assert (segment.first_ingest_micros, segment.last_ingest_micros) == (min(times), max(times))
        rows += found
    assert sorted_rows(rows) == sorted_rows(pond.rows)


def test_a_record_that_has_settled_but_is_still_held_is_listed_once(wide_pond: SmallPond) -> None:
    wide_pond.fill(30)
    wide_pond.commit({s: head - 1 for s, head in wide_pond.log.heads(7).items()})
    listed = segments(wide_pond.halves)
    assert sum(segment.rows or 0 for segment in listed) == 30
    assert [segment.rows for segment in listed if segment.state != "settled"] == [1, 1, 1]
    wide_pond.commit()
    assert {segment.state for segment in segments(wide_pond.halves)} == {"settled"}


def test_columns_of_a_segment(wide_pond: SmallPond) -> None:
    wide_pond.fill(1)
    (segment,) = segments(wide_pond.halves)
    (batch,) = read_segment(wide_pond.halves, segment.id, columns=["n"])
    assert batch.to_pylist() == [{"n": 0}]


def test_a_segment_that_is_not_there_is_named(wide_pond: SmallPond) -> None:
    with pytest.raises(InvalidValue, match="no segment 'x'"):
        read_segment(wide_pond.halves, "x")
    assert segments(wide_pond.halves) == []
