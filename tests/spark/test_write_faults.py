"""Writes whose driver is killed: all of a write is there, once, or nothing (O3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.write_job import ROWS
from tests.spark.write_node import SCHEMA, Node

# A killed driver's lease keeps others from loading for this long.
LEASE_SECONDS = 3.0

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr("millpond.pond.loading.LEASE_SECONDS", LEASE_SECONDS)
    made = Node(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("to", ["log", "archive"])
def test_a_driver_that_is_killed_leaves_all_or_nothing(node: Node, to: str) -> None:
    assert node.run(to, troubles=[""], kill="before the commit") == -9
    assert node.numbers() == []
    assert node.run(to, troubles=[""], kill="after the commit") == -9
    assert node.numbers() == list(range(ROWS))


@pytest.mark.parametrize("to", ["log", "archive"])
def test_a_streaming_copy_is_exact_although_its_driver_is_killed(node: Node, to: str, tmp_path: Path) -> None:
    source = node.pond.create_stream("source", SCHEMA)
    source.append(pa.table({"n": range(10_000), "text": [f"t{n % 10}" for n in range(10_000)]}))
    checkpoint = str(tmp_path / "checkpoint")
    had = 0
    for kill in ("before the commit", "after the commit", "after the commit"):
        assert node.run(to, kill=kill, checkpoint=checkpoint) == -9
        seen = node.numbers()
        # Killed between our commit and Spark's own, a batch comes again, and may be all that the next driver does.
        assert len(seen) == len(set(seen))
        assert had <= len(seen) <= had + (0 if kill == "before the commit" else 3_000)
        had = len(seen)
    assert had in (3_000, 6_000)
    assert node.run(to, checkpoint=checkpoint) == 0
    assert node.numbers() == list(range(10_000))
