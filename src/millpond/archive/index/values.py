"""Value lists: all distinct values of a column in an object, if they are few.

An entry says: every value of the column in this object that is not null is among these. So a term about the column
alone is decided by asking it of the values, once for each distinct value of all objects; the objects that have a value
for which it is true are kept. Equality is Spark's: -0.0 is stored as 0.0, NaN is a value like others.

With `words=True` the list is of the words in a text instead. A word is a longest run of characters that are not ASCII
punctuation, space or control characters. Equality and LIKE name words, or parts of words, that a row must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.archive.index.inverted import Inverted, Listed, ListedTexts, Lists
from millpond.archive.index.kind import IndexKind, Mask, unfit
from millpond.archive.index.view import Entries
from millpond.errors import InvalidValue
from millpond.model import evaluate
from millpond.model.cut import comparable
from millpond.model.like import plain_runs
from millpond.model.predicate import Compare, In, Like, Predicate, StartsWith, may_be_true_of_null
from millpond.model.text_bounds import as_mask

LIMIT_MAX = 10_000
# What one entry may take: a hundred thousand of them must fit into memory.
ENTRY_BYTES_MAX = 4_096
# Up to so many objects their lists are looked at by themselves, and up to this part of all while not all are turned
# round: fetching a list costs as much as looking at a few in their places.
_FEW = 1_000
_PART = 4
# With more texts than this they are looked up all at once.
_TEXTS_MAX = 8
# ASCII characters that are neither letters nor digits. Nothing beyond ASCII, of which two libraries may differ.
_BETWEEN = r"[\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+"


class Values(IndexKind):
    """Of one ordered column, or with `words` of one text. An object with more than `limit` values has no entry."""

    name = "values"
    stage = 1

    def __init__(self, column: str, limit: int = 64, words: bool = False) -> None:
        super().__init__(column, limit=limit, words=words)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
            raise InvalidValue(f"{self.spec.key}: a limit of {limit!r} values", hint=f"1 to {LIMIT_MAX}")
        if not isinstance(words, bool):
            raise InvalidValue(f"{self.spec.key}: words={words!r}", hint="true or false")
        self._limit, self._words = limit, words

    @property
    def entry_key(self) -> str:
        return self.spec.key

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        found = schema.field(self.column).type
        if not comparable(found):
            raise unfit(self, self.column, found, "a plain value with an order")
        if self._words and not (pa.types.is_string(found) or pa.types.is_large_string(found)):
            raise unfit(self, self.column, found, "words are those of a string column")
        return [pa.field("words" if self._words else "values", pa.list_(pa.string() if self._words else found))]

    def describe(self, rows: pa.Table) -> Mapping[str, Any]:
        column = rows.column(self.column)
        if self._words:
            parts = pc.list_flatten(pc.split_pattern_regex(pc.unique(column.drop_null()), pattern=_BETWEEN))
            found = pc.unique(parts)
            found = found.filter(pc.not_equal(found, "")).cast(pa.string())
        else:
            if pa.types.is_floating(column.type):
                column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 becomes 0.0
            found = pc.unique(column.drop_null())
        if len(found) > self._limit or found.nbytes > ENTRY_BYTES_MAX:
            return {}
        return {"words" if self._words else "values": found.take(pc.sort_indices(found))}

    def keep(self, term: Predicate, entries: Entries) -> Mask | None:
        field = "words" if self._words else "values"
        if len(entries) > _FEW:
            lists = entries.cached("lists", lambda all: Lists(all.column(field)))
            lists.turn_one()
            if len(entries) * _PART > len(entries.all) or lists.turned:
                found = self._found_in(term, lists.parts)
                return None if found is None else found[entries.selected]
        texts = () if self._words else _texts(term)
        if texts:
            return entries.cached("texts", lambda all: ListedTexts(all.column(field))).having(texts, entries.selected)
        return self._found_in(term, list(map(Listed.of, entries.column(field).chunks)))

    def _found_in(self, term: Predicate, parts: Sequence[Inverted | Listed]) -> Mask | None:
        each = [self._found(term, part) for part in parts]
        known = [one for one in each if one is not None]
        return np.concatenate(known) if known and len(known) == len(each) else None

    def _found(self, term: Predicate, lists: Inverted | Listed) -> Mask | None:
        return self._having_words(term, lists) if self._words else self._having(term, lists)

    def _having(self, term: Predicate, lists: Inverted | Listed) -> Mask | None:
        if may_be_true_of_null(term) and self._of_null(term, lists.values.type):
            return None  # of nulls a list says nothing
        return lists.having(self._true(term, lists.values))

    def _true(self, term: Predicate, values: pa.Array) -> Mask:
        batch = pa.RecordBatch.from_arrays([values], [self.column])
        return as_mask(evaluate.bound_mask(batch, term))

    def _of_null(self, term: Predicate, kind: pa.DataType) -> bool:
        return bool(self._true(term, pa.nulls(1, kind))[0])

    def _having_words(self, term: Predicate, lists: Inverted | Listed) -> Mask | None:
        match term:
            case Compare("=", _, str(text)):
                return _having_all(lists, [(text, True, True)])
            case In(_, texts):
                either = [_having_all(lists, [(text, True, True)]) for text in texts]
                known = [one for one in either if one is not None]
                return np.logical_or.reduce(known) if len(known) == len(either) and known else None
            case StartsWith(_, prefix):
                return _having_all(lists, [(prefix, True, False)])
            case Like(_, pattern):
                return _having_all(lists, plain_runs(pattern))
        return None


def _texts(term: Predicate) -> tuple[str, ...]:
    """If it asks for some texts and nothing else, those."""
    match term:
        case Compare("=", _, str(text)):
            return (text,)
        case In(_, values) if len(values) <= _TEXTS_MAX and all(isinstance(value, str) for value in values):
            return values
    return ()


def _having_all(lists: Inverted | Listed, runs: list[tuple[str, bool, bool]]) -> Mask | None:
    """The objects whose words allow a text with these runs of plain characters; None if they name no word. A run that
    begins (or ends) where the text does cannot be part of a longer word there."""
    found: Mask | None = None
    for text, at_start, at_end in runs:
        for matching in _words(text, at_start, at_end):
            one = lists.having(np.asarray(matching(lists.values), dtype=np.bool_))
            found = one if found is None else found & one
    return found


def _words(text: str, at_start: bool, at_end: bool) -> Iterator[Callable[[pa.Array], pa.Array]]:
    """For each word in the run, which words a row must have one of."""
    parts: list[str] = pc.split_pattern_regex(pa.array([text]), pattern=_BETWEEN)[0].as_py()
    for number, word in enumerate(parts):
        if word:
            whole_left, whole_right = number > 0 or at_start, number < len(parts) - 1 or at_end
            yield partial(_MATCHING[whole_left, whole_right], pattern=word)


# Whether a word is known to begin, and to end, where the run of plain characters says so.
_MATCHING: dict[tuple[bool, bool], Callable[..., pa.Array]] = {
    (True, True): lambda values, pattern: pc.equal(values, pattern),
    (True, False): pc.starts_with,
    (False, True): pc.ends_with,
    (False, False): pc.match_substring,
}
