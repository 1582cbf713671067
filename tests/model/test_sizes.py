"""How large batches are, found out in few steps, is never less than they are, and exact where it matters."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.sizes import SMALL_BYTES, about_bytes, fits


@given(st.integers(0, 3_000), st.integers(0, 3_000), st.integers(0, 3_000))
def test_a_batch_has_at_most_the_bytes_that_it_is_said_to_have(rows: int, start: int, length: int) -> None:
    whole = pa.record_batch({"n": pa.array(range(rows), pa.int64()), "s": ["x" * (n % 7) for n in range(rows)]})
    batch = whole.slice(start, length)
    said = about_bytes(batch)
    assert batch.nbytes <= said
    assert said == batch.nbytes or said <= SMALL_BYTES


@pytest.mark.parametrize(("bytes_max", "found"), [(79, False), (80, True), (8_000, True)])
def test_a_slice_fits_by_what_it_has_and_not_by_what_it_is_a_slice_of(bytes_max: int, found: bool) -> None:
    ten = pa.record_batch({"n": pa.array(range(1_000), pa.int64())}).slice(5, 10)
    assert fits(ten, bytes_max) is found
