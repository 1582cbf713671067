"""Random predicates on random tables: evaluation is exact, loosening and pruning never lose a row (F5, K13)."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.bind import bind
from millpond.model.evaluate import mask, to_expression
from millpond.model.predicate import Predicate, columns_of, decode, encode, negate, nnf
from millpond.model.prune import ColumnStats, Stats, collect_stats, may_match
from tests.model.predicate_cases import SCHEMA, cases, predicates, rows_of, slow, tables

# More than the profile asks for: an example is quick, and the space of predicates is wide.
Case: TypeAlias = tuple[Predicate, pa.RecordBatch]
thorough = settings(max_examples=max(300, settings.default.max_examples))


@thorough
@given(cases())
def test_evaluation_agrees_with_a_slow_three_valued_evaluator(case: Case) -> None:
    """K13: filters applied where the data is give exactly Spark's rows."""
    predicate, batch = case
    expected = [slow(predicate, row) is True for row in rows_of(batch)]
    assert mask(batch, predicate).to_pylist() == expected
    numbered = pa.Table.from_batches([batch]).append_column("row", pa.array(range(len(batch)), pa.int64()))
    found = numbered.filter(to_expression(predicate, batch.schema))["row"].to_pylist()
    assert found == [row for row, wanted in enumerate(expected) if wanted]


@thorough
@given(cases(unknown=True), st.sampled_from([True, False, None]))
def test_rewriting_keeps_all_three_values(case: Case, unknown: bool | None) -> None:
    predicate, batch = case
    for row in rows_of(batch):
        answer = slow(predicate, row, unknown)
        assert slow(bind(predicate, SCHEMA), row, unknown) is answer
        if unknown is None:
            assert slow(nnf(predicate), row) is answer
            assert slow(negate(predicate), row) is (None if answer is None else not answer)


@thorough
@given(cases(unknown=True), st.sampled_from([True, False, None]))
def test_loose_evaluation_is_a_superset_whatever_unknown_turns_out_to_be(case: Case, unknown: bool | None) -> None:
    predicate, batch = case
    loose = mask(batch, predicate, loose=True).to_pylist()
    for row, may_be in zip(rows_of(batch), loose, strict=True):
        assert may_be or slow(predicate, row, unknown) is not True


@st.composite
def forgotten(draw: st.DrawFn, stats: Stats) -> Stats:
    """The same objects, of which less is known: as after an index entry was lost, or from an older writer."""

    def holes(array: pa.Array) -> pa.Array:
        return pa.array([draw(st.sampled_from([value, value, None])) for value in array.to_pylist()], array.type)

    known = draw(st.sets(st.sampled_from(sorted(stats.columns))))
    return Stats(
        stats.rows,
        {
            name: ColumnStats(holes(column.mins), holes(column.maxs), holes(column.nulls))
            for name, column in stats.columns.items()
            if name in known
        },
    )


@thorough
@given(predicates(unknown=True), st.data())
def test_pruning_never_drops_an_object_with_a_matching_row(predicate: Predicate, data: st.DataObject) -> None:
    """F5: no false negatives, ever; unknown means read."""
    columns = columns_of(predicate) | {"n"}
    objects = data.draw(st.lists(tables(columns, 4), max_size=4))
    schema = pa.schema([field for field in SCHEMA if field.name in columns])
    stats = Stats.gather(schema, [collect_stats(each) for each in objects], [len(each) for each in objects])
    wanted = [
        any(slow(predicate, row, unknown) is True for row in rows_of(each) for unknown in (True, False, None))
        for each in objects
    ]
    for known in (stats, data.draw(forgotten(stats))):
        keep, skipped_by, _ = may_match(predicate, known)
        assert all(kept or not needed for kept, needed in zip(keep, wanted, strict=True))
        assert sum(skipped_by.values()) == len(objects) - keep.sum()


@given(tables())
def test_statistics_bound_every_value(batch: pa.RecordBatch) -> None:
    def order(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    for name, (low, high, nulls) in collect_stats(batch).items():
        values = batch.column(name).to_pylist()
        assert nulls == values.count(None)
        for value in values:
            if value is not None:
                assert low is None or order(low) <= order(value)
                assert high is None or order(value) <= order(high)


@thorough
@given(predicates(unknown=True))
def test_json_brings_back_the_same_predicate(predicate: Predicate) -> None:
    again = decode(encode(predicate))
    assert again == predicate
    assert repr(again) == repr(decode(encode(again)))


@given(predicates())
def test_binding_twice_is_binding_once(predicate: Predicate) -> None:
    bound = bind(predicate, SCHEMA)
    assert bind(bound, SCHEMA) == bound
