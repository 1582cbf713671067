from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.offsets import OffsetRange
from millpond.query import ordered
from millpond.query.objects import Spans
from millpond.query.ordered import read_in_order, windows
from millpond.query.terms import ready
from tests.query.small_pond import SmallPond


def spans(objects: list[tuple[int, int, int]]) -> Spans:
    """Of (start, stop, rows)."""
    start, stop, rows = (np.array(column, np.int64) for column in zip(*objects, strict=True))
    return Spans(np.arange(len(start)), start, stop, stop, rows, rows * 100, len(start))


objects = st.lists(
    st.tuples(st.integers(0, 10_000_000), st.integers(1, 3_000_000), st.integers(1, 2_000_000)).map(
        lambda t: (t[0], t[0] + t[1], min(t[2], t[1]))
    ),
    min_size=1,
    max_size=12,
)


@given(objects, st.integers(0, 12_000_000), st.integers(1, 12_000_000))
def test_windows_cover_each_offset_of_an_object_once(
    objects: list[tuple[int, int, int]], start: int, length: int
) -> None:
    whole = OffsetRange(start, start + length)
    found = list(windows(spans(objects), whole))
    for before, after in pairwise(found):
        assert before.stop <= after.start
    for first, stop, _ in objects:
        wanted = OffsetRange(first, stop).intersect(whole)
        assert sum(len(wanted.intersect(window)) for window in found) == len(wanted)


def test_a_window_ends_where_an_object_ends_if_it_can() -> None:
    blocks = [(n * 300_000, (n + 1) * 300_000, 300_000) for n in range(4)]
    assert [window.stop for window in windows(spans(blocks), OffsetRange(0, 1_200_000))] == [
        300_000,
        600_000,
        900_000,
        1_200_000,
    ]


@pytest.mark.parametrize("window_rows", [3, 10, 1_000])
def test_settled_records_come_in_offset_order_per_streamlet(
    wide_pond: SmallPond, monkeypatch: pytest.MonkeyPatch, window_rows: int
) -> None:
    monkeypatch.setattr(ordered, "WINDOW_ROWS", window_rows)
    pond = wide_pond
    for _ in range(3):
        pond.fill(20)
        pond.settle()
    boundary = pond.archive.snapshot().boundary
    ranges = {s: OffsetRange(min(2, stop), stop) for s, stop in boundary.items()}
    for where, wanted in [(None, lambda row: True), ("city = 'Nice'", lambda row: row["city"] == "Nice")]:
        found: dict[int, list[int]] = {s: [] for s in ranges}
        predicate = ready(where, pond.definition.schema)
        for streamlet, batch in read_in_order(pond.archive.snapshot(), ranges, ["n"], predicate):
            assert set(batch.column("_streamlet").to_pylist()) == {streamlet}
            found[streamlet] += batch.column("n").to_pylist()
        assert found == {
            s: [r["n"] for r in pond.rows if r["_streamlet"] == s and r["_offset"] in offsets and wanted(r)]
            for s, offsets in ranges.items()
        }
