"""The key index finds every row of a hash, in order, and few others (K3, K6)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.log.keyindex import KeyIndex
from millpond.model.hashing import hash_value

BIG = 2**64 - 1


@given(st.lists(st.sampled_from([0, 1, 2**53, 2**53 + 1, BIG - 1, BIG, 12345]) | st.integers(0, BIG), max_size=60))
def test_finds_the_rows_of_a_hash(values: list[int]) -> None:
    index = KeyIndex.build(np.array(values, np.uint64))
    unlike = len(values).bit_length()  # the bits that rows displace
    for wanted in {*values, 7, BIG}:
        alike = [i for i, value in enumerate(values) if value >> unlike == wanted >> unlike]
        assert index.find(wanted).tolist() == alike
        assert {i for i, value in enumerate(values) if value == wanted} <= set(alike)


def test_finds_no_others_among_as_many_rows_as_a_segment_has() -> None:
    hashes = np.array([hash_value(f"meter-{row % 20_000}") for row in range(80_000)], np.uint64)
    index = KeyIndex.build(hashes)
    for key in range(0, 20_000, 977):
        rows = index.find(hash_value(f"meter-{key}"))
        assert rows.tolist() == list(range(key, 80_000, 20_000))
        assert rows.dtype == np.uint32
    assert index.find(hash_value("none")).tolist() == []


def test_takes_eight_bytes_a_row() -> None:
    assert KeyIndex.build(np.zeros(1_000, np.uint64)).nbytes == 8_000
