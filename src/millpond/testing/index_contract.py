"""What every index kind owes: subclass `IndexContract`, say which kind and which columns, and let pytest run it.

    class TestBands(IndexContract):
        schema = pa.schema([("temp", pa.float64())])

        def make(self) -> IndexKind:
            return Bands("temp", width=5.0)

The heart of it is I4: of random objects and random predicates, no object is ruled out that holds a row which satisfies
the predicate. Needs `hypothesis` and `pytest`.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from millpond.archive.index.blobs import BlobWriter
from millpond.archive.index.kind import IndexKind
from millpond.archive.index.pruning import prune
from millpond.archive.index.stream_indexes import KindInUse, StreamIndexes
from millpond.archive.index.view import Entries, Place
from millpond.model import evaluate
from millpond.model.bind import bind
from millpond.model.cut import comparable
from millpond.model.predicate import (
    FALSE,
    And,
    Compare,
    CompareColumns,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    truth,
)
from millpond.model.prune import Pruning
from millpond.model.spec import parse_spec, spec_of
from millpond.model.stats import Stats
from millpond.testing import strategies

_OPS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


def _some(examples: int) -> settings:
    """A test that is inherited runs once for each class, on purpose."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class MemoryBlobs:
    """Blobs that were never written to a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, places: Sequence[Place]) -> list[bytes | None]:
        return [None if p.file is None else self._data[p.position : p.position + p.bytes] for p in places]


def in_use(kind: IndexKind, schema: pa.Schema) -> StreamIndexes:
    """The kind as a stream with these columns has it."""
    fields = {field.name: pa.field(f"{kind.spec.key}.{field.name}", field.type) for field in kind.fields(schema)}
    return StreamIndexes((KindInUse(kind, fields),))


def entries_of(kind: IndexKind, schema: pa.Schema, objects: Sequence[pa.Table]) -> Entries:
    """What the kind says of these objects, as it will be shown it again."""
    indexes, blobs = in_use(kind, schema), BlobWriter(0)
    columns = indexes.columns([indexes.entry(rows) for rows in objects], blobs)
    own = {name: pa.chunked_array([columns[field.name]]) for name, field in indexes.used[0].fields.items()}
    return Entries(own, len(objects), blobs=MemoryBlobs(blobs.data))


def ruled_by(kind: IndexKind, schema: pa.Schema, entries: Entries, predicate: Predicate) -> Pruning:
    """Which objects are left if nothing but this index is known of them."""
    nothing = Stats(pa.nulls(len(entries), pa.int64()), {})
    return prune(predicate, nothing, schema, [(kind, entries)])


def holds(rows: pa.Table, predicate: Predicate) -> bool:
    """Whether any row satisfies the predicate."""
    batches = rows.to_batches()
    return any(bool(np.asarray(evaluate.mask(batch, predicate)).any()) for batch in batches)


@st.composite
def leaves(draw: st.DrawFn, schema: pa.Schema, columns: Sequence[str], objects: Sequence[pa.Table]) -> Predicate:
    """A comparison of one of the columns, often with a value that some object has."""
    name = draw(st.sampled_from(list(columns)))
    kind = schema.field(name).type
    if not comparable(kind):
        return IsNull(name)
    there = [value for rows in objects for value in rows.column(name).to_pylist() if value is not None]
    literal = strategies.values(kind) | (st.sampled_from(there) if there else st.nothing())
    text = pa.types.is_string(kind)
    match draw(st.integers(0, 6 if text else 4)):
        case 0 | 1:
            return Compare(draw(st.sampled_from(_OPS)), name, draw(literal))
        case 2:
            return In(name, tuple(draw(st.lists(literal | st.none(), max_size=5))))
        case 3:
            return IsNull(name)
        case 4:
            return CompareColumns(draw(st.sampled_from(_OPS)), name, name)
        case 5:
            value = draw(literal)
            return StartsWith(name, value[: draw(st.integers(0, max(len(value), 1)))])
        case _:
            value = draw(literal)
            start, stop = sorted(draw(st.tuples(st.integers(0, len(value)), st.integers(0, len(value)))))
            plain = "".join(f"\\{c}" if c in "%_\\" else c for c in value[start:stop])
            return Like(name, draw(st.sampled_from(["%{}%", "{}%", "%{}", "_{}%", "{}"])).format(plain))


def predicates(schema: pa.Schema, columns: Sequence[str], objects: Sequence[pa.Table]) -> st.SearchStrategy[Predicate]:
    """Predicates over some columns, with AND, OR and NOT."""
    return st.recursive(
        leaves(schema, columns, objects),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3).map(lambda terms: And(tuple(terms)))
            | st.lists(inner, min_size=1, max_size=3).map(lambda terms: Or(tuple(terms)))
            | inner.map(Not)
        ),
        max_leaves=5,
    )


def objects_of(schema: pa.Schema) -> st.SearchStrategy[list[pa.Table]]:
    """A few objects of a few rows; their rows come from a small pool, so that values come back."""

    def some(pool: pa.RecordBatch) -> st.SearchStrategy[pa.Table]:
        places = st.lists(st.integers(0, pool.num_rows - 1), min_size=1, max_size=8)
        return places.map(lambda at: pa.Table.from_batches([pool.take(pa.array(at))]))

    return strategies.batches(schema, 1, 6).flatmap(lambda pool: st.lists(some(pool), min_size=1, max_size=6))


class IndexContract(ABC):
    """Subclass it, and say which kind over which columns: without, pytest names what is missing."""

    # The columns that the kind is over, and others if you like.
    schema: pa.Schema

    @abstractmethod
    def make(self) -> IndexKind:
        """The kind, made anew."""

    @_some(60)
    @given(data=st.data())
    def test_an_object_with_a_wanted_row_is_never_ruled_out(self, data: DataObject) -> None:
        kind, objects = self.make(), data.draw(objects_of(self.schema))
        entries = entries_of(kind, self.schema, objects)
        for _ in range(4):
            predicate = data.draw(predicates(self.schema, self.schema.names, objects))
            found = ruled_by(kind, self.schema, entries, predicate)
            assert not found.failures, found.failures
            lost = [at for at, rows in enumerate(objects) if holds(rows, predicate) and not found.keep[at]]
            assert not lost, f"{predicate} is satisfied in objects {lost}, which {kind} rules out"
            assert sum(found.skipped_by.values()) == len(objects) - found.keep.sum()

    @_some(30)
    @given(data=st.data())
    def test_of_some_objects_it_says_what_it_says_of_all(self, data: DataObject) -> None:
        kind, objects = self.make(), data.draw(objects_of(self.schema))
        entries = entries_of(kind, self.schema, objects)
        leaf = data.draw(leaves(self.schema, kind.columns, objects))
        term = truth(bind(leaf, self.schema, loose=True), loose=True)
        assume(columns_of(term))
        some = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(objects), max_size=len(objects))))
        whole, part = kind.keep(term, entries), kind.keep(term, entries.select(some))
        assert (whole is None) == (part is None)
        if whole is not None and part is not None:
            assert part.tolist() == whole[some].tolist()

    @_some(15)
    @given(data=st.data())
    def test_where_nothing_is_known_everything_is_read(self, data: DataObject) -> None:
        kind, objects = self.make(), data.draw(objects_of(self.schema))
        unknown = {
            field.name: pa.chunked_array([pa.nulls(len(objects), field.type)]) for field in kind.fields(self.schema)
        }
        predicate = data.draw(predicates(self.schema, kind.columns, objects))
        assume(truth(bind(predicate, self.schema, loose=True), loose=True) != FALSE)
        assert ruled_by(kind, self.schema, Entries(unknown, len(objects)), predicate).keep.all()

    @_some(15)
    @given(data=st.data())
    def test_an_entry_has_the_fields_that_it_says(self, data: DataObject) -> None:
        kind = self.make()
        fields = {field.name for field in kind.fields(self.schema)}
        for rows in data.draw(objects_of(self.schema)):
            assert set(kind.describe(rows)) <= fields

    def test_it_is_made_again_from_its_spec(self) -> None:
        kind = self.make()
        again = type(kind)(*kind.spec.columns, **dict(kind.spec.options))
        assert again.spec == kind.spec == spec_of(kind.spec.plain()) == parse_spec(str(kind.spec))
        assert again.fields(self.schema) == kind.fields(self.schema)

    def test_it_travels_to_other_processes(self) -> None:
        kind = self.make()
        assert pickle.loads(pickle.dumps(kind)).spec == kind.spec

    def test_it_has_a_stage(self) -> None:
        assert self.make().stage in (0, 1, 2)

    def test_no_objects_are_no_trouble(self) -> None:
        kind = self.make()
        nothing = {field.name: pa.chunked_array([], field.type) for field in kind.fields(self.schema)}
        for column in kind.columns:
            answer = kind.keep(Not(IsNull(column)), Entries(nothing, 0))
            assert answer is None or len(answer) == 0

    def test_columns_that_are_not_there_are_refused(self) -> None:
        with pytest.raises(Exception, match=r".+"):
            self.make().check(pa.schema([("another", pa.string())]))
