"""Every single comparison there is in the cases, on every value: what random predicates reach only now and then."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import pyarrow as pa
import pytest

from millpond.model.evaluate import Filter, mask
from millpond.model.predicate import (
    OPS,
    Compare,
    CompareColumns,
    In,
    IsNull,
    Like,
    Not,
    Predicate,
    StartsWith,
    Unknown,
)
from millpond.model.prune import Stats, collect_stats, may_match
from tests.model.predicate_cases import LITERALS, PAIRS, PATTERNS, SCHEMA, TEXTS, VALUES, rows_of, slow


def leaves(name: str) -> Iterator[Predicate]:
    literals = [*LITERALS[name], None]
    yield from (Compare(op, name, value) for op, value in product(OPS, literals))
    yield from (In(name, (value,)) for value in literals)
    yield from (In(name, pair) for pair in pairwise(literals))
    yield from (In(name, ()), In(name, tuple(VALUES[name])), IsNull(name))
    if isinstance(VALUES[name][0], str):
        yield from (StartsWith(name, prefix) for prefix in TEXTS)
        yield from (Like(name, pattern) for pattern in PATTERNS)


def both_ways(predicates: Iterator[Predicate]) -> Iterator[Predicate]:
    for predicate in predicates:
        yield predicate
        yield Not(predicate)


def column(name: str, values: list[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, SCHEMA.field(name).type)], names=[name])


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_comparison_of_a_column_with_a_literal_is_exact(name: str) -> None:
    batch = column(name, [*VALUES[name], None])
    rows = rows_of(batch)
    for predicate in both_ways(leaves(name)):
        expected = [slow(predicate, row) is True for row in rows]
        assert mask(batch, predicate).to_pylist() == expected, predicate


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_comparison_keeps_the_objects_it_must(name: str) -> None:
    """F5: each object holds two values of the column, or one, or one and a null."""
    contents = list(combinations_with_replacement([*VALUES[name], None], 2))
    objects = [column(name, list(values)) for values in contents]
    schema = objects[0].schema
    stats = Stats.gather(schema, [collect_stats(each) for each in objects], [2] * len(objects))
    values = column(name, [value for pair in contents for value in pair])
    for predicate in both_ways(leaves(name)):
        matching = Filter(predicate, schema).mask(values).to_numpy(zero_copy_only=False).reshape(-1, 2).any(axis=1)
        lost = matching & ~may_match(predicate, stats).keep
        assert not lost.any(), (predicate, [contents[i] for i in lost.nonzero()[0]])


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=lambda name: name)
def test_every_comparison_of_two_columns_is_exact_and_prunes_soundly(left: str, right: str) -> None:
    values = list(product([*VALUES[left], None], [*VALUES[right], None]))
    schema = pa.schema([SCHEMA.field(left), SCHEMA.field(right)])
    sides = [pa.array([pair[side] for pair in values], schema.field(side).type) for side in (0, 1)]
    batch = pa.record_batch(sides, schema=schema)
    rows = rows_of(batch)
    single = [batch.slice(row, 1) for row in range(len(batch))]
    stats = Stats.gather(schema, [collect_stats(each) for each in single], [1] * len(single))
    for predicate in both_ways(CompareColumns(op, left, right) for op in OPS):
        expected = [slow(predicate, row) is True for row in rows]
        assert mask(batch, predicate).to_pylist() == expected, predicate
        keep = may_match(predicate, stats).keep
        assert all(kept or not wanted for kept, wanted in zip(keep, expected, strict=True)), predicate


def test_an_unknown_among_the_cases_never_narrows() -> None:
    batch = column("n", [*VALUES["n"], None])
    for predicate in both_ways(iter([Unknown("?")])):
        assert mask(batch, predicate, loose=True).to_pylist() == [True] * len(batch)
