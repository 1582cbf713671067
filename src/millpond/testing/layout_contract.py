"""What every layout owes (see `archive/layout/layout.py`): built-in ones pass this suite, and so should yours.

    class TestMine(LayoutContract):
        def make_layout(self, columns: Sequence[str], buckets: int) -> Layout:
            return Mine(*columns, buckets=buckets)

Numbers are drawn with all their corners. `TYPES` says which other types a layout takes as dimensions.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.archive.layout.layout import Layout, Model
from millpond.archive.layout.registry import decode_model, make_layout, register_layout
from millpond.errors import InvalidSchema, InvalidValue
from millpond.model.past_query import PastQuery
from millpond.testing.strategies import values

# A model is sent to every task and kept in memory by every writer.
MODEL_BYTES_MAX = 1_000_000

_NUMBERS = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0, 1.0, float("inf"), float("-inf"), float("nan")])
_QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])

_IN_ANOTHER_PROCESS = """
import sys, pickle
model, rows, buckets = pickle.load(sys.stdin.buffer)
sys.stdout.write(repr(model.assign(rows, buckets).tolist()))
"""


def table_of(columns: Sequence[str], rows: Sequence[Sequence[float | None]]) -> pa.Table:
    """Rows of numbers as a table with these columns."""
    parts = [pa.array([row[at] for row in rows], pa.float64()) for at in range(len(columns))]
    return pa.table(parts, names=list(columns))


@st.composite
def number_tables(draw: st.DrawFn, columns: Sequence[str]) -> pa.Table:
    """Tables with columns of numbers, some of them with many equal ones."""
    rows = draw(st.lists(st.tuples(*[_NUMBERS for _ in columns]), max_size=60))
    return table_of(columns, rows * draw(st.sampled_from([1, 1, 7])))


class LayoutContract(ABC):
    """Subclass it and say how your layout is made: without, pytest names what is missing."""

    TYPES: ClassVar[tuple[pa.DataType, ...]] = (pa.float64(),)

    @abstractmethod
    def make_layout(self, columns: Sequence[str], buckets: int) -> Layout:
        """The layout over these columns."""

    def _model(self, sample: pa.Table, buckets: int, history: Sequence[PastQuery] = ()) -> Model:
        return self.make_layout(sample.schema.names, buckets).fit(sample, history)

    @_QUIET
    @given(sample=number_tables("xy"), rows=number_tables("xy"), buckets=st.integers(1, 20))
    def test_every_row_is_in_one_bucket(self, sample: pa.Table, rows: pa.Table, buckets: int) -> None:
        model = self._model(sample, buckets)
        found = model.assign(rows)
        assert found.dtype == np.int32
        assert found.shape == (rows.num_rows,)
        assert ((found >= 0) & (found < model.buckets)).all()
        assert 1 <= model.buckets <= buckets

    @_QUIET
    @given(sample=number_tables("xy"), rows=number_tables("xy"), buckets=st.integers(1, 20))
    def test_a_row_goes_where_it_goes_alone(self, sample: pa.Table, rows: pa.Table, buckets: int) -> None:
        model = self._model(sample, buckets)
        together = model.assign(rows)
        alone = [int(model.assign(rows.slice(at, 1))[0]) for at in range(rows.num_rows)]
        assert together.tolist() == alone

    @_QUIET
    @given(sample=number_tables("xyz"), rows=number_tables("xyz"), buckets=st.integers(1, 20))
    def test_what_is_encoded_is_all_of_it(self, sample: pa.Table, rows: pa.Table, buckets: int) -> None:
        model = self._model(sample, buckets)
        again = decode_model(model.encode())
        assert (again.id, again.buckets, again.columns) == (model.id, model.buckets, model.columns)
        assert again.encode() == model.encode()
        assert len(model.encode()) <= MODEL_BYTES_MAX
        assert again.assign(rows).tolist() == model.assign(rows).tolist()

    @_QUIET
    @given(sample=number_tables("xy"), rows=number_tables("xy"), buckets=st.integers(1, 40))
    def test_coarser_buckets_are_unions_of_finer_ones(self, sample: pa.Table, rows: pa.Table, buckets: int) -> None:
        model = self._model(sample, buckets)
        finer, most = model.assign(rows), model.buckets
        for fewer in range(buckets, 0, -1):
            coarser = model.assign(rows, fewer)
            pairs = set(zip(finer.tolist(), coarser.tolist(), strict=True))
            assert len(pairs) == len(set(finer.tolist())), "a finer bucket lies in two coarser ones"
            count = model.levels.at_most(fewer)
            assert count <= min(fewer, most)
            assert all(0 <= bucket < count for bucket in coarser.tolist())
            finer, most = coarser, count
        assert set(model.assign(rows, 1).tolist()) <= {0}

    @_QUIET
    @given(sample=number_tables("xy"), rows=number_tables("xy"))
    def test_an_order_names_each_row_once(self, sample: pa.Table, rows: pa.Table) -> None:
        order = self._model(sample, 8).order(rows)
        assert sorted(order.tolist()) == list(range(rows.num_rows))

    @_QUIET
    @given(sample=number_tables("xy"), buckets=st.integers(1, 20))
    def test_the_same_sample_gives_the_same_model(self, sample: pa.Table, buckets: int) -> None:
        assert self._model(sample, buckets).encode() == self._model(sample, buckets).encode()

    @settings(_QUIET, max_examples=150)
    @given(data=st.data(), buckets=st.integers(1, 20))
    def test_any_type_that_it_takes(self, data: st.DataObject, buckets: int) -> None:
        kind = data.draw(st.sampled_from(self.TYPES))
        rows = pa.table({"a": pa.array(data.draw(st.lists(st.none() | values(kind), max_size=30)), kind)})
        self.make_layout(["a"], buckets).check(rows.schema)
        model = self._model(rows, buckets)
        found = model.assign(rows)
        assert ((found >= 0) & (found < model.buckets)).all()
        assert decode_model(model.encode()).assign(rows).tolist() == found.tolist()
        assert sorted(model.order(rows).tolist()) == list(range(rows.num_rows))

    def test_many_buckets_of_many_rows(self) -> None:
        """All buckets are used when the data tells rows apart, and none is left out."""
        rng = np.random.default_rng(7)
        rows = pa.table({name: rng.normal(size=50_000) * 20 for name in "xy"})
        model = self._model(rows, 64)
        assert len(np.unique(model.assign(rows))) == model.buckets == 64
        assert len(model.encode()) <= MODEL_BYTES_MAX

    def test_history_is_advice(self) -> None:
        """Whatever was asked before, every row has its bucket."""
        rng = np.random.default_rng(8)
        rows = pa.table({name: rng.normal(size=5_000) for name in "xy"})
        history = [
            PastQuery({"x": (0.1, 0.2)}, 1_000),
            PastQuery({"x": (None, 0.5), "y": (0.0, None)}, 2_000, weight=3.0),
            PastQuery({"gone": (1.0, 2.0)}, 3_000),
            PastQuery({"y": (2.0, -2.0)}, 4_000, weight=0.0),
        ]
        model = self._model(rows, 16, history)
        found = model.assign(rows)
        assert ((found >= 0) & (found < model.buckets)).all()
        assert model.encode() == self._model(rows, 16, history).encode()

    def test_another_process_says_the_same(self) -> None:
        rng = np.random.default_rng(9)
        rows = pa.table({name: rng.normal(size=2_000) for name in "xy"})
        model = self._model(rows, 32)
        given_to = pickle.dumps((model, rows, 8))
        done = subprocess.run(
            [sys.executable, "-c", _IN_ANOTHER_PROCESS], input=given_to, capture_output=True, check=True
        )
        assert json.loads(done.stdout) == model.assign(rows, 8).tolist()

    def test_its_spec_makes_it_again(self) -> None:
        layout = self.make_layout(["x", "y"], 16)
        register_layout(type(layout))
        again = make_layout(layout.spec)
        assert (again, again.columns, again.buckets) == (layout, ("x", "y"), 16)

    def test_boxes_are_of_buckets_that_there_are(self) -> None:
        rng = np.random.default_rng(10)
        rows = pa.table({name: rng.normal(size=2_000) for name in "xy"})
        model = self._model(rows, 16)
        for box in model.boxes():
            assert 0 <= box.bucket < model.buckets
            assert len(box.lows) == len(box.highs) == 2
            assert all(low <= high for low, high in zip(box.lows, box.highs, strict=True))

    @pytest.mark.parametrize("buckets", [0, -1, 1 << 40, True])
    def test_a_number_of_buckets_that_cannot_be(self, buckets: int) -> None:
        with pytest.raises(InvalidValue, match="buckets"):
            self.make_layout(["x", "y"], buckets)

    def test_columns_that_cannot_be_laid_out(self) -> None:
        schema = pa.schema([("x", pa.float64()), ("many", pa.list_(pa.int64()))])
        layout = self.make_layout(["x", "nowhere"], 4)
        with pytest.raises(InvalidSchema, match="nowhere"):
            layout.check(schema)
        with pytest.raises(InvalidSchema, match="many"):
            self.make_layout(["x", "many"], 4).check(schema)
