"""What past queries would read: by model and partition, and nothing but ranges that meet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.archive.layout.estimate import estimate_bytes
from millpond.archive.layout.kdtree import KdTree
from millpond.archive.layout.layout import Model
from millpond.model.past_query import PastQuery

# A hundred places in a row, in the order of nothing.
ROWS = pa.table({"x": np.random.default_rng(0).permutation(100).astype(float), "y": np.arange(100.0), "s": ["a"] * 100})
ONE_DAY = np.zeros(100, np.int64)


def read(model: Model | None, *queries: PastQuery, days: np.ndarray = ONE_DAY, rows: pa.Table = ROWS) -> float:
    return estimate_bytes(rows, days, model, queries, bytes_total=1_000, buckets=4)


def asked(weight: float = 1.0, **ranges: tuple[float | None, float | None]) -> PastQuery:
    return PastQuery(ranges, 0, weight)


@pytest.fixture(scope="module")
def by_x() -> Model:
    return KdTree("x", buckets=4).fit(ROWS)


def test_a_query_reads_the_buckets_that_it_meets(by_x: Model) -> None:
    assert read(by_x, asked(x=(0, 5))) == pytest.approx(250, abs=50)
    assert read(by_x, asked(x=(0, 30))) == pytest.approx(500, abs=50)
    assert read(by_x, asked(x=(None, None))) == read(by_x, asked(s=(0, 0))) == 1_000
    assert read(by_x, asked(x=(200, None))) == 0


def test_queries_count_as_often_as_they_were_asked(by_x: Model) -> None:
    one, other = asked(x=(0, 5)), asked(x=(95, None))
    assert read(by_x, one, other) == pytest.approx(read(by_x, one) + read(by_x, other))
    assert read(by_x, asked(3.0, x=(0, 5))) == pytest.approx(3 * read(by_x, one))
    assert read(by_x) == 0


def test_without_a_model_rows_lie_as_they_come() -> None:
    assert read(None, asked(y=(0, 5))) == 250
    assert read(None, asked(x=(0, 5))) > 250


def test_time_partitions_divide_under_any_model(by_x: Model) -> None:
    days = (np.arange(100) >= 50).astype(np.int64)
    whole = read(by_x, asked(x=(0, 5), y=(0, 10)))
    assert read(by_x, asked(x=(0, 5), y=(0, 10)), days=days) < whole


def test_what_has_no_place_meets_nothing(by_x: Model) -> None:
    odd = pa.table({"x": [float("nan"), None, float("inf"), 1.0], "y": [0.0] * 4, "s": ["a"] * 4})
    assert read(by_x, asked(x=(50, 60)), days=np.zeros(4, np.int64), rows=odd) == 0


def test_many_queries_are_compared_a_part_at_a_time(by_x: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.archive.layout import estimate

    queries = [asked(x=(float(n), n + 1.0)) for n in range(20)]
    whole = read(by_x, *queries)
    monkeypatch.setattr(estimate, "_QUERIES_AT_ONCE", 3)
    assert read(by_x, *queries) == pytest.approx(whole)
