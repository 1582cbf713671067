"""Ranges of offsets: half-open, never negative, and what lies between two marks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.offsets import OffsetRange, ranges_between


@st.composite
def ranges(draw: st.DrawFn) -> OffsetRange:
    start = draw(st.integers(0, 20))
    return OffsetRange(start, start + draw(st.integers(0, 10)))


def test_a_range_is_half_open() -> None:
    found = OffsetRange(3, 5)
    assert len(found) == 2
    assert [offset for offset in range(8) if offset in found] == [3, 4]
    assert str(found) == "[3, 5)"
    assert not OffsetRange(3, 3)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (-2, -1)])
def test_what_is_no_range(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(start, stop)


@given(ranges(), ranges())
def test_what_two_ranges_share(left: OffsetRange, right: OffsetRange) -> None:
    shared = left.intersect(right)
    assert {offset for offset in range(40) if offset in shared} == {
        offset for offset in range(40) if offset in left and offset in right
    }
    assert len(shared) == len(right.intersect(left))


@given(
    st.dictionaries(st.integers(0, 4), st.integers(0, 9)),
    st.dictionaries(st.integers(0, 4), st.integers(0, 9)),
)
def test_what_lies_between_two_marks(start: dict[int, int], stop: dict[int, int]) -> None:
    """I3: settled [0, B) and live [B, head) meet without a gap and without an overlap."""
    found = ranges_between(start, stop)
    assert list(found) == sorted(found)
    for streamlet in range(5):
        between = {offset for offset in range(10) if start.get(streamlet, 0) <= offset < stop.get(streamlet, 0)}
        assert between == {offset for offset in range(10) if streamlet in found and offset in found[streamlet]}
    assert all(len(one) for one in found.values())


def test_ranges_are_ordered_by_their_start() -> None:
    assert sorted([OffsetRange(5, 6), OffsetRange(0, 9), OffsetRange(0, 2)]) == [
        OffsetRange(0, 2),
        OffsetRange(0, 9),
        OffsetRange(5, 6),
    ]
