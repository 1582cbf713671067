"""F5 through Spark, with everything at once: skipping changes no answer, whatever the indexes, the layout, the clause.

Each clause is asked in three ways: as a filter, by which objects are skipped and live rows are filtered by the node; as
a column of all rows, which Spark computes and nobody skips by; and of `Stream.scan`, which shares no code with Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import millpond
from millpond.spark import last_query, register
from millpond.testing.odd_rows import odd_rows
from millpond.testing.where_clauses import where_clauses
from tests.odd_streams import LAYOUTS, settled_stream

# Clauses in one query: a query each would take minutes.
AT_ONCE = 12
BLOCKS, ROWS = 9, 32


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def odd(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[millpond.Stream]:
    register(spark)
    with millpond.open(str(tmp_path_factory.mktemp("odd") / "pond"), background=False) as pond:
        *blocks, live = odd_rows(5, BLOCKS + 1, ROWS)
        stream = settled_stream(pond, request.param, blocks)
        stream.append(live)
        stream.to_spark(spark).createOrReplaceTempView("odd")
        yield stream
        spark.catalog.dropTempView("odd")


def check(spark: SparkSession, odd: millpond.Stream, clauses: list[str]) -> tuple[int, int]:
    """The objects that were skipped, and all that there were, over all clauses."""
    queries = (f"SELECT {at} AS number, id FROM odd WHERE {clause}" for at, clause in enumerate(clauses))
    found = Counter(map(tuple, spark.sql(" UNION ALL ".join(queries)).collect()))
    figures = last_query(spark)
    assert figures.undecided == 0
    columns = ", ".join(f"({clause}) AS c{at}" for at, clause in enumerate(clauses))
    rows = spark.sql(f"SELECT id, {columns} FROM odd").collect()
    expected = Counter((at, row[0]) for row in rows for at in range(len(clauses)) if row[at + 1])
    wrong = [f"{clauses[at]}: id {row}" for at, row in (expected - found) + (found - expected)]
    assert not wrong, "\n".join(wrong)
    for at, clause in enumerate(clauses):
        scanned = Counter(odd.scan(clause, columns=["id"]).column("id").to_pylist())
        assert scanned == Counter(row for number, row in expected.elements() if number == at), clause
    return figures.objects_total - figures.objects_read, figures.objects_total


def test_spark_finds_what_it_would_without_skipping(spark: SparkSession, odd: millpond.Stream) -> None:
    skipped = total = 0

    @settings(
        max_examples=max(3, settings.default.max_examples // 12),  # type: ignore[union-attr]
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.lists(where_clauses(), min_size=AT_ONCE, max_size=AT_ONCE))
    def run(several: list[str]) -> None:
        nonlocal skipped, total
        some, all_of_them = check(spark, odd, several)
        skipped, total = skipped + some, total + all_of_them

    run()
    assert skipped > total / 10, "hardly anything was skipped; this proved nothing"
