"""How far a micro-batch goes, without Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millpond.spark.admission import records_of_bytes, shares


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 10**12), min_size=1), st.integers(1, 10**9))
def test_a_limit_is_dealt_out_whole_and_nobody_gets_more_than_waits(waits: dict[int, int], limit: int) -> None:
    limit = min(limit, sum(waits.values()))
    granted = shares(waits, limit)
    assert sum(granted.values()) == limit
    assert all(0 <= granted[streamlet] <= records for streamlet, records in waits.items())


def test_a_streamlet_gets_its_share_of_what_waits() -> None:
    assert shares({0: 900, 1: 90, 2: 10}, 100) == {0: 90, 1: 9, 2: 1}
    assert shares({0: 1_000_000, 1: 1}, 1) == {0: 1, 1: 0}


def test_bytes_are_counted_as_records_of_the_size_they_have_where_they_lie() -> None:
    assert records_of_bytes(1_000, settled=500, settled_bytes_each=4.0, live_bytes_each=50.0) == 250
    assert records_of_bytes(3_000, settled=500, settled_bytes_each=4.0, live_bytes_each=50.0) == 520
    assert records_of_bytes(1, settled=500, settled_bytes_each=4.0, live_bytes_each=50.0) == 1
    assert records_of_bytes(1_000, settled=0, settled_bytes_each=0.0, live_bytes_each=0.0) == 1_000
