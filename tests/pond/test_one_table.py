"""B2: with a writer and a settler running, every count is exact: all that was acknowledged before it began is in it,
nothing that was sent after it ended, and no record twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

import millpond
from tests.pond.conftest import METERS, Ponds, rows

COUNTS = 100
# Each of them makes a plan and starts tasks.
COUNTS_BY_SPARK = 40
VERSIONS = 5
# Records of a batch, and batches for each count.
BATCH = 20
BATCHES = 20


@dataclass
class Traffic:
    """What the writer has sent and what was acknowledged, in records. Only the writer changes them."""

    wanted: int
    sent: int = 0
    acked: int = 0
    failures: list[BaseException] = field(default_factory=list)
    counts: int = -1
    versions: set[int] = field(default_factory=set)

    def more(self, stream: millpond.Stream) -> bool:
        """Whether to count once more: until there were enough counts, on enough versions of the table."""
        self.counts += 1
        self.versions.add(stream.snapshot().version)
        done = self.counts >= self.wanted and len(self.versions) > VERSIONS
        return not (done or self.failures or self.counts >= 100 * self.wanted)


@contextmanager
def traffic(stream: millpond.Stream, wanted: int) -> Iterator[Traffic]:
    """A writer and a settler, until the block ends."""
    state, stop = Traffic(wanted), threading.Event()

    # Both go ahead of the counts, but not far: on a slow machine, too, there is as much to count.
    def write() -> None:
        while not stop.wait(0.002):
            if state.sent < BATCH * BATCHES * (state.counts + 2):
                batch = rows(state.sent, state.sent + BATCH)
                state.sent += BATCH
                stream.append(batch)
                state.acked += BATCH

    def settle() -> None:
        settled = 0
        while not stop.wait(0.02):
            if settled < state.counts + 2:
                settled += 1
                stream.settle()
                if isinstance(stream, millpond.Stream):  # a node merges objects by itself
                    stream.settling.compact()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            state.failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, settle)]
    for thread in threads:
        thread.start()
    try:
        yield state
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert state.failures == []


@pytest.fixture
def stream(ponds: Ponds) -> millpond.Stream:
    return ponds().create_stream("grid/meters", METERS, keys=["vid"], streamlets=2)


def test_a_hundred_counts_by_scan(stream: millpond.Stream) -> None:
    with traffic(stream, COUNTS) as state:
        while state.more(stream):
            before = state.acked
            found = stream.scan(columns=["vid"])["vid"].to_pylist()
            assert before <= len(found) <= state.sent
            assert len(set(found)) == len(found)
    assert state.counts >= COUNTS
    assert len(state.versions) > VERSIONS, "settling must have gone on meanwhile"


def test_forty_counts_by_spark(stream: millpond.Stream, spark: SparkSession) -> None:
    frame = stream.to_spark(spark)
    frame.createOrReplaceTempView("meters_now")
    with traffic(stream, COUNTS_BY_SPARK) as state:
        while state.more(stream):
            before = state.acked
            ((count, distinct),) = spark.sql("SELECT count(*), count(DISTINCT vid) FROM meters_now").collect()
            assert before <= count <= state.sent
            assert distinct == count
    assert state.counts >= COUNTS_BY_SPARK
    assert len(state.versions) > VERSIONS, "settling must have gone on meanwhile"
