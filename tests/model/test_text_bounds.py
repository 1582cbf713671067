"""Bounds of text compare as their bytes do, however they begin, and unknown ones decide nothing."""

from __future__ import annotations

import operator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.text_bounds import TextBounds, Texts

OPS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Values that begin alike, end within or just after the eight bytes that are compared as a number, or have odd bytes.
VALUES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"", b"\0", b"\0" * 8, b"\0" * 9, b"\xff" * 7, b"\xff" * 8, b"\xff" * 9, b"abcdefgh", b"abcdefghi"]
    ),
    st.builds(lambda tail: b"abcdefgh" + tail, st.binary(max_size=10)),
)


@given(st.lists(st.none() | VALUES, max_size=12), VALUES, st.sampled_from(sorted(OPS)), st.data())
def test_a_comparison_holds_where_it_does_of_the_bytes(
    values: list[bytes | None], literal: bytes, op: str, data: st.DataObject
) -> None:
    lowest = op in (">", ">=") or (op == "=" and data.draw(st.booleans()))  # lower bounds are only asked to be above
    begin = data.draw(st.integers(0, len(values)))
    bounds = TextBounds.of(pa.array(values, pa.binary()).slice(begin), lowest=lowest)
    expected = [value is not None and OPS[op](value, literal) for value in values[begin:]]
    assert bounds.certainly(op, literal).tolist() == expected
    some = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1)) if expected else st.just([])), np.int64)
    assert bounds.take(some).certainly(op, literal).tolist() == [expected[at] for at in some]


@given(st.lists(VALUES, min_size=1, max_size=12), VALUES, st.data())
def test_the_places_of_a_value_are_found(values: list[bytes], wanted: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(values) - 1))
    texts = Texts(pa.array(values, pa.binary()).slice(begin))
    places = np.array(data.draw(st.lists(st.integers(0, len(values) - begin - 1))), np.int64)
    found = texts.equal(wanted, places)
    assert found.tolist() == [n for n, at in enumerate(places.tolist()) if values[begin + at] == wanted]


@pytest.mark.parametrize("values", [[], [None], [b""], [None, b""]])
def test_columns_with_hardly_any_bytes_are_compared_too(values: list[bytes | None]) -> None:
    bounds = TextBounds.of(pa.array(values, pa.binary()), lowest=True)
    assert bounds.certainly(">", b"").tolist() == [False] * len(values)
    assert bounds.certainly(">=", b"").tolist() == [value is not None for value in values]
