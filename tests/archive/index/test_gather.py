"""Some objects are got at in any number of chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.archive.index.gather import items_of, take
from millpond.archive.index.inverted import PART_VALUES, Inverted, Listed, ListedTexts, Lists

WORDS = ["", "a", "Nice", "Nizza", "Saint-Étienne-du-Rouvray", "Saint-Étienne-du-Vauvray"]
LISTS = st.lists(st.none() | st.lists(st.sampled_from(WORDS), max_size=4), max_size=20)


def chunked(lists: list[list[str] | None], cuts: list[int]) -> pa.ChunkedArray:
    """The same in chunks, some of them empty, some with something before them."""
    ends = [0, *sorted(min(cut, len(lists)) for cut in cuts), len(lists)]
    whole = pa.array(lists, pa.list_(pa.string()))
    return pa.chunked_array([whole.slice(a, b - a) for a, b in pairwise(ends)], whole.type)


@given(LISTS, st.lists(st.integers(0, 20), max_size=4), st.data())
def test_the_values_at_places_are_those(lists: list[list[str] | None], cuts: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(lists) - 1))) if lists else set()
    places = np.array(sorted(chosen), np.int64)
    assert take(chunked(lists, cuts), places).to_pylist() == [lists[at] for at in places]


@given(LISTS, st.lists(st.integers(0, 20), max_size=4), st.lists(st.sampled_from(WORDS), min_size=1), st.data())
def test_the_lists_that_have_a_text_are_found(
    lists: list[list[str] | None], cuts: list[int], wanted: list[str], data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(lists) - 1))) if lists else set()
    places = np.array(sorted(chosen), np.int64)
    found = ListedTexts(chunked(lists, cuts)).having(wanted, places)
    assert found.tolist() == [bool(set(lists[at] or []) & set(wanted)) for at in places]


def test_items_are_told_with_their_objects() -> None:
    owners, items = items_of(np.array([0, 2, 2, 5]), np.array([0, 1, 2]))
    assert owners.tolist() == [0, 0, 2, 2, 2]
    assert items.tolist() == [0, 1, 2, 3, 4]


def test_each_question_but_the_first_turns_one_part_round() -> None:
    many = pa.chunked_array([pa.array([["a", "b"]] * (PART_VALUES // 2 + 3), pa.list_(pa.string()))])
    lists = Lists(many)
    assert [type(part) for part in lists.parts] == [Listed, Listed]
    lists.turn_one()
    assert not any(isinstance(part, Inverted) for part in lists.parts)
    lists.turn_one()
    assert [type(part) for part in lists.parts] == [Inverted, Listed]
    lists.turn_one()
    assert lists.turned


@given(LISTS, st.sampled_from(WORDS))
def test_lists_say_the_same_when_turned_round(lists: list[list[str] | None], wanted: str) -> None:
    listed = Listed.of(pa.array(lists, pa.list_(pa.string())))
    turned = listed.turned()
    answers = [
        part.having(np.array([value == wanted for value in part.values.to_pylist()], np.bool_)).tolist()
        for part in (listed, turned)
    ]
    assert answers[0] == answers[1] == [wanted in (one or []) for one in lists]
