"""The key index finds exactly the rows of a hash, in order, in either of its shapes (K3, K6)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.log.keyindex import KeyIndex

BIG = 2**64 - 1


@given(st.lists(st.sampled_from([0, 1, 2**53, 2**53 + 1, BIG - 1, BIG, 12345]), max_size=60), st.booleans())
def test_finds_the_rows_of_a_hash(values: list[int], spread: bool) -> None:
    if spread:  # mostly distinct: the shape without run starts
        values = values[:2] + [10**6 + i for i in range(40)]
    index = KeyIndex.build(np.array(values, np.uint64))
    for wanted in {*values, 7}:
        assert index.find(wanted).tolist() == [i for i, value in enumerate(values) if value == wanted]


def test_few_distinct_values_take_little_room() -> None:
    rows = 80_000
    few = KeyIndex.build(np.arange(rows, dtype=np.uint64) % np.uint64(50))
    many = KeyIndex.build(np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    assert few.nbytes < 4.1 * rows
    assert many.nbytes <= 12 * rows
