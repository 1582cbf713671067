"""Which objects a query must read, by the ranges of all columns and by a stream's indexes together.

The ranges come first: a few comparisons of arrays. Then the indexes are asked stage by stage, each only about the
objects that are left. At the root the predicate is an AND of terms, and an index answers for all terms about its
columns at once; every answer takes objects away. An OR between columns of different indexes is decided by all of them
together: an object goes if each branch is ruled out by something.

Invariant (I4): an object is ruled out only by proofs. Where an entry has a missing value, or a kind raises or answers
with something that is no mask of the right length, the object is kept, and the failure is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.archive.index.gather import Indices
from millpond.archive.index.kind import IndexKind
from millpond.archive.index.view import Entries
from millpond.model.bind import bind
from millpond.model.predicate import And, Or, Predicate, children, columns_of, truth
from millpond.model.prune import Mask, Pruning, keep_by_ranges, left_by_ranges, mask_of, may_match
from millpond.model.stats import Stats

Index = tuple[IndexKind, Entries]
# A term, and the columns that it is about.
Named = tuple[frozenset[str], Predicate]


def prune(predicate: Predicate, stats: Stats, schema: pa.Schema, indexes: Sequence[Index]) -> Pruning:
    """`schema`: the stored one; `indexes`: kinds, each with its entries of the same objects as `stats`."""
    if not indexes:
        return may_match(predicate, stats)
    wanted = truth(bind(predicate, schema, loose=True), loose=True)
    mentioned = columns_of(wanted)
    if mentioned <= stats.columns.keys():
        left, skipped_by = left_by_ranges(wanted, stats)
    else:
        by_ranges = may_match(predicate, stats)
        left, skipped_by = np.flatnonzero(by_ranges.keep), by_ranges.skipped_by
    useful = [index for index in indexes if not mentioned.isdisjoint(index[0].columns)]
    if not useful or not len(left):
        return Pruning(mask_of(left, len(stats)), skipped_by)
    return _Walk(stats, useful, left, skipped_by).run(wanted.terms if isinstance(wanted, And) else (wanted,))


class _Walk:
    """One decision. `left` are the places of the objects that nothing has ruled out yet."""

    def __init__(self, stats: Stats, indexes: Sequence[Index], left: Indices, skipped_by: dict[str, int]) -> None:
        self._stats = stats
        # What has least to look at first: the others are then asked about what it left.
        self._indexes = sorted(indexes, key=lambda index: (index[0].stage, index[1].size))
        self._left = left
        self._skipped_by = skipped_by
        self._failures: dict[str, str] = {}
        self._by_ranges: dict[int, Mask] = {}  # of terms inside an OR, by the id of the node

    def run(self, terms: tuple[Predicate, ...]) -> Pruning:
        either = [term for term in terms if isinstance(term, Or)]
        named = [(columns_of(term), term) for term in terms]
        for stage in sorted({kind.stage for kind, _ in self._indexes}):
            for kind, entries in self._indexes:
                if kind.stage == stage:
                    self._ask_all(kind, entries, named)
            for term in either:
                self._ask_together(term, stage)
        return Pruning(mask_of(self._left, len(self._stats)), self._skipped_by, self._failures)

    def _ask_all(self, kind: IndexKind, entries: Entries, terms: Sequence[Named]) -> None:
        """What one index says of all terms that are about its columns only."""
        own = _about(terms, kind.columns)
        if own and len(self._left):
            self._take_away(kind.spec.key, self._answer(kind, entries, _all_of(own), self._left))

    def _ask_together(self, term: Or, stage: int) -> None:
        """What the ranges and all indexes up to a stage say of a term with branches about different columns."""
        asked = [index for index in self._indexes if index[0].stage <= stage and _touches(term, index[0])]
        if asked and asked[-1][0].stage == stage and len(self._left):
            told = {kind.spec.key for kind, _ in asked}
            known = {column for kind, _ in asked for column in kind.columns}
            label = " or ".join(sorted({*told, *(columns_of(term) - known)}))
            self._take_away(label, self._together(term, asked, self._left))

    def _take_away(self, label: str, answer: Mask) -> None:
        gone = len(answer) - int(np.count_nonzero(answer))
        if gone:
            self._skipped_by[label] = self._skipped_by.get(label, 0) + gone
            self._left = self._left[answer]

    def _together(self, node: Predicate, indexes: Sequence[Index], selected: Indices) -> Mask:
        """Which of the selected objects neither ranges nor indexes rule out."""
        if isinstance(node, Or):
            keep = np.zeros(len(selected), dtype=np.bool_)
            for branch in node.terms:
                asked = np.flatnonzero(~keep)
                if not len(asked):
                    break
                keep[asked] = self._together(branch, indexes, selected[asked])
            return keep
        terms = node.terms if isinstance(node, And) else (node,)
        keep = np.ones(len(selected), dtype=np.bool_)
        for term in terms:
            if not isinstance(term, Or):
                keep &= self._ranges(term)[selected]
        for kind, entries in indexes:
            own = _about([(columns_of(term), term) for term in terms], kind.columns)
            asked = np.flatnonzero(keep)
            if own and len(asked):
                keep[asked] = self._answer(kind, entries, _all_of(own), selected[asked])
        for term in terms:
            asked = np.flatnonzero(keep)
            if isinstance(term, Or) and len(asked):
                keep[asked] = self._together(term, indexes, selected[asked])
        return keep

    def _ranges(self, term: Predicate) -> Mask:
        if id(term) not in self._by_ranges:
            self._by_ranges[id(term)] = keep_by_ranges(term, self._stats)
        return self._by_ranges[id(term)]

    def _answer(self, kind: IndexKind, entries: Entries, term: Predicate, selected: Indices) -> Mask:
        shown = entries.select(selected)
        answer = self._safely(kind, shown, term)
        if answer is not None:
            return answer | ~shown.known()
        keep: Mask = np.ones(len(selected), dtype=np.bool_)
        if isinstance(term, And | Or):
            each = [self._answer(kind, entries, one, selected) for one in children(term)]
            keep = np.logical_and.reduce(each) if isinstance(term, And) else np.logical_or.reduce(each)
        return keep

    def _safely(self, kind: IndexKind, entries: Entries, term: Predicate) -> Mask | None:
        """What the kind says, if it is an answer at all."""
        key = kind.spec.key
        if key in self._failures:
            return None
        try:
            answer = kind.keep(term, entries)
            mask = None if answer is None else np.asarray(answer)
        except (Exception, SystemExit) as error:  # whatever user code raises: the objects are read
            self._failures[key] = f"{type(error).__name__}: {error}"
            return None
        if mask is None:
            return None
        if mask.dtype != np.bool_ or mask.shape != (len(entries),):
            self._failures[key] = f"an answer of {mask.dtype}{mask.shape} about {len(entries)} objects"
            return None
        return mask


def _about(terms: Sequence[Named], columns: Sequence[str]) -> list[Predicate]:
    return [term for names, term in terms if names and names.issubset(columns)]


def _touches(term: Predicate, kind: IndexKind) -> bool:
    return bool(columns_of(term).intersection(kind.columns))


def _all_of(terms: list[Predicate]) -> Predicate:
    return terms[0] if len(terms) == 1 else And(tuple(terms))
