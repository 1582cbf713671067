"""Filters: code of the user's own that says which objects a query must read, from what is known of them.

A filter is asked last, about the objects that ranges and indexes have left. It gets the query's predicate, bound to the
stream's columns, and a table with a row per object: `path`, `bytes`, `rows`, and everything that the index has of it
(`min.temp`, `max.temp`, `nulls.temp`, `values(city).values`, …; null: not known). It answers which of them must be
read, in the order of the rows. Of several filters all must say so.

Invariant (I4): a filter that raises, or whose answer is not one truth value for each object, rules out nothing, and the
failure is told. What a filter does answer is believed: it is for its author to say "read" whenever in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.model.bind import bind
from millpond.model.predicate import Predicate
from millpond.model.prune import Mask, Pruning

Filter: TypeAlias = Callable[[Predicate, pa.Table], Any]


def filter_name(filter: Filter) -> str:
    """What it is called in reports."""
    module = getattr(filter, "__module__", None) or type(filter).__module__
    return f"filter {module}:{getattr(filter, '__qualname__', type(filter).__qualname__)}"


def apply_filters(
    before: Pruning, predicate: Predicate, schema: pa.Schema, known: pa.Table, filters: Sequence[Filter]
) -> Pruning:
    """What is left after these filters. `known`: a row per object."""
    bound = bind(predicate, schema, loose=True)
    keep, skipped_by, failures = before.keep.copy(), dict(before.skipped_by), dict(before.failures)
    for filter in filters:
        left = np.flatnonzero(keep)
        if not len(left):
            break
        try:
            answer = _mask(filter(bound, known.take(pa.array(left))), len(left))
        except (Exception, SystemExit) as error:  # whatever user code raises: the objects are read
            failures[filter_name(filter)] = f"{type(error).__name__}: {error}"
            continue
        keep[left] = answer
        gone = len(left) - int(np.count_nonzero(answer))
        if gone:
            skipped_by[filter_name(filter)] = skipped_by.get(filter_name(filter), 0) + gone
    return Pruning(keep, skipped_by, failures)


def _mask(answer: Any, length: int) -> Mask:
    """A truth value for each object; null means "read"."""
    if not isinstance(answer, pa.Array | pa.ChunkedArray):
        answer = pa.array(answer)
    if answer.type != pa.bool_() or len(answer) != length:
        raise ValueError(f"an answer of {len(answer)} x {answer.type} about {length} objects")
    return np.asarray(answer.fill_null(True), dtype=np.bool_)
